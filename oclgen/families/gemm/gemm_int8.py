"""GEMM of bytes: int8 by int8, exact in int32, by whatever multiplies four bytes at once.

Four bytes along k are a word, so operands are read along k, 4 to 16 steps at a time. One that lies
across k is gathered byte by byte, which passing through local memory does once for a whole tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_int8_text import Operand
from oclgen.families.parts.blocking import idleness, tiles, waste
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl.byte_dots import IN_C, INSTRUCTIONS, PAIRS, PLAIN
from oclgen.opencl.byte_dots import text as dot_text
from oclgen.parameters import Item, Local, Range, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import GemmProblem, Problem, divided_by
from oclgen.render import render

NAME = "gemm_int8"

VECTORS = (4, 8, 16)
"""Bytes of a load: whole words, up to OpenCL C's longest vector."""
MOST_SUMS = 512
"""Ints per work-item: `plain` keeps as many for each element of C as a load has bytes, `pairs` half
as many."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE

    unit: str
    item_m: Item
    item_n: Item
    local_m: Local
    local_n: Local
    vec_k: Vector
    tile_k: Annotated[int, Range(0, 1024)]

    @property
    def tile_m(self) -> int:
        """Rows of C per work-group."""
        return self.item_m * self.local_m

    @property
    def tile_n(self) -> int:
        """Columns of C per work-group."""
        return self.item_n * self.local_n

    @property
    def sums(self) -> int:
        """Ints that a work-item adds to."""
        return self.item_m * self.item_n * (self.vec_k // IN_C.get(self.unit, self.vec_k))

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: tile_k steps of both operands."""
        return (self.tile_m + self.tile_n) * self.tile_k

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.unit not in IN_C:
            if self.unit not in INSTRUCTIONS:
                known = ", ".join((*IN_C, *INSTRUCTIONS))
                return f"unit={self.unit} is unknown; there are {known}"
            if reason := limits.why_no(self.unit):
                return f"unit={reason}"
        if self.vec_k not in VECTORS:
            return f"vec_k={self.vec_k} bytes are no vector of whole words; use one of {VECTORS}"
        if self.tile_k % self.vec_k:
            return f"tile_k={self.tile_k} is no multiple of vec_k={self.vec_k}"
        if self.sums > MOST_SUMS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} vec_k={self.vec_k} needs {self.sums} "
                f"sums per work-item; at most {MOST_SUMS} stay in registers"
            )
        return None

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (self.local_n, self.local_m, 1), self.local_bytes),))


DEFAULT = Config(unit=PLAIN, item_m=2, item_n=2, local_m=8, local_n=8, vec_k=4, tile_k=16)
TRAITS = Traits(rank=60, instructions=frozenset(INSTRUCTIONS))


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype == "int8"


def guesses(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs for an untuned problem, best guess first; some may not be valid."""
    return _for_cpus(problem, limits) if limits.kind == "cpu" else _for_gpus(problem, limits)


def _for_cpus(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose sums fill the registers; neighbours along n are one thread's."""
    pairs = any(name.startswith("cl_intel_") for name in limits.extensions)
    unit, vec_k = PAIRS if pairs else PLAIN, 16 if limits.native_float_width >= 8 else 8
    if problem.trans_b and not problem.trans_a:
        few = [(4, 2), (1, 4)] if pairs else [(2, 2), (1, 4)]
        many = [(6, 4), (1, 8), (4, 4)] if pairs else [(4, 4), (1, 8), (2, 4)]
        items = many if limits.has_32_vectors else few
        for item_m, item_n in (one for one in items if one[0] <= problem.m):
            groups = tiles(problem, item_m, 32 * item_n)
            yield Config(
                unit=unit, item_m=item_m, item_n=item_n, local_m=1,
                local_n=32 if groups >= 4 * limits.compute_units else 8, vec_k=vec_k, tile_k=0,
            )  # fmt: skip
        return
    # what does not lie along k is gathered into local memory, by one work-item for itself
    items = [(8, 3), (4, 4)] if limits.has_32_vectors else [(4, 1), (2, 2)]
    for item_m, item_n in items if problem.m >= 8 else reversed(items):
        yield Config(
            unit=unit, item_m=min(item_m, problem.m), item_n=item_n, local_m=1, local_n=1,
            vec_k=vec_k, tile_k=64,
        )  # fmt: skip


def _for_gpus(problem: GemmProblem, limits: Limits) -> Iterator[Config]:
    """Yield tiles of words in local memory: the largest that gives each unit work comes first."""
    units = [unit for unit in INSTRUCTIONS if unit in limits.instructions] or [PLAIN]
    most = 4 if limits.has_few_registers else 8
    shapes = [
        (item_m, item_n, local_m, local_n)
        for (item_m, item_n), (local_m, local_n) in product(
            ((8, 8), (4, 8), (4, 4), (2, 4), (1, 4), (1, 2)), ((16, 16), (8, 16), (8, 8), (2, 32))
        )
        if max(item_m, item_n) <= most
    ]

    def cost(shape: tuple[int, int, int, int]) -> float:
        item_m, item_n, local_m, local_n = shape
        tile_m, tile_n = item_m * local_m, item_n * local_n
        read = 1 + (item_m + item_n) / (item_m * item_n)
        idle = idleness(tiles(problem, tile_m, tile_n), local_m * local_n, limits)
        return read * idle * waste(problem.m, tile_m) * waste(problem.n, tile_n)

    shapes.sort(key=cost)
    for unit, (item_m, item_n, local_m, local_n) in product(units, shapes):
        yield Config(
            unit=unit, item_m=item_m, item_n=item_n, local_m=local_m, local_n=local_n,
            vec_k=4, tile_k=32,
        )  # fmt: skip


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launch of the product."""

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            is_aligned=parts.ALIGNED,
            dot=dot_text(config.unit, config.vec_k),
            a=Operand("a", "m", config.item_m, config.local_m, config.vec_k, problem.trans_a),
            b=Operand("b", "n", config.item_n, config.local_n, config.vec_k, not problem.trans_b),
            edge_m=not divided_by(problem, "m", config.tile_m),
            edge_n=not divided_by(problem, "n", config.tile_n),
            edge_k=not divided_by(problem, "k", max(config.vec_k, config.tile_k)),
            bias="none",
            residual=False,
            term_parameters="",
        )

    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(
            config.local_n * ceil_div(problem.n, config.tile_n),
            config.local_m * ceil_div(problem.m, config.tile_m),
            problem.batch,
        ),
        local_size=(config.local_n, config.local_m, 1),
        args=parts.product_args(problem, 1, 1),
        local_bytes=config.local_bytes,
    )
    return Plan((launch,))
