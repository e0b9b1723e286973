"""Lets torch's databases of tests find their caller without reading source files.

For each set of samples torch asks `inspect.stack()` for the test that wants them. That looks up the
source lines of all frames among all modules: 0.1 s with the thousands that a run has imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest import TestCase

from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

theirs: Callable[[], Callable[..., Any] | None] | None = getattr(
    common_utils, "extract_test_fn", None
)
"""What torch asks, in versions that do."""


def caller() -> Callable[..., Any] | None:
    """Return the method of the innermost `TestCase` that runs, or None, as torch does."""
    frame = sys._getframe(1)
    while frame is not None:
        asking = frame.f_locals.get("self")
        if isinstance(asking, TestCase):
            *_, kind, name = asking.id().rsplit(".", 2)
            if kind == type(asking).__name__ and name.startswith("test"):
                method: Callable[..., Any] = getattr(asking, name).__func__
                return method
        frame = frame.f_back  # type: ignore[assignment]
    return None


def walk() -> None:
    """Replace torch's own function, where it has one, by `caller`."""
    for module in (common_utils, core) if theirs else ():
        vars(module)["extract_test_fn"] = caller
