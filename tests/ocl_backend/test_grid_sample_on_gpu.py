"""Sampling at a grid where work-items of a GPU share out channels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import launch
from ocl_backend.ops.image import grid_sample
from tests.ocl_backend.cpu_twin import agree


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("channels", [1, 7, 19])
def test_channels_are_shared_out(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, mode: str, channels: int
) -> None:
    x, grid = torch.randn(2, channels, 5, 6), torch.rand(2, 3, 7, 2) * 3 - 1.5
    pixels = x.to(memory_format=torch.channels_last)
    parts: list[int] = []

    def counted(kernel: Any, shape: Any, *given: Any) -> None:
        parts.append(shape[0])
        launch(kernel, shape, *given)

    monkeypatch.setattr(grid_sample, "launch", counted)
    for work_items in (1, 40, 10_000):
        monkeypatch.setattr(vectors, "busy_items", lambda _, n=work_items: n)
        agree(gpu, lambda x, g: functional.grid_sample(x, g, mode, "zeros", False), x, grid)
        agree(gpu, lambda x, g: functional.grid_sample(x, g, mode, "border", False), pixels, grid)
    assert parts[0] == 1
    assert parts[-1] == -(-channels // grid_sample.AT_ONCE)
    assert parts == sorted(parts)


def test_items_outside_of_the_image_are_not_multiplied(gpu: Any) -> None:
    x = torch.full((1, 6, 4, 4), torch.inf)
    grid = torch.tensor([[[[-2.0, 0.0], [3.0, 3.0], [0.1, 0.1]]]])
    agree(gpu, lambda x, g: functional.grid_sample(x, g, align_corners=False), x, grid)
