"""GEMM of many rows by a small B on GPUs: B and the rows of A of a work-group lie in local memory.

C has few columns and the reduction is short, so that reading A and writing C takes the time: all of
A that a work-group needs is on its way at once, and rows of C leave through local memory, side by
side. Such products are tall-and-skinny (TSM2, Chen et al., ICS 2019). A family whose tile has 64
columns computes most of them in vain, and waits for each step of the reduction.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.epilogue import epilogue
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem, of_floats
from oclgen.render import dtype_preamble, render

NAME = "gemm_tall"

LONGEST, WIDEST, LARGEST = 128, 128, 4096
"""Steps of the reduction, columns of C, and elements of B: beyond them there is so much to compute
that reading A and writing C is not what takes the time."""
FEWEST = 4096
"""Rows from which on there are work-groups enough for a GPU."""
MAX_ACCUMULATORS = 128
"""Private floats per work-item; more leave no registers for what is on its way."""
ACCESS_BYTES = 16
"""What a work-item copies at once."""
BROADCAST = 4
"""Floats of B that a work-item reads from local memory at once."""


ACROSS = (1, 2, 4, 8)
"""Work-items that share the columns of a row."""


def share(n: int, across: int) -> int:
    """Return the columns of each of `across` work-items: whole vectors where they are several."""
    return n if across == 1 else round_up(ceil_div(n, across), BROADCAST)


def pitch(row: int) -> int:
    """Return the floats between rows of local memory that work-items read side by side.

    Banks are 32, of a float each. Rows of an odd number of floats lie in different banks, of twice
    an odd number by pairs, and of four times an odd number by fours: as the work-items read them.
    """
    return row + BROADCAST if row % (2 * BROADCAST) == 0 else row


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = frozenset({"m", "batch"})  # a text knows n and k, whose loops it writes out

    item_m: Item
    item_n: Item
    local_m: Local
    local_n: Local

    @property
    def rows(self) -> int:
        """Rows of C per work-group."""
        return self.item_m * self.local_m

    @property
    def columns(self) -> int:
        """Columns of C per work-group."""
        return self.item_n * self.local_n

    def cells(self, problem: GemmProblem) -> int:
        """Return the floats of local memory for the rows of A, and of C behind them."""
        of_a = 0 if problem.trans_a else pitch(problem.k)
        return self.rows * max(of_a, pitch(min(problem.n, self.columns)))

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.local_n > 1 and self.item_n % BROADCAST:
            return f"item_n={self.item_n} of several work-items is no multiple of {BROADCAST}"
        if (count := self.item_m * self.item_n) > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {count} accumulators per "
                f"work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return None

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        floats = self.cells(problem) + problem.k * round_up(self.columns, BROADCAST)
        return Needs((Frame(NAME, (self.local_m, self.local_n, 1), 4 * floats),))


DEFAULT = Config(item_m=1, item_n=4, local_m=16, local_n=1)
TRAITS = Traits(rank=85)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether B is small: both of its sizes."""
    if not of_floats(problem) or problem.ragged:
        return False
    n, k = problem.n, problem.k
    return k <= LONGEST and n <= WIDEST and k * n <= LARGEST


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu" or problem.m < FEWEST:
        return []
    lanes = next(count for count in ACROSS if problem.n <= 32 * count)
    return [
        Config(item_m, share(problem.n, lanes), min(items, limits.max_work_group) // lanes, lanes)
        for item_m, items in ((2, 128), (1, 128), (1, 256), (2, 64), (1, 32))
    ]


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the product."""

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            elem_bytes=DTYPES[problem.dtype],
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
            **epilogue(problem, "c"),
            trans_a=problem.trans_a,
            trans_b=problem.trans_b,
            n=problem.n,
            k=problem.k,
            cells=config.cells(problem),
            pitch_a=pitch(problem.k),
            pitch_c=pitch(min(problem.n, config.columns)),
            width=ACCESS_BYTES // DTYPES[problem.dtype],
        )

    (frame,) = config.needs(problem).frames
    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(
            config.local_m * ceil_div(problem.m, config.rows),
            config.local_n * ceil_div(problem.n, config.columns),
            problem.batch,
        ),
        local_size=frame.local_size,
        args=parts.product_args(problem, 1, 1),
        local_bytes=frame.local_bytes,
    )
    return Plan((launch,))
