"""The module `torch.backends.ocl`, as torch.backends.cuda is: what is there, and how it rounds."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ocl_backend.dispatch.settings import conv, matmul
from ocl_backend.runtime.devices import is_available

__all__ = ["conv", "is_available", "is_built", "matmul", "register"]


def is_built() -> bool:
    """Return True: the device has been imported."""
    return True


def register() -> None:
    """Put this module in its place."""
    backends: Any = torch.backends
    backends.ocl = sys.modules["torch.backends.ocl"] = sys.modules[__name__]
