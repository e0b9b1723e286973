"""A package's templates, compiled once per text: mako takes 20 ms for each, a network uses twenty.

Compiled modules are kept in the user's cache folder, under a digest of all templates of the
package, so that an old text is never used. If one cannot be kept, or is damaged, each process
compiles it.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path

import mako
import platformdirs
from mako.lookup import TemplateLookup
from mako.template import Template


class Templates:
    """The templates `*.mako` of a package, by name, whatever the folder."""

    def __init__(self, package: str, kept: Path) -> None:
        """Compile nothing yet.

        Args:
            package: has the templates.
            kept: folder of compiled modules, of all packages; it is made if it can be.
        """
        root = Path(str(resources.files(package)))
        files = sorted(root.rglob("*.mako"))
        self._folders = sorted({str(path.parent) for path in files})
        self._names = [path.name for path in files]
        self._modules = _prepared(kept, package, root, files)
        self._plain = self._lookup(None)
        self._kept = self._lookup(self._modules)

    def get(self, name: str) -> Template:
        """Return a template; undefined names within it are errors.

        Raises:
            mako.exceptions.MakoException: there is none of this name, or it is not mako's language.
        """
        with suppress(Exception):  # a damaged file may raise anything; the other lookup tells
            return self._kept.get_template(name)
        return self._plain.get_template(name)

    def uncompiled(self) -> list[str]:
        """Return the names of the templates of which no compiled module is kept, sorted."""
        kept = self._modules
        return [] if kept is None else [n for n in self._names if not (kept / f"{n}.py").is_file()]

    def _lookup(self, modules: Path | None) -> TemplateLookup:
        directory = None if modules is None else str(modules)
        return TemplateLookup(
            self._folders, module_directory=directory, strict_undefined=True,
            filesystem_checks=False,
        )  # fmt: skip


@cache
def templates(package: str) -> Templates:
    """Return the templates of a package, with the user's cache."""
    return Templates(package, platformdirs.user_cache_path("oclgen") / "templates")


def _prepared(kept: Path, package: str, root: Path, files: list[Path]) -> Path | None:
    """Return the folder of modules for these texts, and remove those of older ones.

    Returns:
        None if it cannot be made.
    """
    texts = [(path.name, path.read_bytes()) for path in files]
    parts = (mako.__version__, sys.implementation.cache_tag, texts)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    place = hashlib.sha256(str(root).encode()).hexdigest()[:8]
    folder = kept / f"{package}-{place}" / digest
    try:
        if not folder.is_dir():
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
