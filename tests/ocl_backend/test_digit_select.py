"""Medians and k-th items that are selected by digits, and first positions of the best items."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.kernels.digit_select import Sought, selected
from tests.ocl_backend.cpu_twin import ocl, place

ROWS = [((9, 31), 0), ((3, 5, 64), 1), ((2, 700), 1), ((70_003,), 0)]
"""Short rows that lie apart, twice, one that a group has, and one that several groups share."""


@pytest.fixture(params=["own", "gpu"])
def kind(request: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device as it is, and with a GPU's groups of 256."""
    if request.param == "gpu":
        if device.limits.max_work_group < 256:
            pytest.skip("groups of 256 work-items do not fit")
        limits = replace(device.limits, kind="gpu", max_work_group=256, compute_units=2)
        monkeypatch.setattr(device, "limits", limits)
    return device


def items(shape: tuple[int, ...], dtype: Any) -> Any:
    """Numbers that occur often, both zeros, infinities, and a NaN in every fifth item."""
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(6)) * 20).to(dtype)
    if dtype.is_floating_point:
        for step, value in ((7, 0.0), (9, -0.0), (11, torch.inf), (13, -torch.inf)):
            x.view(-1)[::step] = value
        x.view(-1)[::5] = torch.nan
    return x


def are_equal(a: Any, b: Any) -> Any:
    """Whether items are, where a NaN equals a NaN."""
    return (a == b) | ((a != a) & (b != b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize(("shape", "axis"), ROWS, ids=str)
def test_the_first_item_of_a_rank_is_selected(
    kind: Any, shape: tuple[int, ...], axis: int, dtype: Any
) -> None:
    x, size = items(shape, dtype), shape[axis]
    there, ordered = x.to(place(kind)), x.sort(dim=axis).values
    wanted: list[tuple[Sought, int, Any]]
    wanted = [("rank", k, ordered.select(axis, k)) for k in (0, size // 3, size - 1)]
    wanted.append(("median", 0, x.median(axis).values))
    wanted.append(("nanmedian", 0, x.nanmedian(axis).values))
    for rule, rank, theirs in wanted:
        value, where = (part.cpu() for part in selected(there, axis, rule, rank))
        assert are_equal(value, theirs).all()
        first = are_equal(x, theirs.unsqueeze(axis)).to(torch.uint8).argmax(axis)
        assert torch.equal(where, first)


OTHERS = [torch.bfloat16, torch.float64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_other_dtypes(kind: Any, dtype: Any) -> None:
    x = items((3, 300), dtype)
    for k in (1, 150, 300):
        theirs = x.sort(dim=1).values[:, k - 1]
        value, where = torch.kthvalue(x.to(place(kind)), k, 1, keepdim=True)
        assert are_equal(value.cpu().squeeze(1), theirs).all()
        assert are_equal(x.gather(1, where.cpu()), value.cpu()).all()


def test_integers_of_all_ranges(kind: Any) -> None:
    ends = torch.iinfo(torch.int64)
    wide = torch.randint(ends.min, ends.max, (4, 999), generator=torch.Generator().manual_seed(8))
    wide[1] = wide[1] % 100 - 50
    wide[2] = 7
    wide[3, 500:] = ends.min
    ours = torch.median(wide.to(place(kind)), 1)
    assert torch.equal(ours[0].cpu(), wide.median(1)[0])
    assert torch.equal(wide.gather(1, ours[1].cpu()[:, None])[:, 0], ours[0].cpu())


def test_rows_of_none_and_a_number_alone(kind: Any) -> None:
    none = torch.empty(0, 3, device=place(kind))
    assert [part.shape for part in none.median(1)] == [(0,), (0,)]
    with pytest.raises(IndexError, match="non-zero size"):
        none.median(0)
    assert torch.tensor(3.0, device=place(kind)).kthvalue(1)[0].item() == 3.0


def launches(call: Any) -> list[str]:
    """Return the kernels of a call, without copies and fills."""
    call()
    with ocl.profile(file=None) as profile:
        call()
    return [
        command.name for command in profile.commands if command.name.startswith(("select", "red"))
    ]


@pytest.mark.parametrize("kind", ["gpu"], indirect=True)
def test_a_selection_is_one_launch_or_one_for_each_digit(kind: Any) -> None:
    for shape, axis, name in (((9, 41), 0, "short"), ((2, 701), 1, "whole")):
        x = torch.randn(shape, device=place(kind))
        assert launches(partial(torch.median, x, axis)) == [f"select_{name}"]
    x = torch.randn(70_001, device=place(kind))
    assert launches(x.median) == ["select_digit"] * 3 + ["select_place"]
    assert launches(x.half().median) == ["select_digit"] * 2 + ["select_place"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8], ids=str
)
@pytest.mark.parametrize(("shape", "dim"), [((3, 20_011), 1), ((40, 9, 7), 0), ((5, 9), 1)])
def test_first_positions(kind: Any, shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    x = items(shape, dtype)
    if x.is_floating_point():
        x.movedim(dim, 0)[:, 1:] = x.movedim(dim, 0)[:, 1:].nan_to_num(0.0)
    there = x.to(place(kind))
    for name in ("max", "min"):
        theirs = getattr(x, name)(dim).values
        first = are_equal(x, theirs.unsqueeze(dim)).to(torch.uint8).argmax(dim)
        value, where = (part.cpu() for part in getattr(there, name)(dim))
        assert are_equal(value, theirs).all()
        assert torch.equal(where, first)
        assert torch.equal(getattr(torch, f"arg{name}")(there, dim).cpu(), first)


@pytest.mark.parametrize("kind", ["gpu"], indirect=True)
def test_a_gpu_finds_positions_by_one_reduction(kind: Any) -> None:
    x = torch.rand(43, 37, device=place(kind))  # a size that no other kind has prepared
    assert launches(lambda: x.argmax(1)) == ["reduce_argmax"]
    assert launches(lambda: x.topk(1)) == ["reduce_argmax"]
    drawn = launches(lambda: torch.multinomial(x, 1, replacement=True))
    assert drawn == ["reduce_sum", "reduce_argmax"]
