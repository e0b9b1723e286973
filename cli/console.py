"""Where the commands print; it holds no command."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_OF_FILES = 160
"""Columns where the output is no terminal: wide enough that tables are not folded."""


def console() -> Console:
    """Return a console on standard output as it is now (tests replace it)."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
