"""Names that a package offers but other modules define: a module is imported when a name is used.

So a package can offer names that take a third of a second to import, and only their users wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return what is to be the `__getattr__` of a module (PEP 562); it keeps what it has fetched.

    Args:
        module: its `__name__`.
        places: by name the module that defines what has this name there.
    """

    def fetch(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(places[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return fetch
