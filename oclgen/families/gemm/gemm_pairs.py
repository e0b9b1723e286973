"""GEMM in bf16 on processors that multiply pairs of bf16 and add them to fp32 in one instruction.

It is `gemm_register` with two steps of k at a time; processors without AVX512-BF16, and other
dtypes, stay with that one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_amx_blocks import are_fastest
from oclgen.families.gemm.gemm_register_text import PairsText
from oclgen.families.gemm.gemm_register_tiles import Tile, blocks_of_item
from oclgen.families.gemm.gemm_tiles import lies_along_k, pack_panels, packed_operands
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.packing import Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.parameters import Item, Parts
from oclgen.plan import AnyLaunch, Launch, LazyText, Outline, Plan, Spread, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import dtype_preamble, render

NAME = "gemm_pairs"

INSTRUCTION = "vdpbf16ps"
"""Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: it rounds to nearest even
and takes denormals for zeros, whatever the processor is set to. Sums of 2048 random products come
2.5e-7 (relative L2) near float64, as do those of `gemm_register`."""
LANES = 16
"""Sums of one instruction."""
PAIR = 2
MAX_VECTORS = 28
"""Vectors of sums beside which a pair of A and some of B still fit in 32 registers."""
MIN_SLICE = 256
"""Steps of the reduction below which no plane of its own pays."""
SHAPES, NARROW = ((6, 64), (12, 32), (8, 48)), (12, 16)
"""Rows and columns of tiles: with 24 vectors of sums loads cost least. Fewer rows of a single
vector took 0.9 of the time with 24 rows, whose stores wait for each other (7 columns, k 16)."""
FEW_ROWS = 4
"""Rows up to which one tile has all of them."""
LEFT = {32: 512, 64: 2048}
"""Steps of k from which on `gemm_dot_pairs` is always faster, by rows at most: of 12 products drawn
by seed 3069310 it takes 0.42 to 0.98 of the time."""
GROUPS_PER_UNIT = 4
"""Work-items that a core wants to share the work evenly; with fewer the reduction is split."""
FAR = 2**24
"""Bytes of A from which its rows are asked for ahead: they come from memory. 65938x11x222, 29 MB,
took 0.48 of the time, 79605x20x178 0.69, 110328x27x113 0.75; 4 MB that caches held took 1.08 to
1.22 times as long (one core of a Zen 5 beside other programs)."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    item_m: Item
    item_n: Item
    loop_m: Parts
    order: str
    pack_a: bool
    pack_b: bool
    split_k: Parts

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            limits.why_no(INSTRUCTION)
            or self._shape_conflict()
            or self._layout_conflict(problem)
            or parts.empty_slice(problem.k, self.split_k, PAIR)
        )

    def spread(self, problem: GemmProblem) -> Spread:
        """Return the sizes of the product's launch."""
        groups_m = ceil_div(problem.m, self.item_m * self.loop_m)
        groups_n = ceil_div(problem.n, self.item_n)
        groups = (groups_m, groups_n) if self.order == "m" else (groups_n, groups_m)
        return Spread(NAME, (*groups, problem.batch * self.split_k), (1, 1, 1))

    def workspaces(self, problem: GemmProblem) -> tuple[tuple[str, int], ...]:
        """Return role and bytes of packed operands, and of planes."""
        spaces = sizes_of(self.packed(problem).values())
        return (*spaces, *planes_space(problem, self.split_k))

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        return Outline(_around(problem, self, self.spread(problem)), self.workspaces(problem))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column of pairs of A and a row of pairs of B."""
        loop = outer_product(
            LANES,
            self.item_n // LANES,
            self.item_m,
            covered((problem.m, self.item_m), (problem.n, self.item_n)),
            panel_step=self.item_n if self.pack_b else problem.n,
            strip_step=self.item_m if self.pack_a else 1,
        )
        return replace(loop, multiply_adds=PAIR * loop.multiply_adds)

    def _shape_conflict(self) -> str | None:
        if self.item_n % LANES:
            return f"item_n={self.item_n} is no multiple of {LANES}, the sums of an instruction"
        if (vectors := self.item_m * self.item_n // LANES) > MAX_VECTORS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {vectors} vectors of sums per "
                f"work-item; at most {MAX_VECTORS} stay in registers"
            )
        if self.order not in ("m", "n"):
            return f"order={self.order!r} is unknown; the fastest dimension is 'm' or 'n'"
        return None

    def _layout_conflict(self, problem: GemmProblem) -> str | None:
        if not self.pack_a and not lies_along_k(problem, "a"):
            return "A is stored [k, m], where no pairs lie along k; use pack_a=True"
        if not self.pack_b and lies_along_k(problem, "b"):
            return "B is stored [n, k], where no vectors lie along n; use pack_b=True"
        if not self.pack_b and problem.n % self.item_n:
            return f"item_n={self.item_n} does not divide n={problem.n}; use pack_b=True"
        return None

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are packed, by role."""
        wanted = {"a": self.pack_a * self.item_m, "b": self.pack_b * self.item_n}
        return packed_operands(problem, PAIR, **wanted)


