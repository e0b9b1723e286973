"""Attention in fp32 on NVIDIA's GPUs: rows in the registers of neighbouring work-items, both ways.

Its work-items exchange sums by `shfl.sync` and copy tiles by `cp.async`: what has the one has the
other. It is not for half precision, dropout, or rows that are no whole vectors of four.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeGuard

from oclgen.families.attention import attention_parts as parts
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Local, Range
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import AttentionProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "attention_lanes"
KERNELS = {"fwd": NAME, "bwd_q": "attention_lanes_grad", "bwd_kv": "attention_lanes_grad"}
VECTOR = 4
"""Floats that are copied and read at once; rows are whole vectors, and aligned to them."""
STAGES = 2
"""Tiles that local memory holds: one is used while the next is copied."""
MAX_REGISTERS = 224
"""Private numbers of a work-item beside which addresses still fit in 255 registers."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernels; the legends stand at the heads of their templates."""

    FREE = frozenset({"batch", "queries", "keys"})

    work_items: Local
    lanes: Annotated[int, Range(1, 32)]
    rows: Annotated[int, Range(1, 8)]
    chunk: Annotated[int, Range(1, 16)]
    tile_n: Annotated[int, Range(1, 256)]

    @property
    def tile_m(self) -> int:
        """Rows of a work-group."""
        return self.work_items // self.lanes * self.rows

    def depths(self, problem: AttentionProblem) -> tuple[int, int]:
        """Return the items of a row of q and k, and of v, rounded up to vectors of all lanes."""
        whole = VECTOR * self.lanes
        return round_up(problem.head_dim, whole), round_up(problem.value_dim, whole)

    def local_bytes(self, problem: AttentionProblem) -> int:
        """Return the bytes of local memory: two tiles of both operands."""
        return STAGES * self.tile_n * sum(self.depths(problem)) * 4

    def registers(self, problem: AttentionProblem) -> int:
        """Return the numbers that a work-item keeps: vectors of its rows, their sums and scores."""
        depth, depth_v = (size // self.lanes for size in self.depths(problem))
        kept, scores = {
            "fwd": (depth + depth_v, 1),
            "bwd_q": (2 * depth + depth_v, 2),
            "bwd_kv": (2 * depth + 2 * depth_v, 2),
        }[problem.direction]
        return self.rows * (kept + scores * self.chunk)

    def conflict(self, problem: AttentionProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no("cp_async"):
            return reason
        if problem.dropout:
            return "it drops no probabilities; attention_register does"
        if problem.head_dim % VECTOR or problem.value_dim % VECTOR:
            return (
                f"rows of {problem.head_dim} and {problem.value_dim} elements are no whole vectors "
                f"of {VECTOR}"
            )
        if self.lanes & (self.lanes - 1) or self.work_items % 32:
            return f"lanes={self.lanes} of {self.work_items} work-items do not divide a warp of 32"
        if self.tile_n % self.chunk:
            return f"chunk={self.chunk} does not divide tile_n={self.tile_n}"
        if (kept := self.registers(problem)) > MAX_REGISTERS:
            return f"a work-item would keep {kept} numbers; at most {MAX_REGISTERS} fit"
        return None

    def needs(self, problem: AttentionProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(
            KERNELS[problem.direction], (self.work_items, 1, 1), self.local_bytes(problem)
        )
        return Needs((frame,))


DEFAULT = Config(work_items=64, lanes=8, rows=1, chunk=2, tile_n=2)
TRAITS = Traits(rank=515, instructions=frozenset({"cp_async"}))


def serves(problem: Problem) -> TypeGuard[AttentionProblem]:
    """Say whether the family can compute the problem at all."""
    return parts.serves(problem) and problem.dtype == "fp32"


def guesses(problem: AttentionProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    # work_items, lanes, rows, chunk, tile_n
    shapes = {
        "fwd": ((128, 2, 2, 8, 8), (128, 8, 4, 8, 16)),
        "bwd_q": ((128, 2, 1, 4, 16), (128, 4, 1, 4, 16)),
        "bwd_kv": ((64, 2, 1, 1, 32), (128, 4, 1, 1, 16)),
    }[problem.direction]
    return [Config(*shape) for shape in (*shapes, (128, 8, 1, 4, 8))]


def units(work_items: int) -> str:
    """Return the text of copies and exchange: see `attention_units`.

    Args:
        work_items: of a work-group; an emulation exchanges numbers between them.
    """
    return render("attention_units", more=False)


def plan(problem: AttentionProblem, config: Config) -> Plan:
    """Return the one launch that computes the problem."""
    blocks = ceil_div(parts.rows_of(problem), config.tile_m)
    launch = Launch(
        text=LazyText(lambda: _text(problem, config)),
        kernel=KERNELS[problem.direction],
        global_size=(blocks * config.work_items, parts.heads_of(problem), 1),
        local_size=(config.work_items, 1, 1),
        args=parts.arguments(problem),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,))


def _text(problem: AttentionProblem, config: Config) -> str:
    depth, depth_v = config.depths(problem)
    by_keys: dict[str, Any] = {"by_keys": problem.direction == "bwd_kv"}
    return render(
        KERNELS[problem.direction],
        preamble=dtype_preamble(problem.dtype),
        units=units(config.work_items),
        **asdict(config),
        tile_m=config.tile_m,
        local_bytes=config.local_bytes(problem),
        depth=depth,
        depth_v=depth_v,
        dim=problem.head_dim,
        dim_v=problem.value_dim,
        seen=parts.seen(problem),
        masked=problem.mask,
        **(by_keys if problem.is_gradient else {}),
    )
