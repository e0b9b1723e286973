"""Rows that GPUs move from and to computed places: which launch, by which pieces, and its results.

The device's kind is a GPU's here, whatever the device: its kernels are right anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from ocl_backend.kernels.moved_rows import Walk, _pieces, _rows
from tests.ocl_backend.cpu_twin import agree, ocl, place

DTYPES = torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64


ROWS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x.flatten(1)), "gather_rows"),
    "index_select": (lambda x, i: x.index_select(0, i.flatten()), "gather_rows"),
    "of middle slices": (lambda x, i: x.index_select(1, i.flatten() % 6), "gather_rows"),
    "by narrow indices": (lambda x, i: x.index_select(0, i.flatten().int()), "gather_rows"),
    "index": (lambda x, i: x[i - 3], "gather_rows"),
    "two indices": (lambda x, i: x[i, i % 6], "gather_rows"),
    "of a view": (lambda x, i: x[:, 2:, 1:][i], "gather_rows"),
    "of turned dimensions": (lambda x, i: x.transpose(0, 1)[i % 6], "gather_rows"),
    "gather": (lambda x, i: x[:, 0].gather(0, i.view(-1, 1).expand(-1, 40)), "gather_rows"),
    "index_copy": (lambda x, i: x.index_copy(0, i[0], x[5:7]), "scatter_rows"),
    "index_put": (lambda x, i: x.index_put((i[0],), x[5:7]), "scatter_rows"),
    "scatter": (
        lambda x, i: x[:, 0].scatter(0, i[0].view(-1, 1).expand(-1, 40), x[:, 1]),
        "scatter_rows",
    ),
    "of one row": (lambda x, i: x.index_put((i[0],), x[5]), "scatter_rows"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_moved_as_such(gpu: Any, name: str) -> None:
    function, kernel = ROWS[name]
    x, index = torch.randn(9, 6, 40), torch.tensor([[7, 2], [4, 8], [3, 3]])
    for dtype in DTYPES:
        agree(gpu, function, x.mul(3).to(dtype), index)
    given = x.to(place(gpu)), index.to(place(gpu))
    with ocl.profile(file=None) as seen:
        function(*given)
    assert [c.name for c in seen.commands].count(kernel + "_kernel") == 1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("columns", [2, 7, 31, 97, 260, 1025])
def test_rows_of_any_length_and_alignment(gpu: Any, columns: int, dtype: Any) -> None:
    x = torch.randint(0, 200, (50, columns)).to(dtype)
    index = torch.randint(0, 50, (33,))
    for first in (0, 1):
        agree(gpu, lambda x, i: x[:, first:].contiguous()[i], x, index)  # noqa: B023
        agree(gpu, lambda x, i: x[:, first:][i], x, index)  # noqa: B023
        agree(
            gpu, lambda x, i: x.clone().index_copy_(0, i.unique(), x[: len(i.unique())]), x, index
        )


def test_many_rows_give_work_items_several_pieces(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ocl_backend.kernels.vectors.busy_items", lambda limits: 1)
    for columns in (96, 97, 130, 251):
        x, index = torch.randn(20, columns), torch.randint(0, 20, (11,))
        agree(gpu, lambda x, i: x[i], x, index)
        agree(gpu, lambda x, i: x.clone().index_put_((i,), x[0]), x, index)


def test_work_items_are_few_and_none_is_idle(gpu: Any) -> None:
    many = replace(gpu.limits, compute_units=132)
    assert _pieces(Walk(((34564, 0, 1536, 1),), 96, 16), many) == 4
    assert _pieces(Walk(((34564, 0, 1536, 1),), 97, 16), many) == 4
    assert _pieces(Walk(((34564, 0, 1024, 1),), 64, 16), many) == 4
    assert _pieces(Walk(((64, 0, 1024, 1),), 64, 16), many) == 1
    assert _pieces(Walk(((34564, 0, 64, 1),), 4, 16), many) == 1


def test_pieces_divide_rows_steps_and_addresses() -> None:
    dims = (5, 12), ((0, 1), (12, 1), (1, 0))
    assert _rows(*dims, (40,), 4, 16) == Walk(((5, 0, 48, 1),), 3, 16)
    assert _rows(*dims, (42,), 4, 16) == Walk(((5, 0, 48, 1),), 6, 8)
    assert _rows(*dims, (40,), 4, 4) == Walk(((5, 0, 48, 1),), 12, 4)
    assert _rows((5, 12), ((0, 1), (12, 1), (1, 1)), (40,), 4, 16) is None
    assert _rows((5, 12), ((0, 2), (12, 1), (1, 0)), (40,), 4, 16) is None


def test_an_index_out_of_range_is_told(gpu: Any) -> None:
    x = torch.randn(9, 40).to(place(gpu))
    for operator in (lambda i: x[i], lambda i: x.clone().index_copy_(0, i, x[:2])):
        operator(torch.tensor([4, 9]).to(place(gpu)))
        with pytest.raises(torch.AcceleratorError, match="9"):
            ocl.synchronize()
