"""Renders the HTML templates of the page and the report; every value is escaped by default.

`tuned_db.service.pages` and `tuned_db.views.report` decide what a template gets.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from mako.lookup import TemplateLookup

_TEMPLATES = resources.files("tuned_db.views").joinpath("templates")


def render(template: str, **values: object) -> str:
    """Return the text of `templates/{template}.html.mako`; undefined names are errors."""
    text: str = _lookup().get_template(f"{template}.html.mako").render_unicode(**values)
    return text


def style() -> str:
    """Return the style sheet of all pages."""
    return _TEMPLATES.joinpath("style.css").read_text(encoding="utf-8")


@cache
def _lookup() -> TemplateLookup:
    return TemplateLookup(
        [str(_TEMPLATES)], strict_undefined=True, default_filters=["h"], filesystem_checks=False
    )
