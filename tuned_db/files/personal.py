"""Removes the person and the machine from a text before it is shared."""

from __future__ import annotations

import getpass
import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

_PATHS = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.+~@-]+){2,}[/\\]?")
SHORTEST = 3
"""Letters of a name that is looked for: shorter ones are words of every message."""


def without_names(text: str) -> str:
    """Return a text without folders, the user's name and the machine's: compilers tell paths."""
    text = _PATHS.sub("PATH", text)
    for name in _names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "NAME", text)
    return text


@cache
def _names() -> tuple[str, ...]:
    """Return what this process knows of the person and the machine, the longest first."""
    found = {platform.node(), platform.node().split(".")[0], Path.home().name}
    with suppress(KeyError, OSError):  # a user without a name, as in some containers
        found.add(getpass.getuser())
    return tuple(sorted((one for one in found if len(one) >= SHORTEST), key=len, reverse=True))
