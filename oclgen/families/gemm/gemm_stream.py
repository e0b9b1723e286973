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
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_stream"

MOST_ROWS = 16
"""Rows of A up to which sums of long pieces of B's rows fit into the caches of a core."""
FAR = 2**23
"""Bytes of B from which on it does not lie in a cache of a core. On a core of a Zen 4 with AVX-512
or AVX2's vectors, drawn products took 0.4 to 0.95 of the time of `gemm_register` from there on, and
0.8 to 1.1 with a B of 4 MiB and more."""
STEPS = 8
"""Rows of B that pass at once: as many streams as caches ask for ahead."""
LEAST_COLUMNS, SHARED_COLUMNS, MOST_COLUMNS = 256, 512, 4096
"""Columns of a product of more than `FEWEST_ROWS`, and of a work-item where cores share them: half
a page of each row. Columns of a work-item at most."""
FEWEST_ROWS, NARROW = 2, 32
"""Rows that gain with `NARROW` columns, too: 2x189x86776 tn takes 0.81 of the time of
`gemm_register`, 1x207x18029 0.68, but 8x101x14715 1.32 times as long."""
IN_FLIGHT = 8
"""Sums that a core adds to at once: those of neighbouring columns do not wait for each other."""
SUM_BYTES = 64 * KIB
"""Sums of a work-item at most, which lie in a core's second cache beside rows of B: with twice as
many, products of 6 rows and 5000 to 10000 columns took 1.2 to 1.7 times as long."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE - {"n"}  # the last vector of a row moves back: there is one at least
    SLICES = "split_k"

    item_m: Item
    tile_n: Annotated[int, Range(1, 1 << 16)]
    vec_n: Vector
    unroll_k: Unroll
    split_k: Parts

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec_n not in VECTOR_WIDTHS:
            return f"vec_n={self.vec_n} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.vec_n > problem.n:
            return f"vec_n={self.vec_n} is wider than n={problem.n}; use a smaller one"
        if self.tile_n % self.vec_n:
            return f"vec_n={self.vec_n} does not divide tile_n={self.tile_n}"
        if (sums := FLOAT_BYTES * self.item_m * self.tile_n) > SUM_BYTES:
            return (
                f"item_m={self.item_m} tile_n={self.tile_n} needs {sums} bytes of sums; at most "
                f"{SUM_BYTES} stay in a core's caches"
            )
        return parts.empty_slice(problem.k, self.split_k, self.unroll_k)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (1, 1, 1), 0)
        return Needs((frame,), planes_space(problem, self.split_k))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return a pass over the sums: a vector of them is loaded for each row of A.

        Rows of B lie as they are read, so that no step begins a page of its own.
        """
        used = covered((problem.m, self.item_m), (problem.n, self.vec_n))
        loads = self.unroll_k + self.item_m
        return Registers(
            width=self.vec_n, sums=IN_FLIGHT, operands=self.unroll_k,
            multiply_adds=self.item_m * self.unroll_k, vectors=loads, scalars=0, used=used,
            panel_step=1, strip_step=1,
        )  # fmt: skip


DEFAULT = Config(item_m=2, tile_n=64, vec_n=1, unroll_k=4, split_k=1)


def is_streamed(problem: Problem, limits: Limits) -> bool:
    """Say whether it is faster than any other family: few rows, and a B far from a processor."""
    if limits.kind != "cpu" or not serves(problem):
        return False
    is_far = problem.n * problem.k * DTYPES[problem.dtype] >= FAR
    is_wide = problem.n >= (NARROW if problem.m <= FEWEST_ROWS else LEAST_COLUMNS)
    is_known = "n" not in problem.free and problem.batch == 1
    return is_far and is_wide and is_known and problem.m <= MOST_ROWS


TRAITS = Traits(rank=33, for_cpus=True, leads=is_streamed, last_resort=True)


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
    share = min(problem.n, max(SHARED_COLUMNS, ceil_div(problem.n, limits.compute_units)))
    tile_n = min(most // width * width, round_up(share, width))
    slices = ceil_div(limits.compute_units, ceil_div(problem.n, tile_n))
    slices = max(1, min(slices, problem.k // (STEPS * STEPS)))
    # whole multiples of steps may need fewer slices
    slices = ceil_div(problem.k, parts.slice_length(problem.k, slices, STEPS))
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
            edge_n=not divided_by(problem, "n", config.vec_n),
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
        local_bytes=0,
    )
