"""GEMM in bf16 on processors with AMX, whose tile registers hold 16 rows of 64 bytes.

It is `gemm_pairs` with tiles in the place of vectors: one instruction multiplies 16 x 32 items by
32 x 16, 16 times what a vector of pairs does. Processors without AMX, and other dtypes, stay with
the other families.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_pairs import splits
from oclgen.families.gemm.gemm_register_text import Results
from oclgen.families.gemm.gemm_register_tiles import Tile, blocks_of_item
from oclgen.families.gemm.gemm_tiles import lies_along_k, pack_panels, tiles_of
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.packing import Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl.probe import TILES
from oclgen.parameters import Item, Parts
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import GemmProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "gemm_amx"

INSTRUCTION = TILES
"""Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: as `vdpbf16ps` it rounds
to nearest even, and takes denormals for zeros."""
SIDE = 16
"""Rows of a tile, and columns of a tile of sums."""
STEP = 32
"""Steps of k of a tile of A."""
REGISTERS = 8
PACK_STEPS = 256
"""Steps of k of 16 rows that a work-item packs: some 8 KiB, which cost more than its start."""
LEAST_ROWS = 4
"""Rows from which on tiles are guessed: with fewer, a product reads B once and waits for it."""
SHAPES = ((2, 2), (1, 3), (1, 2), (1, 1))
"""Tiles of rows and of columns to guess; a step of 2 x 2 loads one tile for each product, of 1 x 3
four for three."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    item_m: Item
    item_n: Item
    loop_m: Parts
    order: str
    pack_a: bool
    split_k: Parts

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            limits.why_no(INSTRUCTION)
            or self._shape_conflict(problem)
            or self._layout_conflict(problem)
            or parts.empty_slice(problem.k, self.split_k, STEP)
        )

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        spaces = sizes_of(self.packed(problem).values())
        planes = planes_space(problem, self.split_k)
        return Needs((Frame(NAME, (1, 1, 1)),), (*spaces, *planes))

    def _shape_conflict(self, problem: GemmProblem) -> str | None:
        if self.item_m % SIDE or self.item_n % SIDE:
            return (
                f"item_m={self.item_m} item_n={self.item_n} are no multiples of {SIDE}, the rows "
                "and columns of a tile"
            )
        rows, columns = self.item_m // SIDE, self.item_n // SIDE
        if (tiles := rows * columns + rows + columns) > REGISTERS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {tiles} tiles of sums and "
                f"operands; a processor has {REGISTERS}"
            )
        if self.item_m > max(problem.m, SIDE):
            return f"item_m={self.item_m} reads whole tiles, and m={problem.m} has fewer rows"
        if self.order not in ("m", "n"):
            return f"order={self.order!r} is unknown; the fastest dimension is 'm' or 'n'"
        return None

    def _layout_conflict(self, problem: GemmProblem) -> str | None:
        if self.pack_a:
            return None
        if not lies_along_k(problem, "a"):
            return "A is stored [k, m], and tiles are rows along k; use pack_a=True"
        if problem.k % 2:
            return f"k={problem.k} is odd, and the last pair of a row has one item; use pack_a=True"
        return None

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are packed, by role: A as rows, B as panels of pairs."""
        panels = {"b": tiles_of(problem, "b", self.item_n, STEP)}
        return {"a": tiles_of(problem, "a", 1, STEP), **panels} if self.pack_a else panels


DEFAULT = Config(item_m=16, item_n=32, loop_m=1, order="m", pack_a=True, split_k=1)
TRAITS = Traits(rank=25, conv_rank=310, instructions=frozenset({INSTRUCTION}), rate=16)


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype == "bf16"


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if INSTRUCTION not in limits.instructions or problem.m < LEAST_ROWS:
        return []
    must = not lies_along_k(problem, "a") or problem.k % 2 == 1
    return [
        Config(
            item_m=SIDE * rows, item_n=SIDE * columns, order="m",
            loop_m=_blocks_of_item(problem, limits, SIDE * rows, SIDE * columns),
            pack_a=pack_a, split_k=split_k,
        )
        for rows, columns in SHAPES
        if SIDE * rows <= max(problem.m, SIDE) and SIDE * (columns - 1) < problem.n
        for pack_a in ((True,) if must else (False, True))
        for split_k in sorted({1, splits(problem, limits)[-1]}, reverse=True)
    ]  # fmt: skip


def _blocks_of_item(problem: GemmProblem, limits: Limits, item_m: int, item_n: int) -> int:
    """Return the tiles of a work-item, as `gemm_register` has them: a step takes 32 of k."""
    steps = replace(problem, k=ceil_div(problem.k, STEP))
    return blocks_of_item(steps, limits, Tile(item_m, item_n // SIDE), item_n)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launches: packing, the product, and the sum of its planes where k is split."""
    packed = config.packed(problem)
    packs = [pack_panels(packed["b"], pairs=True)]
    if config.pack_a:
        packs.append(_pack_rows(packed["a"]))
    product = parts.sum_planes(problem, config.split_k).behind(_product(problem, config))
    return Plan((*packs, *product.launches), config.needs(problem).workspaces)


def tiles() -> str:
    """Return the macros of the tile registers."""
    return render(INSTRUCTION)


def _pack_rows(rows: Packing) -> Launch:
    """Return the launch that packs an operand as rows along k, filled up with zeros."""

    @LazyText
    def text() -> str:
        return render("gemm_pack_rows", name=rows.workspace, steps=PACK_STEPS, along_k=rows.along_k)

    return rows.launch(text, rows=SIDE, steps=PACK_STEPS)


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    operands = {role: panels.argument() for role, panels in config.packed(problem).items()}

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            tiles=tiles(),
            **epilogue(problem, "c", split),
            text=Results(problem, config),
            edge_m=problem.m % config.item_m != 0,
            edge_n=problem.n % config.item_n != 0,
            edge_k=not config.pack_a and problem.k % STEP != 0,
        )

    groups_m = ceil_div(problem.m, config.item_m * config.loop_m)
    groups_n = ceil_div(problem.n, config.item_n)
    depth = problem.batch * config.split_k
    m_first = config.order == "m"
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(groups_m, groups_n, depth) if m_first else (groups_n, groups_m, depth),
        local_size=(1, 1, 1),
        args=parts.product_args(problem, config.split_k, STEP, operands),
    )
