"""Padding by a constant, in one launch on processors, against torch's CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place

pad = torch.nn.functional.pad
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8,
    torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip


def check(x: Any, widths: Sequence[int], value: Any, where: Any) -> None:
    """Compare values, dtype and strides, also of a call that is recalled."""
    there, theirs = x.to(where), pad(x, widths, value=value)
    for _ in range(3):
        ours = pad(there, widths, value=value)
    assert torch.equal(ours.cpu(), theirs)
    assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [0, 1, 3])
def test_items_of_every_dtype_are_moved(device: Any, dtype: Any, value: int) -> None:
    x = torch.randn(2, 3, 5, 37).mul(9).to(dtype)
    check(x, (1, 2, 0, 3), value, place(device))


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((7,), (3, 0)),
        ((3, 5000), (9000, 1)),
        ((2, 3, 4), (0, 0, 2, 1)),  # rows are joined
        ((2, 3, 4), (0, 0, 0, 0, 1, 2)),
        ((2, 3, 4, 5), (1, 0, 0, 2, 3, 0, 0, 1)),
        ((2, 1, 3, 2, 17), (16, 33, 0, 1, 2, 2)),
        ((4, 40), (-3, 2)),
        ((4, 40), (-3, -2, 0, -1)),
        ((4, 40), (0, 0)),
        ((0, 3), (1, 1)),
        ((2, 0), (1, 1, 1, 0)),
        ((), ()),
    ],
)
def test_any_rank_and_widths(device: Any, shape: tuple[int, ...], widths: Any) -> None:
    check(torch.randn(shape), widths, float("-inf"), place(device))


def test_any_layout(device: Any) -> None:
    x = torch.randn(2, 6, 9, 20)
    last = x.contiguous(memory_format=torch.channels_last)
    for given in (last, x.mT, x[..., 3:], x[:, ::2], x[:1].expand(2, -1, -1, -1)):
        there = x.to(place(device))
        same = {
            id(last): there.contiguous(memory_format=torch.channels_last)
        }.get(id(given), given.to(place(device)))  # fmt: skip
        assert torch.equal(pad(same, (1, 2, 3, 4)).cpu(), pad(given, (1, 2, 3, 4)))
        assert pad(same, (1, 2, 3, 4)).is_contiguous(
            memory_format=torch.channels_last
        ) == pad(given, (1, 2, 3, 4)).is_contiguous(memory_format=torch.channels_last)  # fmt: skip


def test_a_processor_needs_one_launch(device: Any) -> None:
    if device.limits.kind != "cpu":
        pytest.skip("a GPU fills and copies")
    x = torch.randn(2, 3, 8, 8, device=place(device))
    with torch.ocl.profile(file=None) as seen:
        pad(x, (1, 1, 1, 1))
        torch.ocl.synchronize(place(device))
    assert [command.name for command in seen.commands] == ["constant_pad_kernel"]


def test_gradients_outputs_and_errors(device: Any) -> None:
    x = torch.randn(2, 5, device=place(device), requires_grad=True)
    (grad,) = torch.autograd.grad(pad(x, (2, 1, 0, 3), value=2.0).square().sum(), x)
    assert torch.equal(grad, 2 * x)
    out = torch.empty(0, device=place(device))
    torch.constant_pad_nd(x.detach(), [1, 0], 4)
    torch.ops.aten.constant_pad_nd.out(x.detach(), [1, 0], 4, out=out)
    assert torch.equal(out.cpu(), pad(x.detach().cpu(), (1, 0), value=4))
    for widths in ((1,), (1, 1, 1, 1, 1, 1), (-4, -4)):
        with pytest.raises(RuntimeError):
            pad(x, widths)
