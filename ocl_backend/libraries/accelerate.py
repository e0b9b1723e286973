"""Makes accelerate, and transformers' Trainer with it, compute on the device: import it first.

accelerate has a list of devices. An environment variable can name another one, and processes that
accelerate starts inherit it.
"""

from __future__ import annotations

import os
from typing import Any

import torch

import ocl_backend  # noqa: F401 (registers the device)

_ocl: Any = torch.get_device_module("ocl")


def prefer_device() -> None:
    """Name the device to accelerate, unless another is named or torch has CUDA."""
    if not torch.cuda.is_available() and _ocl.is_available():
        os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "ocl")


prefer_device()
