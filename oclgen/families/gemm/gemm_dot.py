"""GEMM by inner products along k, for skinny products whose operands both lie along k.

It is not the family for large products: it reads more words per multiply-add than those that
broadcast one operand. A linear layer on few rows is its case: no transposition, no packing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_amx_blocks import are_fastest
from oclgen.families.gemm.gemm_tiles import lies_along_k, uneven_rows
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.expressions import vector_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Parts, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem, of_floats
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_dot"

FOR_UNITS = ("fp16", "bf16", "tf32")
"""What NVIDIA's matrix units multiply."""
LOAD_BYTES = 16
"""The largest load of a GPU's work-item."""
SHORT = 512
"""Steps of a reduction below which few work-items of a GPU share it."""
FEW_ROWS, LONG_K = 4, 128
"""Rows of A at most, and steps of k at least, with which a processor prefers inner products."""
MAX_ACCUMULATORS = 512
"""Private floats per work-item, vec_k for each element of C; more spill to memory."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE

    item_m: Item
    item_n: Item
    vec_k: Vector
    local_k: Local
    local_n: Local
    split_k: Parts

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: one partial sum per work-item and element of C."""
        return 4 * self.local_n * self.local_k * self.item_m * self.item_n * (self.local_k > 1)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec_k not in VECTOR_WIDTHS:
            return f"vec_k={self.vec_k} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.local_k & (self.local_k - 1):
            return f"local_k={self.local_k} is no power of two, which adding in pairs needs"
        if (count := self.item_m * self.item_n * self.vec_k) > MAX_ACCUMULATORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} vec_k={self.vec_k} needs {count} "
                f"accumulators per work-item; at most {MAX_ACCUMULATORS} stay in registers"
            )
        return parts.empty_slice(problem.k, self.split_k, self.vec_k)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.local_k, self.local_n, 1), self.local_bytes)
        return Needs((frame,), planes_space(problem, self.split_k))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the inner products of rows of A and columns of B, lanes along k."""
        m, n = self.item_m, self.item_n
        used = covered((problem.m, m), (problem.n, n), (problem.k, self.vec_k))
        return Registers(self.vec_k, m * n, n + 1, m * n, m + n, 0, used)


def leads(problem: GemmProblem, limits: Limits) -> bool:
    """Say whether it is preferred: of few rows on a processor, nothing else shares what it reads.

    On one core its first guess is 1.2 to 24 times as fast there as that of `gemm_register`, which
    gathers vectors along n; with k below `LONG_K`, 0.2 to 1.3 times.
    """
    return limits.kind == "cpu" and problem.m <= FEW_ROWS and problem.k >= LONG_K


DEFAULT = Config(item_m=2, item_n=2, vec_k=4, local_k=8, local_n=8, split_k=1)
TRAITS = Traits(rank=70, leads=leads)


class Side(NamedTuple):
    """An operand as text: `strided` if its only row or column does not lie along k."""

    name: str
    strided: bool

    def load(self, width: int, i: int, load: str = "LOAD") -> str:
        """Return the load of `width` steps of k of row (or column) i.

        Args:
            width: steps of k, lanes of the vector that is returned.
            i: row of A or column of B, of the work-item's.
            load: macro, without its width, that reads neighbours.
        """
        if not self.strided:
            return f"{load}{width}({self.name}{i} + p)"
        step = f"(long)ld_{self.name}"
        return vector_of(f"LOAD1({self.name}{i} + (p + {s}) * {step})" for s in range(width))

    def start(self, x: str) -> str:
        """Return where row (or column) x begins."""
        return f"{self.name} + {x}" + ("" if self.strided else f" * (long)ld_{self.name}")


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether both operands lie along k, or have no other neighbours than along k."""
    return (
        of_floats(problem)
        and (not problem.trans_a or _is_one(problem, "m"))
        and (problem.trans_b or _is_one(problem, "n"))
    )


def _is_one(problem: GemmProblem, size: str) -> bool:
    return size not in problem.free and getattr(problem, size) == 1


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if are_fastest(problem, limits):
        return []
    if limits.kind == "cpu":
        width, rows = limits.native_float_width, 8 if limits.has_32_vectors else 4
        shapes = ((min(problem.m, rows), 3), (min(problem.m, rows // 2), 6), (1, 8), (1, 4))
        return [
            Config(item_m=m, item_n=n, vec_k=width, local_k=1, local_n=1, split_k=1)
            for m, n in dict.fromkeys(shapes)
        ]
    if problem.dtype in FOR_UNITS and "mma" in limits.instructions and _is_uneven(problem):
        return []  # vectors of such rows are read by elements, and `gemm_mma` copies them in pieces
    shapes = ((min(problem.m, 4), 4), (min(problem.m, 8), 2), (1, 4), (1, 1))
    # 16 bytes at a time where all rows are so aligned; a short reduction leaves many lanes idle
    chunk = LOAD_BYTES // DTYPES[problem.dtype]
    vec_k = 4 if problem.k % chunk or limits.has_few_registers else chunk
    lanes = ((32, 4), (64, 4)) if problem.k >= SHORT else ((8, 16), (32, 4))
    return [
        Config(item_m=m, item_n=n, vec_k=vec_k, local_k=local_k, local_n=local_n, split_k=1)
        for m, n in dict.fromkeys(shapes)
        for local_k, local_n in lanes
    ]


def _is_uneven(problem: GemmProblem) -> bool:
    """Say whether vectors along k are not aligned; a single row or column may lie across k."""
    return any(lies_along_k(problem, role) for role in uneven_rows(problem))


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
            elem_bytes=DTYPES[problem.dtype],
            preamble=f"{dtype_preamble(problem.dtype)}\n{parts.aligned_preamble(problem.dtype)}",
            **epilogue(problem, "c", split),
            a=Side("a", problem.trans_a),
            b=Side("b", not problem.trans_b),
        )

    groups_n = round_up(ceil_div(problem.n, config.item_n), config.local_n)
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(
            config.local_k * ceil_div(problem.m, config.item_m),
            groups_n,
            problem.batch * config.split_k,
        ),
        local_size=(config.local_k, config.local_n, 1),
        args=parts.product_args(problem, config.split_k, config.vec_k),
        local_bytes=config.local_bytes,
    )
