"""Warns if a library would silently compute on the CPU, because it has a fixed list of devices.

A module of the library stands for its use: transformers imports its pipelines and its Trainer when
a program asks for them. The warning comes once, when that module is imported, and names the import
that makes the library choose the device.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

OURS = "ocl_backend.libraries.transformers"
TRAINER = "transformers.trainer"
MODULES = {
    "transformers.pipelines.base": "a pipeline without a device, or with an index,",
    TRAINER: "transformers' Trainer",
}
"""What would compute on the CPU, by the module whose import shows its use."""

WITH_TRAINER = "sentence_transformers"
"""A library that imports the Trainer with itself, also for programs that train nothing."""


class _Notices(MetaPathFinder):
    """Hears of every module that is looked for, and finds none."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname in MODULES:
            _warn(fullname)


def _warn(module: str) -> None:
    told = module == TRAINER and (
        "ACCELERATE_TORCH_DEVICE" in os.environ or WITH_TRAINER in sys.modules
    )
    if not told and OURS not in sys.modules:
        warnings.warn(
            f"{MODULES[module]} computes on the CPU: import {OURS} first, and it takes ocl",
            stacklevel=2,
        )


def register() -> None:
    """Warn of modules that are imported from now on, and of those that are there."""
    for module in MODULES.keys() & sys.modules.keys():
        _warn(module)
    sys.meta_path.insert(0, _Notices())
