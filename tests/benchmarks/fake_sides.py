"""Sides that measure nothing, in a module that starts fast in a process of its own."""

from __future__ import annotations

import os
import time
from typing import Any

from sides import Prepare, Prepared


def fake(name: str, ms: float) -> Prepare:
    """A side that answers at once, or does what a task's words ask of it."""

    def prepare(kind: str, what: dict[str, Any]) -> Prepared:
        match what.get(name):
            case "raises":
                raise ValueError("it does not fit")
            case "dies":
                os._exit(3)
            case "hangs":
                time.sleep(60)
        return Prepared({"variant": "v"} if name == "ours" else {}, {name: lambda: [ms] * 3})

    return prepare


def refuse() -> Prepare:
    raise OSError("no driver")
