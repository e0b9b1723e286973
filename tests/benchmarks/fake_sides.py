"""Sides that measure nothing, in a module that starts fast in a process of its own."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.timing import Prepare, Prepared, Samples


def fake(name: str, ms: float) -> Prepare:
    """A side that answers at once, or does what a task's words ask of it."""

    def prepare(kind: str, what: dict[str, Any]) -> Prepared:
        match what.get(name):
            case "raises":
                raise ValueError("it does not fit")
            case "loses its context":
                raise RuntimeError("CUDA error: device-side assert triggered")
            case "dies":
                os._exit(3)
            case "hangs":
                time.sleep(60)
        contestants: dict[str, Samples] = {name: lambda: [ms] * 3}
        if what.get(name) == "brings one that fails":
            contestants["guest"] = refuse
        return Prepared({"variant": "v"} if name == "ours" else {}, contestants)

    return prepare


def refuse() -> Any:
    """Fail, at the start of a side or in one of its turns."""
    raise OSError("no driver")


def leave(case: Any, device: str) -> None:
    """Leave a file, and fail or die after that if the case says so."""
    path, outcome = case
    path.write_text(device)
    if outcome == "fails":
        raise KeyError(device)
    if outcome == "dies":
        os._exit(3)
