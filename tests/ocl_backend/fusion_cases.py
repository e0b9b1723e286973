"""What the tests of fusion share: commands of a call, results with fusion and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.ocl_backend.cpu_twin import ocl, place, relative


def names(function: Callable[[], Any]) -> list[str]:
    """The commands of a call that was made before."""
    function()
    with ocl.profile(file=None) as seen:
        function()
    return [command.name for command in seen.commands]


def both(function: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """The results with fusion and without."""
    torch.manual_seed(0)
    ours = function().cpu()
    with ocl.fusion(False):
        torch.manual_seed(0)
        return ours, function().cpu()


def same(function: Callable[[], Tensor], tolerance: float = 5e-6) -> None:
    ours, plain = both(function)
    assert torch.equal(ours.isnan(), plain.isnan())
    assert relative(ours.nan_to_num(), plain.nan_to_num()) <= tolerance


def normalisation(channels: int, device: Any, dtype: Any = torch.float32) -> nn.BatchNorm2d:
    """A layer in evaluation, with statistics that are not trivial."""
    torch.manual_seed(1)
    layer = nn.BatchNorm2d(channels).eval()
    for tensor in (layer.weight, layer.bias, layer.running_mean):
        assert tensor is not None
        nn.init.uniform_(tensor, -1, 1)
    assert layer.running_var is not None
    nn.init.uniform_(layer.running_var, 0.5, 2)
    return layer.to(place(device), dtype)


def only_one(device: Any) -> None:
    if device.index > 0:
        pytest.skip("what is held back does not depend on the device")


def small(device: Any, *shape: int, dtype: Any = torch.float32) -> Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(shape).to(place(device), dtype)
