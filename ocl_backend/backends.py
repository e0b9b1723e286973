"""The module `torch.backends.ocl`, as torch.backends.cuda is: what is there, and how it rounds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from oclgen.lazy import lazily

if TYPE_CHECKING:
    from ocl_backend.dispatch.settings import conv, matmul
    from ocl_backend.runtime.devices import is_available

__all__ = ["conv", "is_available", "is_built", "matmul", "register"]

__getattr__ = lazily(
    __name__,
    {
        "conv": "ocl_backend.dispatch.settings",
        "is_available": "ocl_backend.runtime.devices",
        "matmul": "ocl_backend.dispatch.settings",
    },
)


def is_built() -> bool:
    """Return True: the device has been imported."""
    return True


def register() -> None:
    """Put this module in its place."""
    backends: Any = torch.backends
    backends.ocl = sys.modules["torch.backends.ocl"] = sys.modules[__name__]
