"""Attention by register tiles of vectors on any device, in fp32 arithmetic, forward and backward.

It is not for matrix units, which `attention_mma` uses, and on GPUs not for few queries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Pad, Tile, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_register"
KERNELS = {
    "fwd": NAME,
    "bwd_q": "attention_register_grad_q",
    "bwd_kv": "attention_register_grad_kv",
}


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the three kernels; the legend of attention_tiles.cl.mako says what they are.

    `chunks` register tiles of `item_v` vectors make the scores that a work-item has of a row. With
    `unrolled`, all loops of constant counts are written out: arrays stay in registers only if every
    index is constant, and Intel's compiler unrolls fewer loops than others.
    """

    FREE = frozenset({"batch", "queries", "keys"})

    local_m: Local
    local_n: Local
    item_m: Item
    item_v: Item
    vec: Vector
    loop_m: Tile = 1
    chunks: Tile = 1
    unroll_k: Unroll = 1
    pad: Pad = 0
    unrolled: bool = False

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

    def widths(self, problem: AttentionProblem) -> dict[str, int]:
        """Return rounded sizes of rows: to `vec` where summed over, to `span` where computed."""
        return {
            "depth": round_up(problem.head_dim, self.vec),
            "depth_v": round_up(problem.value_dim, self.vec),
            "width": round_up(problem.head_dim, self.span),
            "width_v": round_up(problem.value_dim, self.span),
        }

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory that a kernel declares."""
        sizes = self.widths(problem)
        rows, scores = self.tile_m, self.tile_m * (self.tile_n + self.pad)
        own = rows * (sizes["depth"] + self.pad)
        own_v = rows * (sizes["depth_v"] + self.pad)
        if problem.direction == "fwd":
            widest = max(sizes["depth"], sizes["width_v"])
            sums = rows * self.local_n if self.local_n > 1 else 0
            return 4 * (own + scores + sums + self.tile_n * widest)
        if problem.direction == "bwd_q":
            widest = max(sizes["depth"], sizes["depth_v"], sizes["width"])
            return 4 * (own + own_v + scores + self.tile_n * widest)
        return 4 * (own + own_v + 2 * scores + self.tile_n * max(sizes.values()))

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec not in (1, 2, 4, 8, 16):
            return f"vec={self.vec} is no width of a vector; use 1, 2, 4, 8 or 16"
        if self.unroll_k not in (1, 2, 4, 8, 16) or self.vec % self.unroll_k:
            return f"unroll_k={self.unroll_k} must be a width of a vector that divides {self.vec}"
        if self.pad % self.vec:
            return f"pad={self.pad} takes rows from where vectors of {self.vec} may begin"
        return None

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        group = (self.local_n, self.local_m, 1)
        return Needs((Frame(KERNELS[problem.direction], group, self.local_bytes(problem)),))


DEFAULT = Config(local_m=2, local_n=2, item_m=1, item_v=1, vec=2)
"""Fits 16 KiB of local memory and 64 work-items at any width."""
TRAITS = Traits(rank=515, sparing=replace(DEFAULT, local_n=4, unrolled=True))

GPU = (
    Config(local_m=8, local_n=8, item_m=4, item_v=2, vec=4, unroll_k=4, pad=4),
    Config(local_m=8, local_n=8, item_m=4, item_v=1, vec=4, unroll_k=4, pad=4),
    Config(local_m=8, local_n=8, item_m=2, item_v=1, vec=4, unroll_k=4, pad=4),
    Config(local_m=4, local_n=4, item_m=2, item_v=1, vec=4, unroll_k=4, pad=4),
)
"""Largest first: the first that local memory does not forbid is taken."""
GPU_FEW_REGISTERS = tuple(replace(one, item_m=1, item_v=1, unrolled=True) for one in GPU[1::2])


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.serves(problem)


def guesses(problem: AttentionProblem, limits: Limits) -> tuple[Config, ...]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu":  # attention_lanes is 1.1 to 5 times as fast
        return ()
    return _with_few_registers(problem) if limits.has_few_registers else GPU


def _with_few_registers(problem: AttentionProblem) -> tuple[Config, ...]:
    """Return guesses of which a work-item keeps few vectors of a row, in a group that has more."""
    first = GPU_FEW_REGISTERS[0]
    if max(problem.head_dim, problem.value_dim) <= first.local_n * first.vec:
        return GPU_FEW_REGISTERS
    return replace(first, local_n=2 * first.local_n), *GPU_FEW_REGISTERS


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    group = (config.local_n, config.local_m, 1)
    blocks = ceil_div(parts.rows_of(problem), config.tile_m)
    launch = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=KERNELS[problem.direction],
        global_size=(config.local_n, blocks * config.local_m, parts.heads_of(problem)),
        local_size=group,
        args=parts.arguments(problem),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,))


def _text(problem: AttentionProblem, config: Config) -> str:
    shared: dict[str, Any] = asdict(config)
    write_out = parts.unrolled if shared.pop("unrolled") else str
    shared |= {"masked": problem.mask, **parts.dropout(problem, config.vec, "ulong")}
    tiles = render(
        "attention_tiles",
        preamble=dtype_preamble(problem.dtype),
        load_part=parts.load_part(config.vec),
        **shared,
    )
    sizes: dict[str, Any] = config.widths(problem)
    if problem.direction == "fwd":
        sizes["width"] = sizes["width_v"]
    text = render(
        KERNELS[problem.direction], tiles=tiles, **shared, **sizes, tile_m=config.tile_m,
        tile_n=config.tile_n, dim=problem.head_dim, dim_v=problem.value_dim,
        seen=parts.seen(problem),
    )  # fmt: skip
    return write_out(text)
