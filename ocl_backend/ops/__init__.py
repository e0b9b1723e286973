"""The operators of the device, grouped by kind; importing the package registers nothing.

Each module names its implementations in `OPERATORS`; this is the one list of the modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from ocl_backend import recall
from ocl_backend.fallback import serving

MODULES = (
    "pointwise",
    "pairs",
    "complex",
    "fft",
    "reductions",
    "softmax",
    "factories",
    "indexing",
    "embedding_bag",
    "shape",
    "scans",
    "sorting",
    "order",
    "unique",
    "histograms",
    "distances",
    "random",
    "matmul",
    "convolution",
    "pooling",
    "pooling_windows",
    "grid_sample",
    "upsampling",
    "batch_norm",
    "layer_norm",
    "attention",
    "transformer",
    "recurrent",
    "loss",
    "optim",
    "amp",
    "decompositions",
)


def register() -> None:
    """Register every operator of every module with torch, for the device's dispatch key.

    Where a version of torch decomposes what has a kernel here, the kernel serves.
    """
    rescues = import_module(f"{__name__}.complex").RESCUES
    registered: set[str] = set()
    for name in MODULES:
        for operator, implementation in import_module(f"{__name__}.{name}").OPERATORS.items():
            if name == "decompositions" and operator in registered:
                continue
            registered.add(operator)
            kernel = serving(overload(operator), implementation, rescues.get(operator))
            recall.register(overload(operator), kernel)


def overload(operator: str) -> Any:
    """Return torch's overload called `operator`, such as `add.Tensor`."""
    name, _, label = operator.partition(".")
    return getattr(getattr(torch.ops.aten, name), label or "default")
