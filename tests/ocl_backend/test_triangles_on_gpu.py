"""Triangles of dense matrices, as GPUs walk them: by neighbours in memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import agree, ocl, place

DTYPES = torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64
SHAPES = (3, 1), (1, 5), (19, 3), (2, 3, 1000), (2, 1, 1, 1), (7, 130, 5), (2, 3, 8, 8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_triangles_of_dense_matrices(gpu: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = torch.arange(1, 1 + torch.Size(shape).numel()).view(shape).to(dtype)
    for diagonal in (-2000, -7, -1, 0, 1, 4, 2000):
        agree(gpu, lambda x: (x.tril(diagonal), x.triu(diagonal)), x)  # noqa: B023
        agree(gpu, lambda x: (x.mT.tril(diagonal), x.mT.triu(diagonal)), x)  # noqa: B023


def test_triangles_that_begin_anywhere(gpu: Any) -> None:
    for first in range(4):
        x = torch.randn(3, 5, 7).flatten()[first : first + 98].half()
        agree(gpu, lambda x: x.clone().view(2, 7, 7).tril(), x)
        agree(gpu, lambda x: x.view(2, 7, 7).triu(1), torch.randn(105)[first : first + 98])
        there = torch.randn(105)
        ours = there.to(place(gpu))[first : first + 98].view(2, 7, 7)
        assert torch.equal(ours.tril().cpu(), there[first : first + 98].view(2, 7, 7).tril())


def test_dense_triangles_are_walked_by_neighbours(gpu: Any) -> None:
    x = torch.randn(4, 9, 3).to(place(gpu))
    for made in (x, x.mT):
        with ocl.profile(file=None) as seen:
            made.tril()
        assert [command.name[4:] for command in seen.commands] == ["_neighbours_kernel"]
    with ocl.profile(file=None) as seen:
        x[:, :, 1:].triu()
    assert [command.name for command in seen.commands] == ["triu_kernel"]
