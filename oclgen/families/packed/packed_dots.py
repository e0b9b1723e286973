"""Products of one row with packed weights of four bits by integer dot products, on processors.

Rows of w are lanes, interleaved by the launch of `packed_lanes`. Items of x become integers of 23
bits with an exponent for each block of 32, three digits of 8 bits, whose products with weights an
instruction adds by fours: AVX512-VNNI's for 16 lanes, AVX2's for 8. So a block of 32 weights takes
some 55 instructions in place of 115, and is as exact as fp32. It is not the family for bytes that
are weights, nor for more rows of x.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, TypeGuard

from oclgen.families.packed import packed_lanes
from oclgen.families.packed.packed_formats import TEXTS
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Parts, Range, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import Problem
from oclgen.render import dtype_preamble, render

NAME = "packed_dots"
UNITS = {16: "vpdpbusd", 8: "vpmaddubsw"}
"""The instruction of vectors of as many lanes."""
ITEMS_PER_UNIT = 4
"""Work-items of a core. Each turns all of x into digits, which costs as much as some groups of
rows: with 8 of them, four products of a layer (one core, AVX2, n 576 to 3072, k 576 and 1536) take
1.08 times as long, and a short one 1.15 times."""
CHUNK = 256
"""Blocks of x that a work-item holds as digits: 24 KiB. A longer row of x is held in parts, whose
weights end a stream of rising addresses."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    lanes: Vector
    loop_n: Parts = 1
    ahead: Annotated[int, Range(0, 1 << 14)] = 0

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.lanes not in UNITS:
            return f"lanes={self.lanes} must be one of {(*UNITS,)}"
        return limits.why_no(UNITS[self.lanes])

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        frames = (Frame(packed_lanes.PACK, (1, 1)), Frame(NAME, (1,)))
        return Needs(frames, packed_lanes.workspaces(problem, self.as_lanes))

    @property
    def as_lanes(self) -> packed_lanes.Config:
        """The config by which `packed_lanes` interleaves the same rows."""
        return packed_lanes.Config(1, self.lanes)


DEFAULT = Config(lanes=8)
TRAITS = Traits(
    rank=8, for_cpus=True, for_kept_weights=True, instructions=frozenset(UNITS.values())
)


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product of one row with weights of four bits in blocks."""
    return packed_lanes.serves(problem) and not packed_lanes.is_whole(problem)


def dots(lanes: int) -> str:
    """Return the OpenCL C of the instruction of vectors of as many lanes."""
    return render(UNITS[lanes])


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind != "cpu":
        return []
    return [
        Config(
            lanes,
            packed_lanes.turns(problem.n, lanes, limits, ITEMS_PER_UNIT),
            ahead=packed_lanes.AHEAD * 4,
        )
        for lanes in UNITS
        if UNITS[lanes] in limits.instructions
    ][:1]


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch that interleaves rows of w, and the product."""
    numbers = packed_lanes.numbers_of(problem)
    assert numbers is not None
    pack, groups = packed_lanes.packing_launch(problem, config.as_lanes, signed=False)
    product = Launch(
        text=LazyText(
            lambda: render(
                NAME, numbers=numbers, offset=TEXTS[problem.format].offset, chunk=CHUNK,
                preamble=dtype_preamble(problem.dtype), dots=dots(config.lanes),
                **asdict(config),
            )
        ),
        kernel=NAME,
        global_size=(ceil_div(groups, config.loop_n),),
        local_size=(1,),
        args=(
            *buffer("x"), Scalar(problem.k, name="ld_x"), *buffer(packed_lanes.QUANTS),
            *buffer(packed_lanes.NUMBERS), *buffer("y"), Scalar(problem.n, name="ld_y"),
            Scalar(problem.n), Scalar(problem.k // packed_lanes.BLOCK),
        ),
    )  # fmt: skip
    return Plan((pack, product), packed_lanes.workspaces(problem, config.as_lanes))
