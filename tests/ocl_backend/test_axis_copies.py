"""Padding and resizing by copies on GPUs, whose work-items have neighbours of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor
from torch.nn.functional import interpolate, pad

from tests.ocl_backend.cpu_twin import agree, ocl, place

COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "reflected lines": lambda x: pad(x[0, 0], (3, 2), mode="reflect"),
    "lines of the other end": lambda x: pad(x[0, 0], (3, 5), mode="circular"),
    "planes of the other end": lambda x: pad(x[0], (1, 2, 3, 1), mode="circular"),
    "cut planes": lambda x: pad(x[0], (-1, 2, 3, -1), mode="replicate"),
    "planes of one column": lambda x: pad(x[0, ..., :1], (0, 0, 1, 1), mode="replicate"),
    "volumes": lambda x: pad(x, (1, 2, 0, 1, 2, 1), mode="replicate"),
    "volumes of the other end": lambda x: pad(x, (1, 2, 0, 1, 2, 1), mode="circular"),
    "a view": lambda x: pad(x[:, :, 1].transpose(1, 2), (1, 2, 0, 1), mode="reflect"),
    "channels last": lambda x: pad(
        x[0].to(memory_format=torch.channels_last), (1, 2, 0, 1), mode="reflect"
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", COPIES)
def test_copies_agree_with_the_cpu(gpu: Any, name: str) -> None:
    x = torch.randn(2, 3, 4, 6, 7)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        agree(gpu, COPIES[name], x.to(dtype))


def test_resizing_to_the_nearest_item(gpu: Any) -> None:
    x = torch.randn(2, 3, 5, 7)
    agree(gpu, lambda x: interpolate(x, size=(9, 11), mode="nearest-exact"), x)
    agree(gpu, lambda x: interpolate(x, scale_factor=2), x)


def test_copies_are_one_launch_of_neighbours(gpu: Any) -> None:
    x = torch.randn(2, 3, 14, 14).to(place(gpu))
    pad(x, (2, 2, 2, 2), mode="circular")
    with ocl.profile(file=None) as seen:
        pad(x, (2, 2, 2, 2), mode="circular")
    assert [command.name for command in seen.commands] == ["copy_items_kernel"]
