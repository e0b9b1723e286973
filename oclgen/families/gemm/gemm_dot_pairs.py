"""GEMM in bf16 by inner products of pairs, for few rows and operands that both lie along k.

It is `gemm_dot` on processors that multiply pairs of bf16 and add them to fp32 in one instruction.
`gemm_pairs` turns B there first, which takes longer than a product of few rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import TypeGuard

from oclgen.families.gemm import gemm_dot, gemm_pairs
from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_amx_blocks import are_fastest
from oclgen.families.gemm.gemm_pairs import INSTRUCTION, LANES, PAIR
from oclgen.families.gemm.gemm_register_text import Results
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import ConvProblem, GemmProblem, Problem, divided_by
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "gemm_dot_pairs"

STEP = PAIR * LANES
"""Steps of k of one instruction."""
MOST_VECTORS = 30
"""Vectors of sums and operands that live at once, of AVX-512's 32 registers."""
ROWS, COLUMNS = range(1, 15), (1, 2, 4, 8)
"""Rows and columns of tiles to guess."""
MOST_ROWS = 64
"""Rows up to which B may not be worth its packing: of 4096x4096, 64 rows take 7.6 ms and 9.0 by
`gemm_pairs`, 96 rows 12.0 and 10.7."""
SHORT, SHORT_ROWS = 256, 16
"""Steps of k below which adding lanes takes long, and rows up to which B's packing takes longer: 53
rows of 141 steps take three times as long as by `gemm_pairs`, 4 rows of 239 half as long."""
GUESSED = 3


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = frozenset({"m", "n", "batch"})

    item_m: Item
    item_n: Item
    split_k: Parts

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.item_n not in VECTOR_WIDTHS:
            return f"item_n={self.item_n} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if (vectors := _vectors(self.item_m, self.item_n)) > MOST_VECTORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {vectors} vectors of sums and "
                f"operands; at most {MOST_VECTORS} stay in registers"
            )
        return limits.why_no(INSTRUCTION) or parts.empty_slice(problem.k, self.split_k, STEP)

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (1, 1, 1)),), planes_space(problem, self.split_k))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the inner products of rows of A and columns of B, pairs of k in each lane."""
        m, n = self.item_m, self.item_n
        used = covered((problem.m, m), (problem.n, n), (problem.k, STEP))
        return Registers(LANES, m * n, min(m, n) + 1, PAIR * m * n, m + n, 0, used)


DEFAULT = Config(item_m=4, item_n=4, split_k=1)


def leads(problem: GemmProblem | ConvProblem, limits: Limits) -> bool:
    """Say whether it is preferred without a model: where `gemm_dot` would be."""
    if INSTRUCTION not in limits.instructions or not isinstance(problem, GemmProblem):
        return False
    return gemm_dot.leads(problem, limits)


TRAITS = Traits(
    rank=35, conv_rank=325, instructions=frozenset({INSTRUCTION}), leads=leads, rate=gemm_pairs.rate
)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether both operands lie along k, of at least as many steps as an instruction takes."""
    return (
        isinstance(problem, GemmProblem)
        and (problem.dtype, problem.trans_a, problem.trans_b) == ("bf16", False, True)
        and problem.k >= STEP
    )


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked by the time per multiply-add that rows and columns past the edges, loads, and
    sums of lanes add up to.
    """
    most = MOST_ROWS if problem.k >= SHORT else SHORT_ROWS
    is_able = INSTRUCTION in limits.instructions
    if problem.m > most or not is_able or are_fastest(problem, limits):
        return []
    shapes = sorted(
        (_time(m, n) * waste(problem.m, m) * waste(problem.n, n), -m * n, m, n)
        for m, n in product(ROWS, COLUMNS)
        if m <= problem.m and n <= problem.n and _vectors(m, n) <= MOST_VECTORS
    )
    return [Config(m, n, gemm_pairs.splits(problem, limits)[-1]) for *_, m, n in shapes[:GUESSED]]


def _time(m: int, n: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add."""
    return 1 + (m + n) / (m * n)


def _vectors(m: int, n: int) -> int:
    """Return the vectors that live at once: sums, the operand of fewer rows, one of the other."""
    return m * n + min(m, n) + 1


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
            dot=gemm_pairs.dot(),
            **epilogue(problem, "c", split),
            text=Results(problem, config),
            edge_m=not divided_by(problem, "m", config.item_m),
            edge_n=not divided_by(problem, "n", config.item_n),
            edge_k=problem.k % STEP != 0,
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(
            ceil_div(problem.m, config.item_m),
            ceil_div(problem.n, config.item_n),
            problem.batch * config.split_k,
        ),
        local_size=(1, 1, 1),
        args=parts.product_args(problem, config.split_k, STEP),
    )
