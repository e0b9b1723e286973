"""Templates keep loops and conditions; Python that computes text stands in modules, typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mako.template
import pytest

from oclgen.templates import Templates
from tests.home import ROOT

BLOCK = re.compile(r"<%!?(?=\s)(.*?)%>", re.DOTALL)
MOST_LINES = 30
TEMPLATES = [
    path for folder in ("oclgen", "ocl_backend") for path in sorted((ROOT / folder).rglob("*.mako"))
]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_template_has_much_python(template: Path) -> None:
    """All blocks of a template count: one that is cut in two is no shorter."""
    lines = sum(block.count("\n") for block in BLOCK.findall(template.read_text(encoding="utf-8")))
    assert lines <= MOST_LINES, (
        f"{template.name} has {lines} lines of Python in its blocks, more than {MOST_LINES}; "
        "what computes text belongs to a module beside the template"
    )


def test_one_template_asks_for_lines() -> None:
    """SPIR-V has no prefetch of a pointer: rusticl's compiler ends the process that meets one."""
    asking = [path.name for path in TEMPLATES if "__builtin_prefetch" in path.read_text("utf-8")]
    assert asking == ["ask_for.cl.mako"]


VALUES = {"vec": 4}


def no_compiler(*_: Any) -> None:
    raise AssertionError("compiled again")


def test_a_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Templates("oclgen", tmp_path).get("transpose.cl.mako").render_unicode(**VALUES)
    monkeypatch.setattr(mako.template, "_compile", no_compiler)
    again = Templates("oclgen", tmp_path).get("transpose.cl.mako").render_unicode(**VALUES)
    assert again == text


def test_what_is_damaged_or_cannot_be_kept_is_compiled(tmp_path: Path) -> None:
    text = Templates("oclgen", tmp_path).get("transpose.cl.mako").render_unicode(**VALUES)
    (module,) = tmp_path.rglob("transpose.cl.mako.py")
    module.write_text("nonsense (")
    (blocked := tmp_path / "file").write_text("")
    for folder in (tmp_path, blocked):
        again = Templates("oclgen", folder).get("transpose.cl.mako")
        assert again.render_unicode(**VALUES) == text


def test_modules_of_other_texts_go(tmp_path: Path) -> None:
    Templates("oclgen", tmp_path)
    (folder,) = (path for path in tmp_path.glob("oclgen-*/*"))
    (old := folder.with_name("old")).mkdir()
    folder.rename(tmp_path / "gone")
    Templates("oclgen", tmp_path)
    assert folder.is_dir()
    assert not old.exists()
