"""MkDocs hook that leaves shapes in docstrings and in commands' help as they are.

`[tiles][tile]` is an array's layout there; Markdown reads a link with a target of that name.
"""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

FROM_CODE = "reference/"
"""Pages whose text comes from docstrings; links between them are marked as optional."""
_LINK = re.compile(r"<autoref (?P<attributes>[^>]*)>(?P<title>.*?)</autoref>", re.DOTALL)
_IDENTIFIER = re.compile(r'\bidentifier="([^"]*)"')


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn what was read as a link to a target back into the text in brackets."""
    return _LINK.sub(_as_text, html) if page.file.src_uri.startswith(FROM_CODE) else html


def _as_text(link: re.Match[str]) -> str:
    target = _IDENTIFIER.search(link["attributes"])
    if target is None or re.search(r"\boptional\b", link["attributes"]):
        return link[0]
    return f"[{link['title']}][{target[1]}]"
