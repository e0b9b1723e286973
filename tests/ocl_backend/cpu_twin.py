"""Runs one function on the CPU and on a device and compares, with gradients or without."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401  (registers the device)

TOLERANCE = 1e-5
ocl: Any = torch.get_device_module("ocl")


def place(device: Any) -> torch.device:
    """The torch device of an OpenCL device."""
    return torch.device("ocl", device.index)


def assert_same(ours: Any, theirs: Any, tolerance: float = TOLERANCE) -> None:
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
    device: Any, function: Callable[..., Any], *tensors: Tensor, tolerance: float = TOLERANCE
) -> None:
    """Fail where `function` differs on the device, or where an operator ran on the CPU."""
    theirs = function(*tensors)
    ocl.reset_fallbacks()
    ours = function(*(tensor.to(place(device)) for tensor in tensors))
    assert ocl.fallbacks() == {}
    assert_same(ours, theirs, tolerance)


def refuse_alike(device: Any, function: Callable[..., Any], *tensors: Tensor) -> None:
    """Fail where `function` does not raise the CPU's error, to the end of its first line."""
    with pytest.raises(Exception) as theirs:
        function(*tensors)
    with pytest.raises(theirs.type) as ours:
        function(*(tensor.to(place(device)) for tensor in tensors))
    told, expected = (str(error.value).partition("\n")[0] for error in (ours, theirs))
    assert told == expected


def relative(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference over the largest value; a NaN differs by infinity from a number."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    if theirs.numel() == 0:
        return 0.0
    found, wanted = ours.detach().cpu().double(), theirs.detach().double()
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    differences = (found - wanted).abs().nan_to_num(torch.inf).masked_fill(same, 0)
    return float(differences.max() / wanted.abs().nan_to_num(0, 0).max().clamp_min(1e-30))


def run(function: Callable[..., Tensor], tensors: list[Tensor], seed: int) -> list[Tensor]:
    """The result and the gradients of all floating inputs for one random output gradient."""
    leaves = [t.detach().clone() for t in tensors]
    learns = [leaf.requires_grad_() for leaf in leaves if leaf.is_floating_point()]
    result = function(*leaves)
    if not (result.is_floating_point() and result.requires_grad):
        return [result]
    torch.manual_seed(seed)
    grad = torch.randn(result.shape).to(result.dtype).to(result.device)
    result.backward(grad)
    return [result, *(leaf.grad for leaf in learns if leaf.grad is not None)]


def check(
    device: Any, function: Callable[..., Tensor], *tensors: Tensor, tolerance: float = TOLERANCE
) -> None:
    """Fail where result or gradients on the device differ, or where anything ran on the CPU."""
    ocl.reset_fallbacks()
    theirs = run(function, list(tensors), 1)
    ours = run(function, [t.to(place(device)) for t in tensors], 1)
    assert len(ours) == len(theirs)
    errors = [relative(o, t) for o, t in zip(ours, theirs, strict=True)]
    assert max(errors) <= tolerance, f"relative errors of result and gradients: {errors}"
    assert ocl.fallbacks() == {}


def check_module(device: Any, module: nn.Module, x: Tensor, tolerance: float = TOLERANCE) -> None:
    """As `check`, for a module: its parameters' gradients and its buffers too."""
    module = deepcopy(module)  # gradients and averages start anew for every device
    twin = deepcopy(module).to(place(device))
    by_device = {"cpu": module, "ocl": twin}
    check(device, lambda x: by_device[x.device.type](x), x, tolerance=tolerance)
    state = twin.state_dict()
    for name, theirs in module.state_dict().items():
        assert relative(state[name], theirs) <= tolerance, name
    for name, parameter in module.named_parameters():
        ours, theirs = twin.get_parameter(name).grad, parameter.grad
        assert ours is not None
        assert theirs is not None
        assert relative(ours, theirs) <= tolerance, f"gradient of {name}"
