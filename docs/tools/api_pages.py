"""MkDocs hook that writes the API reference: one page per public module, found by walking packages.

Module names appear nowhere in `mkdocs.yml`, so that a module which moves takes its page with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PLACEHOLDER = "reference/api"
"""The entry of `nav` that the pages of this hook replace."""
PACKAGES = ("oclgen", "search_spaces", "tuned_db")
SKIPPED = {"migrations", "service", "templates"}
"""Folders without an API: tables' upgrades, the HTTP service (see its OpenAPI page), templates."""
TORCH_OCL = ("module", "tunable")
"""Modules of `ocl_backend` that users reach, as `torch.ocl` and `torch.ocl.tunable`."""


def public_modules() -> dict[str, list[str]]:
    """Return the dotted names of all documented modules, by package."""
    found = {package: sorted(_modules(ROOT / package)) for package in PACKAGES}
    backend = sorted((ROOT / "ocl_backend").rglob("*.py"))
    found["torch.ocl"] = [_dotted(path) for path in backend if path.stem in TORCH_OCL]
    return found


def _modules(package: Path) -> list[str]:
    paths = [path.relative_to(ROOT) for path in package.rglob("*.py")]
    return [
        _dotted(ROOT / path)
        for path in paths
        if not SKIPPED & set(path.parts)
        and (path.stem == "__init__" or not path.stem.startswith("_"))
    ]


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _page(module: str) -> str:
    return f"{PLACEHOLDER}/{module.replace('.', '/')}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the placeholder in the navigation by a tree of packages and modules."""
    tree = [{package: _branch(package, names)} for package, names in public_modules().items()]
    config.nav = _replaced(config.nav, tree)
    return config


def _branch(package: str, modules: list[str]) -> list[dict[str, Any]]:
    """Return the entries of a package: its own page, its modules, and a branch per subpackage."""
    here = [name for name in modules if name == package or name.rpartition(".")[0] == package]
    inner = sorted({name for name in here if any(one.startswith(f"{name}.") for one in modules)})
    pages = [{name: _page(name)} for name in here if name == package or name not in inner]
    folders = [name for name in inner if name != package]
    if not here:  # modules that have no package in common
        return [{name: _page(name)} for name in modules]
    return pages + [
        {name: _branch(name, [one for one in modules if f"{one}.".startswith(f"{name}.")])}
        for name in folders
    ]


def _replaced(entry: Any, tree: list[Any]) -> Any:
    if isinstance(entry, list):
        return [_replaced(one, tree) for one in entry]
    if isinstance(entry, dict):
        return {title: _replaced(one, tree) for title, one in entry.items()}
    return tree if entry == PLACEHOLDER else entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page of one line for each module; mkdocstrings fills it from docstrings."""
    for modules in public_modules().values():
        for module in modules:
            files.append(File.generated(config, _page(module), content=f"::: {module}\n"))
    return files
