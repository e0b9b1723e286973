"""Runs one function on the CPU and on a device and compares its results, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import ocl_backend  # noqa: F401  (registers the device)


def place(device: Any) -> torch.device:
    return torch.device("ocl", device.index)


def sample(device: Any, names: Iterable[str], name: str, every: int = 3) -> None:
    """Skip most cases on devices besides the first: compilers differ, the text does not."""
    if device.index and list(names).index(name) % every:
        pytest.skip(f"devices besides the first run one case in {every}")


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Fail where shapes, dtypes or values differ; a NaN equals a NaN."""
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b, tolerance)
        return
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(
        ours.detach().cpu(), theirs.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def agree(
    device: Any, function: Callable[..., Any], *tensors: Tensor, tolerance: float = 1e-5
) -> None:
    """Fail where `function` differs on the device, or where an operator ran on the CPU."""
    theirs = function(*tensors)
    torch.ocl.reset_fallbacks()
    ours = function(*(tensor.to(place(device)) for tensor in tensors))
    assert torch.ocl.fallbacks() == {}
    assert_same(ours, theirs, tolerance)
