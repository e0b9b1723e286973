"""Kernels of attention: their parameters, texts and prepared launches.

`ops.sequence.attention` calls them with torch's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch

from ocl_backend.dtypes import STORAGE
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, Launch, Pointer, Varying, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import dtype_preamble, render

Direction = Literal["forward", "grad_query", "grad_key"]

STRIDED: dict[Direction, tuple[str, ...]] = {
    "forward": ("q", "k", "v", "out"),
    "grad_query": ("q", "k", "v", "grad", "grad_q"),
    "grad_key": ("q", "k", "v", "grad", "grad_k", "grad_v"),
}
"""The tensors [batch, heads, rows, items] that each kernel takes, in order; items are dense."""
ROW_TENSORS: dict[Direction, int] = {"forward": 1, "grad_query": 2, "grad_key": 2}
"""How many dense fp32 tensors [batch, heads, queries] follow them."""


class Problem(NamedTuple):
    """All that decides a kernel's text; dims are items of a row of q and k, and of v."""

    direction: Direction
    dtype: torch.dtype
    dim: int
    dim_v: int
    causal: bool
    masked: bool
    dropout: bool


class Sizes(NamedTuple):
    """The scalar arguments of a launch: they differ from call to call of one kernel."""

    device: int
    batch: int
    heads: int
    shared_heads: int
    queries: int
    keys: int
    strides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the three kernels; the legend of attention_tiles.cl.mako says what they are.

    `chunks` register tiles of `item_v` vectors make the scores that a work-item has of a row.
    """

    local_m: int
    local_n: int
    item_m: int
    item_v: int
    vec: int
    loop_m: int = 1
    chunks: int = 1
    unroll_k: int = 1
    pad: int = 0

    @property
    def tile_m(self) -> int:
        """Rows of a work-group."""
        return self.local_m * self.item_m * self.loop_m

    @property
    def span(self) -> int:
        """Columns that a work-group computes at once."""
        return self.item_v * self.local_n * self.vec

    @property
    def tile_n(self) -> int:
        """Columns of a tile of scores."""
        return self.chunks * self.span

    def widths(self, problem: Problem) -> dict[str, int]:
        """Return rounded sizes of rows: to `vec` where summed over, to `span` where computed."""
        return {
            "depth": _rounded(problem.dim, self.vec),
            "depth_v": _rounded(problem.dim_v, self.vec),
            "width": _rounded(problem.dim, self.span),
            "width_v": _rounded(problem.dim_v, self.span),
        }

    def local_floats(self, problem: Problem) -> int:
        """Return the floats of local memory that a kernel takes."""
        sizes = self.widths(problem)
        rows, scores = self.tile_m, self.tile_m * (self.tile_n + self.pad)
        own = rows * (sizes["depth"] + self.pad)
        own_v = rows * (sizes["depth_v"] + self.pad)
        if problem.direction == "forward":
            widest = max(sizes["depth"], sizes["width_v"])
            return own + scores + rows * self.local_n + self.tile_n * widest
        tiles = 1 if problem.direction == "grad_query" else 2
        return own + own_v + tiles * scores + self.tile_n * max(sizes.values())

    def why_not(self, problem: Problem, limits: Limits) -> str | None:
        """Return with numbers why this config cannot serve, or None."""
        items, wanted = self.local_m * self.local_n, 4 * self.local_floats(problem)
        if self.vec % self.unroll_k:
            return f"unroll_k={self.unroll_k} does not divide vec={self.vec}"
        if items > limits.max_work_group:
            return f"{items} work-items per group; the device allows {limits.max_work_group}"
        if wanted > limits.local_bytes:
            return f"{wanted} bytes of local memory; the device has {limits.local_bytes}"
        return None


CPU = (
    Config(local_m=1, local_n=1, item_m=8, item_v=2, vec=16, loop_m=8, chunks=2),
    Config(local_m=1, local_n=1, item_m=8, item_v=1, vec=16, loop_m=2),
)
"""One work-item per group, rows enough to pay for turning the tile of keys."""
CPU_FEW_ROWS = (Config(local_m=1, local_n=1, item_m=1, item_v=2, vec=16, chunks=2),)
"""A step of generation has one query."""
GPU = (
    Config(local_m=8, local_n=8, item_m=4, item_v=2, vec=4, unroll_k=4, pad=4),
    Config(local_m=8, local_n=8, item_m=4, item_v=1, vec=4, unroll_k=4, pad=4),
    Config(local_m=8, local_n=8, item_m=2, item_v=1, vec=4, unroll_k=4, pad=4),
    Config(local_m=4, local_n=4, item_m=2, item_v=1, vec=4, unroll_k=4, pad=4),
)
"""Largest first: the last that local memory does not forbid is taken."""
DEFAULT = Config(local_m=2, local_n=2, item_m=1, item_v=1, vec=4)
"""Fits 16 KiB of local memory and 64 work-items at any width."""


def choose(problem: Problem, rows: int, limits: Limits) -> Config:
    """Return the first config that the device can take; `rows` are those that groups share out.

    Args:
        problem: direction, dtype and head sizes.
        rows: queries, or keys, that work-groups share out.
        limits: of the device.
    """
    preferred = GPU if limits.kind != "cpu" else CPU_FEW_ROWS if rows <= 2 else CPU
    fitting = (config for config in preferred if config.why_not(problem, limits) is None)
    return next(fitting, DEFAULT)


@lru_cache(maxsize=256)
def source(problem: Problem, config: Config) -> str:
    """Return the text of a kernel."""
    shared = asdict(config) | {"masked": problem.masked, "dropout": problem.dropout}
    preamble = dtype_preamble(STORAGE[problem.dtype])
    tiles = render("attention_tiles", package="ocl_backend", preamble=preamble, **shared)
    sizes = config.widths(problem)
    if problem.direction == "forward":
        sizes["width"] = sizes["width_v"]
    return render(
        f"attention_{problem.direction}", package="ocl_backend", tiles=tiles, **shared, **sizes,
        tile_m=config.tile_m, tile_n=config.tile_n, dim=problem.dim, dim_v=problem.dim_v,
        causal=problem.causal,
    )  # fmt: skip


@lru_cache(maxsize=MOST_LAUNCHES)
def prepared(problem: Problem, sizes: Sizes, config: Config | None = None) -> Launch:
    """Return the launch: pointers in the order of the kernel, then what changes from call to call.

    With dropout that is the share kept, seed and offset; always the scale.

    Args:
        problem: direction, dtype and head sizes.
        sizes: its `strides` are those of the strided tensors and, last, of a mask.
        config: None: what `choose` returns.
    """
    by_keys = problem.direction == "grad_key"
    rows = sizes.keys if by_keys else sizes.queries
    config = config or choose(problem, rows, devices()[sizes.device].limits)
    item_bytes = problem.dtype.itemsize
    arguments: list[Argument] = []
    count = len(STRIDED[problem.direction])
    for strides in sizes.strides[:count]:
        arguments += [Pointer(item_bytes), *_longs(strides[:3])]
    arguments += [Pointer(4)] * ROW_TENSORS[problem.direction]
    for strides in sizes.strides[count:]:
        arguments += [Pointer(item_bytes), *_longs(strides)]
    shared_by = sizes.heads // sizes.shared_heads
    arguments += map(np.int32, (sizes.heads, shared_by, sizes.queries, sizes.keys))
    if problem.dropout:
        arguments += [Varying("float"), Varying("long"), Varying("long")]
    arguments.append(Varying("float"))
    groups = sizes.batch * (sizes.shared_heads if by_keys else sizes.heads)
    return prepare(
        sizes.device,
        source(problem, config),
        f"attention_{problem.direction}",
        (config.local_n, ceil_div(rows, config.tile_m) * config.local_m, groups),
        arguments,
        (config.local_n, config.local_m, 1),
    )


def _longs(numbers: Sequence[int]) -> list[Argument]:
    return [np.int64(number) for number in numbers]


def _rounded(number: int, multiple: int) -> int:
    return ceil_div(number, multiple) * multiple
