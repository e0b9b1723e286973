"""Reads the list of what torch's databases hold and the device does not do, each with its reason.

The list is strict: an entry that has become unnecessary fails its test.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LIST: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("torch_exceptions.toml").read_text()
)


def hold(kind: str, name: str, check: Callable[[], Any]) -> None:
    """Run `check`; what `[kind]` lists under `name` must fail it, everything else must pass."""
    reason = LIST[kind].get(name)
    if reason is None:
        check()
        return
    with pytest.raises((AssertionError, RuntimeError, TypeError, NotImplementedError)):
        check()


def sampled(database: list[Any], step: int) -> list[Any]:
    """Every entry where TORCH_CLASSES=all asks for it, else each `step`th, for some seconds."""
    return database if os.environ.get("TORCH_CLASSES") == "all" else database[::step]
