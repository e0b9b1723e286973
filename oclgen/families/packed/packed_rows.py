"""Products of few rows with packed weights: every weight is read and unpacked once per 8 rows.

It is not the family for many rows, for which weights would be unpacked again and again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, TypeGuard

from oclgen.families.packed.packed_formats import stripes
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Item, Local, Parts, Range, Unroll, Vector
from oclgen.plan import (
    Arg,
    Frame,
    Launch,
    LazyText,
    Needs,
    Plan,
    Scalar,
    buffer,
    ceil_div,
    round_up,
)
from oclgen.problem import Problem
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "packed_rows"

MAX_ACCUMULATORS = 512
"""Private floats per work-item; more spill to memory."""
MOST_ROWS = 32
"""Rows up to which reading weights anew for every 8 rows takes less than writing them unpacked."""
GROUPS_PER_UNIT = 8
"""Work-items of a core of a processor, so that the last ones end together."""
MOST_IN_TURN = 64
"""Rows of w that a work-item of a processor reads one after the other; more save nothing."""
AHEAD = 4096
"""Bytes of w that a processor is asked for before it reads them: 2 to 8 KiB were as fast."""
WIDTHS = (4, 8, 16)
"""Bytes of a stripe: vectors that every format has whole."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"m"})

    item_m: Item
    item_n: Item
    width: Annotated[int, Range(4, 16)]
    lanes: Vector
    local_k: Local
    local_n: Local
    unroll: Unroll
    loop_n: Parts = 1
    ahead: Annotated[int, Range(0, 1 << 14)] = 0

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: one partial sum per work-item and result."""
        return 4 * self.local_n * self.local_k * self.item_m * self.item_n * (self.local_k > 1)

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.width not in WIDTHS or self.lanes not in VECTOR_WIDTHS:
            return f"width={self.width} must be of {WIDTHS}, lanes={self.lanes} of {VECTOR_WIDTHS}"
        if self.width % self.lanes or self.width // self.lanes not in (1, 2, 4, self.width):
            return f"lanes={self.lanes} are not all, a half, a quarter or one of {self.width}"
        if self.local_k & (self.local_k - 1):
            return f"local_k={self.local_k} is no power of two, which adding in pairs needs"
        if self.loop_n > 1 and self.local_k * self.local_n > 1:
            return f"loop_n={self.loop_n} is for groups of one, not {self.local_k} x {self.local_n}"
        if (count := self.item_m * self.item_n * self.lanes) > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} lanes={self.lanes} needs {count} "
                f"accumulators per work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        cut = stripes(problem, self.width)
        if self.unroll % cut.count and cut.count % self.unroll:
            return f"unroll={self.unroll} and the {cut.count} stripes of a block do not divide"
        if (count := cut.of_row(problem.k)) % self.unroll:
            return f"unroll={self.unroll} does not divide the {count} stripes of a row"
        return None

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (self.local_k, self.local_n, 1), self.local_bytes),))


DEFAULT = Config(item_m=4, item_n=2, width=4, lanes=4, local_k=8, local_n=8, unroll=1)
TRAITS = Traits(rank=10)


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product of few rows with packed weights."""
    return isinstance(problem, PackedProblem) and problem.m <= MOST_ROWS


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        lanes = max(4, min(16, limits.native_float_width))
        rows, cut = min(problem.m, 8), stripes(problem, 16)
        # of 32 vector registers of 16 lanes sums take 24 at most, or 12 of 16: weights take others
        ahead = AHEAD if rows <= 2 else 0  # with more rows of x multiply-adds are the limit
        item_n = max(1, min(_outputs_at_once(rows, cut.halves), 3 * lanes // 2 // rows))
        return [
            Config(
                rows, each, 16, lanes, local_k=1, local_n=1, unroll=unroll,
                loop_n=_turns(problem.n, each, limits), ahead=ahead,
            )
            for each in dict.fromkeys((item_n, 1, 2))
            for unroll in (max(2, cut.count), 1)  # in whole blocks, places of numbers are constants
        ]  # fmt: skip
    width, local_k, local_n, most = _shape_for_gpus(problem)
    rows = 4 if limits.has_few_registers else 8
    return [
        Config(min(problem.m, rows), item_n, width, 4, lanes_k, local_n, unroll=1)
        for item_n in ((most, 2) if problem.m < 4 else (2, 1))
        for lanes_k in (local_k, 32, 64)
    ]


def _outputs_at_once(rows: int, halves: int) -> int:
    """Return how many rows of w a processor reads side by side: what was fastest.

    Rows that are asked for `AHEAD` share the loads of x and what a row's end costs. Those of more
    rows of x are not: one is then read ahead best. The more rows x has, the more it pays to load
    an item of x for several outputs, and the sooner if bytes are weights (`halves` 1), which take
    little unpacking.
    """
    if 2 < rows <= 4:
        return 1 if halves == 2 else 4
    return 2 if halves == 2 else 3


def _turns(n: int, item_n: int, limits: Limits) -> int:
    """Return how many outputs a work-item of a processor computes one after the other."""
    groups = GROUPS_PER_UNIT * limits.compute_units
    return max(1, min(MOST_IN_TURN, n // groups) // item_n)


def _shape_for_gpus(problem: PackedProblem) -> tuple[int, int, int, int]:
    """Return width, work-group and outputs of a work-item: what was fastest with one row."""
    if problem.packing.block > 32:  # more numbers for each stripe
        return 8, 64, 2, 4
    if problem.packing.group == 0:  # none
        return 4, 64, 2, 2
    return 4, 32, 4, 4


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch of the product."""
    packing = problem.packing
    cut = stripes(problem, config.width, paired=config.loop_n > 1)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **{name: value for name, value in asdict(config).items() if name != "width"},
            stripes=cut,
            preamble=dtype_preamble(problem.dtype),
            per_row=packing.group == 0,
        )

    groups_n = round_up(ceil_div(problem.n, config.item_n * config.loop_n), config.local_n)
    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(config.local_k, groups_n, ceil_div(problem.m, config.item_m)),
        local_size=(config.local_k, config.local_n, 1),
        args=arguments(
            problem, Scalar(problem.packing.row_bytes(problem.k)), Scalar(cut.of_row(problem.k))
        ),
        local_bytes=config.local_bytes,
    )
    return Plan((launch,))


def arguments(problem: PackedProblem, *last: Arg) -> tuple[Arg, ...]:
    """Return the arguments of a kernel that computes the problem, in the templates' order.

    Args:
        problem: whose row strides a caller may replace.
        last: what follows m and n.
    """
    scales = buffer("scales") if problem.packing.group is not None else ()
    return (
        *buffer("x"), Scalar(problem.k, name="ld_x"), *buffer("w"), *scales,
        *buffer("y"), Scalar(problem.n, name="ld_y"),
        Scalar(problem.m), Scalar(problem.n), *last,
    )  # fmt: skip
