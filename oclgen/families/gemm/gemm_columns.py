"""GEMM of few rows whose B has its rows along n: B is read once, by as many as a GPU has room for.

It is `gemm_dot` for the other layout of B, and like that no family for large products.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import KIB, Limits
from oclgen.parameters import Item, Local, Parts, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem, divided_by, of_floats
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_columns"

SUM_BYTES = 16 * KIB
"""Local memory that every device has."""
MAX_ACCUMULATORS = 128
"""Private floats per work-item; more leave no registers for what is on its way."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE - {"n"}  # columns past the edge move back: there are vec_n of them

    item_m: Item
    vec_n: Vector
    unroll_k: Unroll
    local_n: Local
    local_k: Local
    split_k: Parts

    @property
    def item_n(self) -> int:
        """Columns of C per work-item."""
        return self.vec_n

    @property
    def sum_rows(self) -> int:
        """Rows of a work-item that slices exchange at a time: all that `SUM_BYTES` hold, or one."""
        row = 4 * self.local_n * self.local_k * self.vec_n
        fits = (count for count in range(self.item_m, 0, -1) if self.item_m % count == 0)
        return next((count for count in fits if count * row <= SUM_BYTES), 1)

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: the sums that slices exchange at a time."""
        return 4 * self.local_n * self.local_k * self.vec_n * self.sum_rows

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        for name in ("vec_n", "unroll_k"):
            if (width := getattr(self, name)) not in VECTOR_WIDTHS:
                return f"{name}={width} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.vec_n > problem.n:
            return f"vec_n={self.vec_n} is wider than n={problem.n}; use a smaller one"
        if (count := self.item_m * self.vec_n) > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} vec_n={self.vec_n} needs {count} accumulators per "
                f"work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return parts.empty_slice(problem.k, self.split_k, self.unroll_k)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.local_n, self.local_k, 1), self.local_bytes)
        return Needs((frame,), planes_space(problem, self.split_k))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column of A and a row of B."""
        used = covered((problem.m, self.item_m), (problem.n, self.vec_n))
        step = problem.m if problem.trans_a else 1
        return outer_product(
            self.vec_n, 1, self.item_m, used, panel_step=problem.n, strip_step=step
        )


DEFAULT = Config(item_m=2, vec_n=1, unroll_k=4, local_n=8, local_k=8, split_k=1)
TRAITS = Traits(rank=80)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether rows of B lie along n."""
    return of_floats(problem) and not problem.trans_b


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return []
    most = 8 if limits.has_few_registers else 16
    rows = next(width for width in (1, 2, 4, 8, 16) if width >= min(problem.m, most))
    vec_n = next(width for width in (4, 2, 1) if width <= problem.n)
    slices = min(128 if rows < 16 else 64, limits.max_work_group // 8)
    return [
        Config(rows, vec_n, unroll_k=4, local_n=local_n, local_k=local_k, split_k=split_k)
        for local_n, local_k, split_k in ((8, slices, 1), (16, 16, 2))
    ]


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
            sum_rows=config.sum_rows,
            elem_bytes=DTYPES[problem.dtype],
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
            **epilogue(problem, "c", split),
            trans_a=problem.trans_a,
            edge_m=not divided_by(problem, "m", config.item_m),
            edge_n=not divided_by(problem, "n", config.local_n * config.vec_n),
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(
            round_up(ceil_div(problem.n, config.vec_n), config.local_n),
            config.local_k * ceil_div(problem.m, config.item_m),
            problem.batch * config.split_k,
        ),
        local_size=(config.local_n, config.local_k, 1),
        args=parts.product_args(problem, config.split_k, config.unroll_k),
        local_bytes=config.local_bytes,
    )
