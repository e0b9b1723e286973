"""GEMM of few rows on processors: a large B streams by, whole rows of it, past sums in a cache.

`gemm_register` keeps sums of some hundred columns in registers, and reads as little of each row of
B at a time. What memory brings beside it is late then: caches ask for what follows in a row, a page
at most.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.planes import FLOAT_BYTES, planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import KIB, Limits
from oclgen.parameters import Item, Parts, Range, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem, divided_by, of_floats
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_stream"

MOST_ROWS = 8
"""Rows of A up to which B is read as fast as it comes: their sums of a step take fewer cycles."""
FAR = 2**24
"""Bytes of B from which on it does not lie in a cache of a core. 1x4096x4096 takes 2.7 ms and by
`gemm_register` 6.4, 8x4096x4096 5.8 and 8.5, but 4x3072x768 0.30 and 0.21 (a core of a Zen 4)."""
STEPS = 8
"""Rows of B that pass at once: as many streams as caches ask for ahead."""
LEAST_COLUMNS, MOST_COLUMNS = 512, 4096
"""Columns of a work-item: half a page of each row at least, and whose sums stay near."""
SUM_BYTES = 128 * KIB
"""Sums of a work-item at most, which lie in a core's second cache."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE

    item_m: Item
    tile_n: Annotated[int, Range(1, 1 << 16)]
    vec_n: Vector
    unroll_k: Unroll
    split_k: Parts

    @property
    def item_n(self) -> int:
        """Columns of C per work-item."""
        return self.tile_n

    @property
    def local_bytes(self) -> int:
        """Bytes of the sums of a work-item."""
        return FLOAT_BYTES * self.item_m * self.tile_n

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec_n not in VECTOR_WIDTHS:
            return f"vec_n={self.vec_n} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.tile_n % self.vec_n:
            return f"vec_n={self.vec_n} does not divide tile_n={self.tile_n}"
        return parts.empty_slice(problem.k, self.split_k, self.unroll_k)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (1, 1, 1), self.local_bytes)
        return Needs((frame,), planes_space(problem, self.split_k))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column of A and a vector of a row of B."""
        used = covered((problem.m, self.item_m), (problem.n, self.vec_n))
        step = problem.m if problem.trans_a else 1
        return outer_product(
            self.vec_n, 1, self.item_m, used, panel_step=problem.n, strip_step=step
        )


DEFAULT = Config(item_m=2, tile_n=256, vec_n=1, unroll_k=4, split_k=1)


def is_streamed(problem: Problem, limits: Limits) -> bool:
    """Say whether it is faster than any other family: few rows, and a B far from a processor."""
    if limits.kind != "cpu" or not serves(problem):
        return False
    is_far = problem.n * problem.k * DTYPES[problem.dtype] >= FAR
    return is_far and problem.m <= MOST_ROWS and problem.n >= LEAST_COLUMNS and problem.batch == 1


TRAITS = Traits(rank=86, leads=is_streamed)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether rows of B lie along n."""
    return of_floats(problem) and not problem.trans_b


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return the config for an untuned problem where the family is the fastest, or none.

    Each core has whole rows of B, up to `MOST_COLUMNS` of them, or a slice of k where rows have
    fewer columns than cores have work for.
    """
    if not is_streamed(problem, limits):
        return []
    width = min(limits.native_float_width, max(VECTOR_WIDTHS))
    most = min(MOST_COLUMNS, SUM_BYTES // (FLOAT_BYTES * problem.m))
    share = max(LEAST_COLUMNS, ceil_div(problem.n, limits.compute_units))
    tile_n = round_up(min(most, share), width)
    slices = ceil_div(limits.compute_units, ceil_div(problem.n, tile_n))
    slices = max(1, min(slices, problem.k // (STEPS * STEPS)))
    return [Config(problem.m, tile_n, width, STEPS, slices)]


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the product and, where k is split, the launch that adds its planes."""
    return parts.sum_planes(problem, config.split_k).behind(_product(problem, config))


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            **epilogue(problem, "c", split),
            trans_a=problem.trans_a,
            edge_m=not divided_by(problem, "m", config.item_m),
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(
            ceil_div(problem.n, config.tile_n),
            ceil_div(problem.m, config.item_m),
            problem.batch * config.split_k,
        ),
        local_size=(1, 1, 1),
        args=parts.product_args(problem, config.split_k, config.unroll_k),
        local_bytes=config.local_bytes,
    )
