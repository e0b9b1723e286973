"""Runs one function on the CPU and on a device, with gradients, and compares everything."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

import ocl_backend  # noqa: F401  (registers the device)

TOLERANCE = 1e-5


def place(device: Any) -> torch.device:
    return torch.device("ocl", device.index)


def relative(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference over the largest value."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    if theirs.numel() == 0:
        return 0.0
    scale = theirs.detach().double().abs().max().clamp_min(1e-30)
    return float((ours.detach().cpu().double() - theirs.detach().double()).abs().max() / scale)


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
    torch.ocl.reset_fallbacks()
    theirs = run(function, list(tensors), 1)
    ours = run(function, [t.to(place(device)) for t in tensors], 1)
    assert len(ours) == len(theirs)
    errors = [relative(o, t) for o, t in zip(ours, theirs, strict=True)]
    assert max(errors) <= tolerance, f"relative errors of result and gradients: {errors}"
    assert torch.ocl.fallbacks() == {}


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
        assert relative(ours, theirs) <= tolerance, f"gradient of {name}"
