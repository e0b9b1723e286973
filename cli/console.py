"""Where the commands print; it holds no command."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_OF_FILES = 160
"""Columns where the output is no terminal: wide enough that tables are not folded."""


def console(*, aside: bool = False) -> Console:
    """Return a console on standard output as it is now (tests replace it).

    With `aside` it is on standard error: standard output is then left to a program that reads it.
    Texts are printed as they are: devices, drivers and other people's records name things, and
    square brackets or colons in them are no markup. A colour is `rich.text.Text` with a style.
    """
    stream = sys.stderr if aside else sys.stdout
    width = None if stream.isatty() else WIDTH_OF_FILES
    return Console(markup=False, emoji=False, highlight=False, width=width, file=stream)