DEFAULT = Config(item_m=12, item_n=32, loop_m=1, order="m", pack_a=True, pack_b=True, split_k=1)


def rate(limits: Limits) -> float:
    """Return the multiply-adds in the time of one of fp32: beside tiles pairs are half as fast.

    So Sapphire Rapids' vectors and Zen 5's differ.
    """
    return 1.0 if TILES in limits.instructions else PAIR


TRAITS = Traits(rank=30, conv_rank=320, instructions=frozenset({INSTRUCTION}), rate=rate)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype == "bf16"


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    is_left = are_fastest(problem, limits) or is_left_to_dots(problem)
    if INSTRUCTION not in limits.instructions or is_left:
        return []
    few = problem.m < 32
    packs = ((False, False), (False, True)) if few else ((False, True), (True, True))
    return [
        Config(
            item_m=item_m, item_n=item_n, order="m",
            loop_m=_blocks_of_item(problem, limits, item_m, item_n),
            pack_a=pack_a or not lies_along_k(problem, "a"),
            pack_b=pack_b or lies_along_k(problem, "b"),
            split_k=splits(problem, limits)[-1],
        )
        for pack_a, pack_b in packs
        for item_m, item_n in _shapes(problem)
    ]  # fmt: skip


def is_left_to_dots(problem: GemmProblem) -> bool:
    """Say whether inner products are faster: of few rows, where both operands lie along k."""
    least = next((k for rows, k in LEFT.items() if problem.m <= rows), None)
    along_k = all(lies_along_k(problem, role) for role in "ab")
    return along_k and least is not None and problem.k >= least


def _shapes(problem: GemmProblem) -> list[tuple[int, int]]:
    """Return rows and columns of the tiles to guess, none of which has a vector without columns."""
    most = round_up(problem.n, LANES)
    if problem.m <= FEW_ROWS:
        return [(problem.m, min(item_n, most)) for item_n in (64, 32)]
    found = [shape for shape in SHAPES if shape[1] <= most]
    return found or [NARROW]


def _blocks_of_item(problem: GemmProblem, limits: Limits, item_m: int, item_n: int) -> int:
    """Return the tiles of a work-item, as `gemm_register` has them: a step takes two of k."""
    steps = replace(problem, k=ceil_div(problem.k, PAIR))
    return blocks_of_item(steps, limits, Tile(item_m, item_n // LANES), item_n)


def splits(problem: GemmProblem, limits: Limits) -> tuple[int, ...]:
    """Return the splits of k that are worth a sum of planes on such a processor."""
    tiles = problem.batch * ceil_div(problem.m, 32) * ceil_div(problem.n, 64)
    most = ceil_div(GROUPS_PER_UNIT * limits.compute_units, tiles)
    return tuple(
        split
        for split in (1, 2, 4, 8)
        if split == 1 or (split <= most and problem.k >= MIN_SLICE * split)
    )


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launches: packing, the product, and the sum of its planes where k is split."""
    return Plan(_around(problem, config, _product(problem, config)), config.workspaces(problem))


def _around(
    problem: GemmProblem, config: Config, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the product's launch between those that pack before it and the sum behind it."""
    packs = (pack_panels(panels, pairs=True) for panels in config.packed(problem).values())
    return *packs, *parts.with_sum(problem, config.split_k, product)


def dot() -> str:
    """Return the macro `DOT_PAIRS(acc, x, y)`."""
    return _dot()


@cache
def _dot() -> str:
    return render(INSTRUCTION)


def _asks_ahead(problem: GemmProblem, config: Config) -> bool:
    """Say whether rows of A are asked for while the block of rows before them is computed.

    A block of short rows ends before the processor has seen where its reads go.
    """
    return not config.pack_a and DTYPES[problem.dtype] * problem.m * problem.k > FAR


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    operands = {role: panels.argument() for role, panels in config.packed(problem).items()}

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            dot=dot(),
            **epilogue(problem, "c", split),
            text=PairsText(problem, config),
            edge_m=problem.m % config.item_m != 0,
            edge_n=problem.n % config.item_n != 0,
            edge_k=problem.k % PAIR != 0,
            ahead=_asks_ahead(problem, config),
        )

    args = parts.product_args(problem, config.split_k, PAIR, operands)
    return config.spread(problem).launch(text, args)
