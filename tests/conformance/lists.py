"""Reads what is declared of operators: falling back, unsupported, without samples, incomparable.

It holds no rule about how an operator did; see `cases`.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def declared(kind: str) -> dict[str, str]:
    """Return the reason of each name in `<kind>.toml`."""
    table = tomllib.loads((HERE / f"{kind}.toml").read_text())
    return {name: reason for reason, names in table.items() for name in names}


def entry(kind: str, name: str) -> str | None:
    """Return the entry of `kind` that speaks of `name`, or None."""
    return next((known for known in declared(kind) if fnmatchcase(name, known)), None)
