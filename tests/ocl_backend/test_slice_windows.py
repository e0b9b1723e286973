"""Windows of slices, their sums, and mirrored copies: what GPUs run, here on any device."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ocl_backend  # noqa: F401 (registers the device)
from ocl_backend.ops.conv import slice_windows
from ocl_backend.ops.conv.slice_windows import Windows
from ocl_backend.ops.tensor.copies import mirrored_copy
from tests.ocl_backend.cpu_twin import place

SHAPE = (2, 3, 6, 4, 5)
WINDOWS = (Windows(6, 3, 1, 1, 1), Windows(3, 2, 2, 0, 1), Windows(4, 3, 1, 1, 2))


def unfolded(x: Any, windows: Windows, pixels: bool) -> Any:
    """Windows by torch's own padding and slices."""
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, windows.padding, windows.padding))
    images = [
        [padded[:, :, w * windows.stride + t * windows.dilation] for t in range(windows.taps)]
        for w in range(windows.number)
    ]
    dim = 2 if pixels else 3
    found = torch.stack([torch.stack(taps, dim - 1) for taps in images], 1)
    return found.reshape(len(x) * windows.number, -1, *x.shape[3:])


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_are_those_of_padded_slices(device: Any, windows: Windows, pixels: bool) -> None:
    x = torch.randn(SHAPE)
    got = slice_windows.images(x.to(place(device)), windows, pixels).cpu()
    assert torch.equal(got, unfolded(x, windows, pixels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_sums_are_the_gradient_of_windows(
    device: Any, windows: Windows, pixels: bool, dtype: Any
) -> None:
    x = torch.randn(SHAPE, requires_grad=True)
    columns = unfolded(x, windows, pixels)
    grads = torch.randn(columns.shape).to(dtype)
    columns.backward(grads.float())
    assert x.grad is not None
    got = slice_windows.sums(grads.to(place(device)), SHAPE, windows, pixels).cpu()
    torch.testing.assert_close(got, x.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_mirrored_copy_is_a_flip(device: Any, dim: int, dtype: Any) -> None:
    x = torch.randn(6, 8, 12).to(dtype)
    source = x.to(place(device)).movedim(0, 1)
    target = torch.empty_like(source, memory_format=torch.contiguous_format)
    mirrored_copy(source, target, dim)
    assert torch.equal(target.cpu(), x.movedim(0, 1).flip(dim))
