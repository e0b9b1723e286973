"""Templates keep loops and conditions; Python that computes text stands in modules, typed."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(str(resources.files("oclgen")))
BLOCK = re.compile(r"<%!?(?=\s)(.*?)%>", re.DOTALL)
MOST_LINES = 20


@pytest.mark.parametrize(
    "template", sorted(ROOT.rglob("*.mako")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_block_of_python_is_long(template: Path) -> None:
    longest = max((block.count("\n") for block in BLOCK.findall(template.read_text())), default=0)
    assert longest <= MOST_LINES, (
        f"{template.name} has {longest} lines of Python in a block, more than {MOST_LINES}; "
        "functions that write text belong to a module beside the template"
    )
