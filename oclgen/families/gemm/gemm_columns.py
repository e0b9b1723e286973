"""GEMM of few rows whose B has its rows along n: B is read once, by as many as a GPU has room for.

It is `gemm_dot` for the other layout of B, and like that no family for large products.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.epilogue import epilogue
from oclgen.limits import KIB, Limits
from oclgen.plan import Launch, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_columns"

SUM_BYTES = 16 * KIB
"""Local memory that every device has."""
MAX_ACCUMULATORS = 128
"""Private floats per work-item; more leave no registers for what is on its way."""


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the kernel; the legend stands at the head of its template."""

    item_m: int
    vec_n: int
    unroll_k: int
    local_n: int
    local_k: int
    split_k: int

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

    def why_not(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
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
        if self.local_bytes > limits.local_bytes:
            return (
                f"local_k={self.local_k} local_n={self.local_n} needs {self.local_bytes} B of "
                f"local memory; the device has {limits.local_bytes}. Try a smaller local_k"
            )
        return (
            parts.empty_slice(problem.k, self.split_k, self.unroll_k)
            or parts.planes_too_large(problem, self.split_k, limits)
            or parts.work_group_too_large(self.local_n, self.local_k, limits)
        )


DEFAULT = Config(item_m=2, vec_n=1, unroll_k=4, local_n=8, local_k=8, split_k=1)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether rows of B lie along n."""
    return isinstance(problem, GemmProblem) and not problem.trans_b


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the product and, where k is split, the launch that adds its planes."""
    return parts.with_planes(_product(problem, config), problem, config.split_k)


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    source = render(
        NAME,
        **asdict(config),
        sum_rows=config.sum_rows,
        elem_bytes=DTYPES[problem.dtype],
        preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
        **epilogue(problem, "c", split),
        trans_a=problem.trans_a,
        edge_m=problem.m % config.item_m != 0,
        edge_n=problem.n % (config.local_n * config.vec_n) != 0,
    )
    return Launch(
        source=source,
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
