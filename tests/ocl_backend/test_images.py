"""Operators on images in all layouts against the CPU: sizes, padding, means, maxima and norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ocl_backend.kernels import axis_sums
from ocl_backend.kernels.axis_taps import means, same
from ocl_backend.kernels.windows import Regular
from tests.ocl_backend.cpu_twin import check, check_module, place
from tests.ocl_backend.fusion_cases import names

NARROW = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "cut out": lambda x: x[..., 2:-1],
    "turned": lambda x: x.mT,
}
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: functional.interpolate(x, (7, 40)),
    "nearest up": lambda x: functional.interpolate(x, scale_factor=2.3, mode="nearest-exact"),
    "bilinear": lambda x: functional.interpolate(x, (30, 11), mode="bilinear"),
    "aligned": lambda x: functional.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True
    ),
    "bicubic": lambda x: functional.interpolate(x, (9, 37), mode="bicubic"),
    "reflected": lambda x: functional.pad(x, (3, 1, 0, 2), "reflect"),
    "replicated": lambda x: functional.pad(x, (0, 4, 2, -1), "replicate"),
    "means": lambda x: functional.avg_pool2d(x, (3, 2), (2, 1), 1, ceil_mode=True),
    "divided": lambda x: functional.avg_pool2d(x, 3, count_include_pad=False, divisor_override=5),
    "adaptive": lambda x: functional.adaptive_avg_pool2d(x, (5, 26)),
    "maxima": lambda x: functional.max_pool2d(x, 3, 1, 1),
    "tiles": lambda x: functional.max_pool2d(x, 2),
    "few": lambda x: functional.max_pool2d(x, 7, 7, 3, dilation=2),
    "groups": lambda x: functional.group_norm(x, 1),
}


@pytest.mark.parametrize("channels", [3, 24])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.sampled(6)
def test_images(device: Any, call: str, layout: str, channels: int) -> None:
    """Both results and gradients, in three dtypes; 24 channels fill vectors, 3 do not."""
    image = torch.randn(2, channels, 19, 21)
    for dtype, tolerance in NARROW.items():
        check(device, CALLS[call], LAYOUTS[layout](image.to(dtype)), tolerance=tolerance)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 7, 1), (1, 1, 40, 33), (2, 1, 3, 4, 5)], ids=str)
def test_grids_of_affine_maps_are_one_launch(
    device: Any, size: tuple[int, ...], aligned: bool
) -> None:
    rank = len(size) - 2
    theta = torch.randn(size[0], rank, rank + 1)
    narrow = NARROW if 1 not in size[2:] else {torch.float32: 1e-5}  # the CPU refuses halves there
    for dtype, tolerance in narrow.items():
        given = theta.to(dtype).mT.contiguous().mT

        def grid(x: Tensor) -> Tensor:
            return functional.affine_grid(x, [*size], align_corners=aligned)

        check(device, grid, given, tolerance=2 * tolerance)
        there = given.contiguous().to(place(device))
        with torch.no_grad():
            assert names(partial(grid, there)) == ["affine_grid_kernel"]
    with pytest.raises(RuntimeError):
        torch.affine_grid_generator(theta.to(place(device))[:, :1], size, aligned)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(device: Any, rank: int) -> None:
    x = torch.randn(2, 9, *(20, 6, 5)[:rank])
    linear = {1: "linear", 3: "trilinear"}[rank]
    size = (13, 11, 8)[:rank]
    check(device, lambda x: functional.interpolate(x, size, mode=linear), x)
    check(device, lambda x: functional.interpolate(x, size, mode="nearest"), x)
    check(device, lambda x: functional.pad(x, (2, 1) * rank, "reflect"), x)
    pool: Any = {1: functional.avg_pool1d, 3: functional.avg_pool3d}[rank]
    check(device, lambda x: pool(x, 3, 2, 1), x)
    if rank == 3:
        last = x.contiguous(memory_format=torch.channels_last_3d)
        check(device, lambda x: functional.interpolate(x, size, mode=linear), last)


def test_copies_keep_bits_of_any_dtype(device: Any) -> None:
    for dtype in (torch.float64, torch.complex64, torch.complex128):
        x = torch.randn(1, 2, 9, 40).to(dtype)
        there = functional.pad(x.to(place(device)), (1, 2, 3, 0), "replicate")
        assert torch.equal(there.cpu(), functional.pad(x, (1, 2, 3, 0), "replicate"))
    bytes_ = torch.randint(0, 256, (1, 2, 9, 40), dtype=torch.uint8)
    there = functional.interpolate(bytes_.to(place(device)), (5, 70))
    assert torch.equal(there.cpu(), functional.interpolate(bytes_, (5, 70)))


@pytest.mark.parametrize("pixels", [False, True])
def test_kernels_of_rows_and_of_items_agree(device: Any, pixels: bool) -> None:
    """A GPU's work-items make single items, a processor's make rows."""
    x = torch.randn(2, 16, 1, 10, 23, device=place(device))
    along = (
        axis_sums.Along(same, (1,)),
        axis_sums.Along(means, (Regular(3, 1), 10, 8)),
        axis_sums.Along(means, (Regular(3, 1), 25, 23)).gradient(),
    )
    form = torch.channels_last_3d if pixels else torch.contiguous_format
    shape = (2, 16, 1, 8, 25)
    made = [torch.empty(shape, device=x.device, memory_format=form) for _ in range(2)]
    axis_sums._by_rows(x.contiguous(memory_format=form), along, made[0])
    axis_sums._by_items(x, along, made[1])
    torch.testing.assert_close(made[0].cpu(), made[1].cpu())


def test_a_maximum_of_rows_says_where_it_lay(device: Any) -> None:
    """Of equal items the first one counts, of several that are no number the last one."""
    x = torch.randint(0, 3, (2, 16, 12, 40)).float()
    x[0, :, 4:7, 9:12] = float("nan")
    for form in (torch.contiguous_format, torch.channels_last):
        given = x.contiguous(memory_format=form)
        theirs = functional.max_pool2d(given, 3, 2, 1, return_indices=True)
        ours = functional.max_pool2d(given.to(place(device)), 3, 2, 1, return_indices=True)
        torch.testing.assert_close(ours[0].cpu(), theirs[0], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours[1].cpu(), theirs[1])


@pytest.mark.parametrize("size", [5, 13, 37, 197])
def test_rows_that_no_vector_divides(device: Any, size: int) -> None:
    x = torch.randn(33, size)
    for dtype, tolerance in NARROW.items():
        check(device, lambda x: functional.softmax(x, -1), x.to(dtype), tolerance=tolerance)
        check(device, lambda x: functional.log_softmax(x, -1), x.to(dtype), tolerance=tolerance)
    check_module(device, nn.LayerNorm(size), x)
    check_module(device, nn.RMSNorm(size), x, tolerance=1e-4)


@pytest.mark.parametrize("last", [False, True])
def test_group_norm(device: Any, last: bool) -> None:
    x = torch.randn(3, 12, 7, 9)
    form = torch.channels_last if last else torch.contiguous_format
    check_module(device, nn.GroupNorm(4, 12), x.contiguous(memory_format=form), tolerance=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_means_of_integers_are_cut_towards_zero(device: Any, rank: int) -> None:
    pools: tuple[Any, ...] = functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d
    x = torch.randint(-100, 100, (2, 3, 9, 8, 7)[: 2 + rank])
    for more in ({}, {"padding": 1, "count_include_pad": False}, {"stride": 2, "ceil_mode": True}):
        theirs = pools[rank - 1](x, 3, **more)
        assert torch.equal(pools[rank - 1](x.to(place(device)), 3, **more).cpu(), theirs)
