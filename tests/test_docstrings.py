"""Public docstrings explain several parameters under `Args:`, and errors under `Raises:`.

Ruff's D417 sees to it that an `Args:` names every parameter. Not asked for: commands, whose
docstring is their help; operators (`ocl_backend/ops`), whose arguments and errors are torch's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("oclgen", "search_spaces", "tuned_db", "ocl_backend", "cli", "benchmarks")
OPERATORS = ROOT / "ocl_backend/ops"
SEVERAL = 3
"""Parameters from which on a function explains them."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[Path]:
    """Return the public modules that are asked."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found += [ROOT / "ocl_autoload.py"]
    public = [path for path in found if path.stem == "__init__" or path.stem[0] != "_"]
    return [path for path in public if OPERATORS not in path.parents]


def functions(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function, bool]]:
    """Yield name, definition and whether it is a method, of public functions at any `if`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from functions([*node.body, *node.orelse], owner)
        elif isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            name = f"{owner}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from functions(node.body, f"{name}.")
            else:
                yield name, node, bool(owner)


def decorators(function: Function) -> set[str]:
    """Return the last names of a function's decorators."""
    return {ast.unparse(one).split("(")[0].split(".")[-1] for one in function.decorator_list}


def parameters(function: Function, is_method: bool) -> int:
    """Return how many parameters a caller gives, those of `*args` and `**kwargs` left out."""
    given = function.args
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return count - (is_method and "staticmethod" not in decorators(function))


def raises(node: ast.AST) -> bool:
    """Say whether a function itself raises; that of an abstract one stands for its subclasses."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            if ast.unparse(child.exc) != "NotImplementedError":
                return True
        elif raises(child):
            return True
    return False


def missing(text: str) -> Iterator[str]:
    """Yield "name: section" of what a module's docstrings lack."""
    for name, function, is_method in functions(ast.parse(text).body):
        if "command" in decorators(function):
            continue
        sections = (ast.get_docstring(function) or "").splitlines()
        if parameters(function, is_method) >= SEVERAL and "Args:" not in sections:
            yield f"{name}: Args"
        if raises(function) and "Raises:" not in sections:
            yield f"{name}: Raises"


def test_parameters_and_errors_are_explained() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {one}"
        for path in modules()
        for one in missing(path.read_text())
    }
    assert found == set(), "write these sections, see CONTRIBUTING.md"


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("def f(a, b, c): pass", ["f: Args"]),
        ("def f(a, *, b, c): pass", ["f: Args"]),
        ("def f(a, b, *c): pass", []),
        ("def _f(a, b, c): raise ValueError", []),
        ('def f(a, b, c):\n    """X.\n\n    Args:\n        a: b\n    """', []),
        ("class A:\n    def f(self, a, b): pass", []),
        ("class A:\n    @staticmethod\n    def f(a, b, c): pass", ["A.f: Args"]),
        (
            "class A:\n    async def f(self, a, b, c): raise ValueError",
            ["A.f: Args", "A.f: Raises"],
        ),
        (
            "if x:\n    def f():\n        for a in b:\n            raise E(a) from None",
            ["f: Raises"],
        ),
        ("def f():\n    def g(): raise ValueError", []),
        ("def f():\n    try: pass\n    except E: raise", []),
        ("class A:\n    def f(self): raise NotImplementedError", []),
        ("@group.command('f')\ndef f(a, b, c): raise ValueError", []),
    ],
)
def test_what_a_docstring_lacks_is_found(text: str, lacks: list[str]) -> None:
    assert list(missing(text)) == lacks
