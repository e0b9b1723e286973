"""Kinds of operators that read or write places which indices, masks or shifts name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.tasks.operators.case import Kind, Made
from benchmarks.tasks.operators.drawing import Drawn, along, one_of, plain, sizes, table

MOVES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "roll": lambda x, dim: torch.roll(x, x.shape[dim] // 3 + 1, dim),
    "flip": lambda x, dim: torch.flip(x, (dim,)),
    "joined twice": lambda x, dim: torch.cat((x, x), dim),
    "stacked": lambda x, dim: torch.stack((x, x), dim),
    "repeat_interleave": lambda x, dim: torch.repeat_interleave(x, 2, dim),
    "tiled": lambda x, dim: x.tile((2,) + (1,) * (x.dim() - 1)),
    "unfolded": lambda x, dim: x.unfold(dim, min(3, x.shape[dim]), 2).contiguous(),
    "diff": lambda x, dim: torch.diff(x, dim=dim),
}


def _matrix(random: Random, elements: int) -> Drawn:
    return sizes(random, elements, random.randint(2, 4)), {}


def _indices(x: Tensor, count: int) -> Tensor:
    return torch.randint(x.shape[0], (count,), device=x.device)


def _gather(x: Tensor, dim: int) -> Made:
    index = torch.randint(x.shape[dim], x.shape, device=x.device)
    return Made(lambda: torch.gather(x, dim, index))


def _scatter_add(x: Tensor, dim: int) -> Made:
    index = torch.randint(x.shape[dim], x.shape, device=x.device)
    target = torch.zeros_like(x.detach())
    return Made(lambda: torch.scatter_add(target, dim, index, x))


def _index_select(x: Tensor, dim: int) -> Made:
    index = torch.randint(x.shape[dim], (x.shape[dim],), device=x.device)
    return Made(lambda: torch.index_select(x, dim, index))


def _index_add(x: Tensor, count: int) -> Made:
    index, source = _indices(x, count), torch.randn(count, x.shape[1], device=x.device).to(x.dtype)
    return Made(lambda: torch.index_add(x, 0, index, source))


def _index_put(x: Tensor, count: int) -> Made:
    index, values = _indices(x, count), torch.randn(count, x.shape[1], device=x.device).to(x.dtype)
    return Made(lambda: torch.index_put(x, (index,), values, accumulate=True))


def _embedding(x: Tensor, count: int) -> Made:
    index = _indices(x, count)
    return Made(lambda: functional.embedding(index, x))


def _embedding_bag(x: Tensor, count: int) -> Made:
    index = _indices(x, count)
    offsets = torch.arange(0, count, 8, device=x.device)
    return Made(lambda: functional.embedding_bag(index, x, offsets))


def _masked_fill(x: Tensor) -> Made:
    mask = torch.randn(x.shape, device=x.device) > 0
    return Made(lambda: x.masked_fill(mask, 0.0))


def _masked_select(x: Tensor) -> Made:
    mask = torch.randn(x.shape, device=x.device) > 0
    return Made(lambda: torch.masked_select(x, mask))


KINDS = {
    "gather": Kind("places", along, _gather, True, part=0.5),
    "scatter_add": Kind("places", along, _scatter_add, True, part=0.5),
    "index_select": Kind("places", along, _index_select, True),
    "index_add": Kind("places", table, _index_add, part=0.5),
    "index_put": Kind("places", table, _index_put, part=0.5),
    "embedding": Kind("places", table, _embedding, True, part=0.5),
    "embedding_bag": Kind("places", table, _embedding_bag, True, part=0.25),
    "masked_fill": Kind("places", plain, _masked_fill, True),
    "masked_select": Kind("places", plain, _masked_select, part=0.5),
    "nonzero": Kind(
        "places", plain, lambda x: Made(lambda: torch.nonzero(x > 1)), dtypes=("fp32",), part=0.25
    ),
    "move": Kind(
        "places",
        one_of(MOVES, along),
        lambda x, op, dim: Made(lambda: MOVES[op](x, dim)),
        True,
        part=0.5,
    ),
    "triangle": Kind("places", _matrix, lambda x: Made(lambda: torch.tril(x)), True),
}
