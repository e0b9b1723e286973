"""Bisection of sorted rows against torch's CPU: NaN, dtypes, strides, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, place, refuse_alike

EDGES = torch.tensor([0.5, 1, 1, 2, 4])
ROWS = torch.tensor([[1, 2, 2, 5], [0, 3, 4, 9]])
VALUES = torch.tensor([[1, 2, 9], [3, 4, -1]])
NAN = torch.tensor([1.0, float("nan"), 2.0, float("inf"), -float("inf")])


@pytest.mark.parametrize("right", [False, True])
def test_nan_comes_behind_the_whole_row(device: Any, right: bool) -> None:
    agree(device, lambda e, x: torch.searchsorted(e, x, right=right), EDGES, NAN)
    agree(device, lambda e, x: torch.bucketize(x, e, right=right), EDGES, NAN)
    agree(device, lambda e: torch.bucketize(float("nan"), e, right=right), EDGES)
    agree(device, lambda e: torch.searchsorted(e, float("nan"), right=right), EDGES)


@pytest.mark.parametrize("right", [False, True])
def test_rows_are_searched_in_the_dtype_of_both(device: Any, right: bool) -> None:
    agree(device, lambda e, x: torch.searchsorted(e, x, right=right), ROWS, VALUES)
    agree(device, lambda e, x: torch.searchsorted(e, x, right=right), ROWS, VALUES + 0.5)
    agree(device, lambda e, x: torch.searchsorted(e, x, right=right), EDGES.half(), VALUES)
    agree(device, lambda e, x: torch.searchsorted(e, x.to(torch.uint8)), EDGES.bfloat16(), VALUES)
    agree(device, lambda e: torch.bucketize(2, e, right=right, out_int32=True), EDGES)
    agree(device, lambda e: torch.searchsorted(e, 2.5, side="right"), ROWS[0])


def test_nothing_is_searched_in_nothing(device: Any) -> None:
    agree(device, lambda e, x: torch.searchsorted(e[:0], x), EDGES, VALUES)
    agree(device, lambda e, x: torch.searchsorted(e, x[:, :0]), EDGES, VALUES)
    agree(device, lambda e, x: torch.searchsorted(e, x[:, :0]), ROWS, VALUES)


@pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning")
def test_strides_and_sorters(device: Any) -> None:
    agree(device, lambda e, x: torch.searchsorted(e, x.T), EDGES, VALUES)
    with pytest.warns(UserWarning, match="boundary tensor is non-contiguous"):
        agree(device, lambda e, x: torch.searchsorted(e[:, ::2], x), ROWS, VALUES)
    mixed = torch.tensor([[5, 2, 1, 2], [4, 9, 0, 3]])
    agree(device, lambda e, x: torch.searchsorted(e, x, sorter=e.argsort()), mixed, VALUES)


def test_results_are_written_to_out_of_their_dtype(device: Any) -> None:
    edges, values = EDGES.to(place(device)), VALUES.to(place(device))
    out = torch.empty(0, dtype=torch.int32, device=edges.device)
    torch.bucketize(values, edges, out_int32=True, out=out)
    assert torch.equal(out.cpu(), torch.bucketize(VALUES, EDGES, out_int32=True))


WRONG: dict[str, Any] = {
    "rows": lambda e, r, x: torch.searchsorted(r, x[:1]),
    "no row": lambda e, r, x: torch.searchsorted(e[0], x),
    "a number in rows": lambda e, r, x: torch.searchsorted(r, 1),
    "buckets of rows": lambda e, r, x: torch.bucketize(x, r),
    "side": lambda e, r, x: torch.searchsorted(e, x, side="bad"),
    "two sides": lambda e, r, x: torch.searchsorted(e, x, side="left", right=True),
    "size of the sorter": lambda e, r, x: torch.searchsorted(e, x, sorter=e[1:].argsort()),
    "dtype of the sorter": lambda e, r, x: torch.searchsorted(e, x, sorter=e.argsort().int()),
    "dtype of out": lambda e, r, x: torch.searchsorted(e, x, out=x.float()),
    "width of out": lambda e, r, x: torch.searchsorted(e, x, out=x.clone(), out_int32=True),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_as_on_the_cpu(device: Any, name: str) -> None:
    refuse_alike(device, WRONG[name], EDGES, ROWS, VALUES)
