"""MkDocs hook that offers each script of `examples` as a notebook, too, and lists them on a page.

A notebook is its script in cells: what it is, the code, and the call of `main` if there is one.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
MARK = "{{ examples }}"
LAST = '\n\nif __name__ == "__main__":\n'


def notebook(text: str) -> dict[str, Any]:
    """Return the notebook (format 4) of a script that begins with a docstring."""
    body, _, call = text.partition(LAST)
    about = ast.get_docstring(ast.parse(text)) or ""
    code = body.split('"""', 2)[2].strip()
    calls = "\n".join(line.removeprefix("    ") for line in call.rstrip().splitlines())
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [
            _cell("markdown", about),
            *(_cell("code", part) for part in (code, calls) if part),
        ],
    }


def _cell(kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": text}
    cell["id"] = f"{kind}-{len(text)}"
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def table() -> str:
    """Return a table of all examples with links to script and notebook."""
    lines = ["| what it does | files |", "|---|---|"]
    for path in EXAMPLES:
        about = ast.get_docstring(ast.parse(path.read_text())) or ""
        links = f"[script](../examples/{path.name}) · [notebook](../examples/{path.stem}.ipynb)"
        first = " ".join(about.partition("\n\n")[0].split())
        lines.append(f"| {first} | {links} |")
    return "\n".join(lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the scripts and their notebooks to the site."""
    for path in EXAMPLES:
        text = path.read_text()
        made = json.dumps(notebook(text), indent=1)
        for name, content in ((path.name, text), (f"{path.stem}.ipynb", made)):
            files.append(File.generated(config, f"examples/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the table where a page asks for it."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown
