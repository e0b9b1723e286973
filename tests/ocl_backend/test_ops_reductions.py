"""Reductions and softmax: dimensions, layouts and sizes that take every path of the generator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.kernels import softmax_rows
from ocl_backend.kernels.softmax_rows import Shares
from oclgen.limits import Limits
from tests.ocl_backend.cpu_twin import agree, assert_same, check, place, refuse_alike

INPUTS: dict[str, Any] = {
    "three dimensions": lambda: torch.randn(5, 7, 33),
    "transposed": lambda: torch.randn(4, 40, 9).transpose(0, 2),
    "long rows": lambda: torch.randn(3, 9001),
    "one dimension": lambda: torch.randn(100_003),
    "tall": lambda: torch.randn(20_000, 24),
    "channels last": lambda: torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last),
    "sliced": lambda: torch.randn(9, 50, 6)[::2, 3:40:3],
}


def dims_of(x: Tensor) -> list[tuple[int, ...]]:
    single = [(dim,) for dim in range(x.dim())]
    return [*single, tuple(range(x.dim())), (0, x.dim() - 1)][: 2 * x.dim()]


@pytest.mark.parametrize("name", INPUTS)
def test_every_dimension_of_every_layout(device: Any, name: str) -> None:
    torch.manual_seed(0)
    x = INPUTS[name]()
    for dims in {tuple(sorted(set(dims))) for dims in dims_of(x)}:
        agree(device, lambda x, d=dims: x.mean(d), x)
        agree(device, lambda x, d=dims: x.amax(d, keepdim=True), x)
        agree(device, lambda x, d=dims: torch.var_mean(x, d), x, tolerance=1e-4)
        agree(device, lambda x, d=dims: torch.linalg.vector_norm(x, 2, d), x, tolerance=1e-4)
    for dim in range(x.dim()):
        agree(device, lambda x, d=dim: (*x.max(d), *x.min(d, keepdim=True)), x)


REDUCTIONS: dict[str, Any] = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(1)),
    "amax": lambda x: (x.amax(), x.amax(1), x.max()),
    "amin": lambda x: (x.amin(), x.amin(0), x.min()),
    "any and all": lambda x: (x.any(), x.any(0), x.all(1, keepdim=True), (x == x).all()),
    "count_nonzero": lambda x: x.count_nonzero(),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_integers(device: Any, dtype: Any, name: str) -> None:
    x = (torch.randn(13, 50) * 2).abs().to(dtype)
    agree(device, REDUCTIONS[name], x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_floats_are_summed_in_float32(device: Any, dtype: Any) -> None:
    x = torch.randn(13, 5000).to(dtype)
    eps = float(torch.finfo(dtype).eps)
    agree(device, lambda x: (x.sum(1), x.mean(0), x.std(1), *x.max(1)), x, tolerance=4 * eps)
    ones = torch.ones(5000, dtype=dtype)
    agree(device, lambda x: x.sum(dtype=torch.float32), ones)
    large = 8 * torch.ones(3, 7, dtype=dtype)  # their sixth powers are no halves
    agree(device, lambda x: [x.norm(p, 1) for p in (-2, 0.5, 3, 6)], large, tolerance=4 * eps)


def test_a_negative_norm_of_nothing_is_refused(device: Any) -> None:
    refuse_alike(device, lambda x: torch.linalg.vector_norm(x, -1, 1), torch.empty(3, 0))
    agree(device, lambda x: torch.linalg.vector_norm(x, -1, 1), torch.empty(0, 3))


@pytest.mark.parametrize("out", [torch.bool, torch.uint8], ids=str)
def test_the_truth_of_bytes_has_outputs_of_bool(device: Any, out: Any) -> None:
    def written(x: Tensor) -> tuple[Tensor, Tensor]:
        given = torch.empty(2, 2, dtype=out, device=x.device)
        return torch.all(x, 1, out=given[0]), torch.any(x, 1, out=given[1])

    agree(device, written, torch.tensor([[0, 2, 3], [1, 255, 1]], dtype=torch.uint8))


def test_a_long_sum_keeps_its_precision(device: Any) -> None:
    x = torch.rand(2_000_000)
    ours = x.to(place(device)).sum().item()
    assert ours == pytest.approx(x.double().sum().item(), rel=1e-6)


def test_lanes_and_pieces_for_gpus(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU is given computes the same on any device; sizes are ones no other test uses."""
    monkeypatch.setattr(device, "limits", replace(device.limits, kind="gpu", max_work_group=256))
    torch.manual_seed(0)
    for shape in ((3, 70_001), (4001, 19), (6, 7, 131), (257,)):
        x = torch.randn(shape)
        for dim in range(x.dim()):
            agree(device, lambda x, d=dim: (x.mean(d), *x.max(d)), x)
        agree(device, lambda x: (x.var(), x.softmax(-1), x[..., ::2] * 2), x, tolerance=1e-4)


def test_nothing_to_reduce(device: Any) -> None:
    x = torch.randn(3, 0, 4)
    agree(device, lambda x: (x.sum(), x.sum(1), x.mean(1), x.prod(1), x.any(1), x.all(1)), x)
    agree(device, lambda x: (x.sum(0), x.amax(0)), x)
    with pytest.raises(IndexError, match="reduction dim 1 to have non-zero size"):
        x.to(place(device)).amax(1)
    agree(device, lambda x: (x.sum(), x.mean(0), x.amax()), torch.tensor(3.0))


def test_not_a_number_wins(device: Any) -> None:
    x = torch.randn(4, 40)
    x[1, 7] = float("nan")
    x[2, 3] = float("inf")
    agree(device, lambda x: (x.amax(1), x.amin(0), *x.max(1), x.sum(1), x.nansum(1)), x)


def test_the_first_of_equal_items_is_found(device: Any) -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    agree(device, lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.t().argmax(0)), x)


@pytest.mark.parametrize("order", [0, 1, 2, 3, torch.inf, -torch.inf, torch.nan, 1e-310])
def test_norms(device: Any, order: float) -> None:
    x = torch.randn(6, 50)
    agree(device, lambda x: torch.linalg.vector_norm(x, order, 1), x, tolerance=1e-4)
    agree(device, lambda x: torch.norm(x, p=order, dim=0), x, tolerance=1e-4)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_and_its_gradients(device: Any, dim: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 11, 35) * 3
    check(device, lambda x: x.softmax(dim), x)
    check(device, lambda x: x.log_softmax(dim), x)
    check(device, lambda x: x.logsumexp(dim), x)
    check(device, lambda x: x.transpose(0, 2).softmax(dim), x)
    # dense as torch's, for programs that take a view of it
    check(device, lambda x: x.transpose(0, 2).softmax(dim).view(-1), x)
    check(device, lambda x: x.mT.log_softmax(dim).view(-1), x)


@pytest.mark.parametrize("shape", [(3, 1), (5, 7), (2, 300, 1024), (4, 5000), (70, 9000)])
def test_softmax_of_dense_rows(device: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape) * 3
    check(device, lambda x: x.softmax(-1), x)
    check(device, lambda x: x.log_softmax(-1), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_softmax_of_other_dtypes(device: Any, dtype: Any) -> None:
    torch.manual_seed(0)
    x = (torch.randn(33, 36) * 3).to(dtype)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    agree(device, lambda x: (x.softmax(1), x.log_softmax(1)), x, tolerance=tolerance)
    agree(device, lambda x: (x[:, 1:].softmax(1), x[3:].log_softmax(1)), x, tolerance=tolerance)


@pytest.mark.parametrize(
    ("inner", "share"),
    [
        (1000, Shares(4, 64, 4, 1, 4, unroll=True)),
        (13, Shares(1, 4, 64, 1, 4, unroll=True)),
        (1, Shares(1, 1, 256, 1, 1, unroll=True)),
        (9000, Shares(4, 256, 1, 1, 0, unroll=False)),
        (9001, Shares(1, 512, 1, 1, 0, unroll=False)),
        (20, Shares(4, 2, 8, 3, 3, unroll=True)),
        (20, Shares(16, 1, 1, 3, 2, unroll=False, lies="overlapped")),
        (16, Shares(16, 1, 1, 30, 1, unroll=False, lies="overlapped")),
        (47, Shares(16, 1, 1, 3, 0, unroll=False, lies="overlapped")),
        (5, Shares(16, 1, 1, 1, 5, unroll=False, lies="across")),
        (5, Shares(16, 1, 1, 9, 0, unroll=False, lies="across")),
    ],
)
def test_softmax_as_work_items_share_it(
    device: Any, inner: int, share: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_rows, "shares", lambda rows: share)
    softmax_rows._prepared.cache_clear()
    torch.manual_seed(0)
    x = torch.randn(21, inner) * 3
    check(device, lambda x: x.softmax(-1), x)
    check(device, lambda x: x.log_softmax(-1), x)
    for dtype, tolerance in ((torch.bfloat16, 2**-7), (torch.float64, 1e-12)):
        agree(device, lambda x: x.softmax(-1), x.to(dtype), tolerance=tolerance)
        agree(device, lambda x: x.log_softmax(-1), x.to(dtype), tolerance=tolerance)
    softmax_rows._prepared.cache_clear()


@pytest.mark.parametrize("lanes", [64, 256])
def test_long_rows_on_a_gpu_keep_infinities_and_missing_numbers(
    device: Any, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = Shares(1, lanes, 1, 1, 0, unroll=False)
    monkeypatch.setattr(softmax_rows, "shares", lambda rows: share)
    softmax_rows._prepared.cache_clear()
    x = torch.randn(6, 3 * lanes + 5)
    x[0, :lanes] = float("-inf")  # all that some work-items meet first
    x[1] = float("-inf")
    x[2, 7] = float("inf")
    x[3, 9] = float("nan")
    x[4, -1] = 90.0  # far above what was summed before
    agree(device, lambda x: (x.softmax(1), x.log_softmax(1)), x)
    softmax_rows._prepared.cache_clear()


def test_rows_that_no_group_keeps_are_shared_by_a_wide_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(kind="gpu", max_work_group=1024, compute_units=132)
    monkeypatch.setattr(softmax_rows.Rows, "limits", limits)
    rows = softmax_rows.Rows(0, torch.float32, 4096, 50257)
    asked = softmax_rows.shares.__wrapped__  # another test's device may have been asked before
    assert asked(rows).lanes == 1024
    assert asked(replace(rows, inner=4096)).lanes == 256


def test_softmax_of_dense_rows_is_one_kernel(device: Any) -> None:
    x = torch.randn(64, 1024).to(place(device))
    x.softmax(1)
    with torch.ocl.profile(file=None) as seen:
        x.softmax(1)
    assert [command.name for command in seen.commands] == ["softmax_rows"]


def test_softmax_of_large_numbers(device: Any) -> None:
    x = torch.tensor([[1e4, 1e4 + 1, -1e30], [float("-inf"), 0.0, 1.0]])
    agree(device, lambda x: (x.softmax(1), x.log_softmax(1)), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(1),
        lambda x: x.mean((0, 2)),
        lambda x: x.amax(1),
        lambda x: x.max(2)[0],
        lambda x: x.var(1),
        lambda x: x.std((0, 1)),
        lambda x: x.prod(2),
        lambda x: torch.linalg.vector_norm(x, 2, 1),
    ],
)
def test_gradients(device: Any, function: Any) -> None:
    torch.manual_seed(0)
    check(device, function, torch.randn(4, 5, 9) + 2, tolerance=1e-4)


def test_wrong_dimensions_are_named(device: Any) -> None:
    x = torch.ones(2, 3, device=place(device))
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        x.sum(2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        x.sum((0, -2))
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        x.long().mean(0)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("function", [torch.any, torch.all])
def test_truths_of_no_dimension_are_those_of_items(
    device: Any, function: Any, keepdim: bool
) -> None:
    x = torch.tensor([[1.5, 0.0, torch.nan], [2.0, 0.0, -1.0]])
    every: list[Any] = [[], (0,), (1, 0), None]
    for dims in every:
        agree(device, lambda x, dims=dims: function(x, dim=dims, keepdim=keepdim), x)
        agree(device, lambda x, dims=dims: function(x, dim=dims, keepdim=keepdim), x.byte())
        agree(device, lambda x, dims=dims: function(x[:0], dim=dims, keepdim=keepdim), x)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_too_few_items_for_a_correction_are_warned_of(device: Any, name: str) -> None:
    """An operator called without a warning beside it shows that others are let pass."""
    x = torch.randn(3, 2, device=place(device))
    getattr(torch, name)(x, dim=1)
    with pytest.warns(UserWarning, match=rf"^{name}\(\): degrees of freedom is <= 0"):
        getattr(torch, name)(x, dim=1, correction=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_the_median_of_nothing(device: Any, dtype: Any) -> None:
    agree(device, lambda x: (x.median(), x.nanmedian()), torch.empty(0, 3, dtype=dtype))


@pytest.mark.parametrize("name", ["sum", "cumsum"])
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_sums_of_no_complex_numbers_are_complex(
    device: Any, name: str, shape: tuple[int, ...]
) -> None:
    agree(device, lambda x: getattr(x, name)(dim=-1), torch.zeros(shape, dtype=torch.complex64))


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_no_rows_of_complex_numbers(device: Any, name: str) -> None:
    assert_same(
        getattr(torch.zeros(0, 3, dtype=torch.complex64, device=place(device)), name)(1),
        torch.zeros(0, dtype=torch.complex64),
    )


def test_outputs_are_written(device: Any) -> None:
    x = torch.randn(5, 6)
    out = torch.empty(0, device=place(device))
    torch.sum(x.to(place(device)), 1, out=out)
    torch.testing.assert_close(out.cpu(), x.sum(1))


@pytest.mark.parametrize("lies", ["in a row", "in columns", "apart"])
def test_millions_of_items_round_no_more_than_thousands(device: Any, lies: str) -> None:
    shape, dims = {"in a row": ((4_000_000,), 0), "in columns": ((1_000_000, 4), 0)}.get(
        lies, ((2, 2_000_000), 1)
    )
    x = 1 + 0.01 * torch.rand(shape, generator=torch.Generator().manual_seed(0))
    if lies == "apart":
        x = x[:, ::2]
    there, exact = x.to(place(device)), x.double()
    for reduced in (torch.sum, torch.mean, torch.var):
        off = reduced(there, dims).cpu().double() / reduced(exact, dims) - 1
        assert off.abs().max() < 1e-5
