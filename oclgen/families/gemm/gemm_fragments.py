"""GEMM in half precision by matrix units that a sub-group feeds from registers: `fragments`.

Operands are packed first, as fragments lie in memory, so that every load is contiguous and needs
no guard. It is not for products of few rows, which packing costs more than it saves, nor for
devices whose units `oclgen.opencl.probe` did not see work.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_mma_tiles import Layout, pack
from oclgen.families.gemm.gemm_tiles import packed_operands
from oclgen.families.parts.blocking import ITEMS_PER_UNIT, fill
from oclgen.families.parts.epilogue import epilogue, plus_matrix_terms
from oclgen.families.parts.packing import PACK_ROWS, Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import fragments
from oclgen.opencl.fragments import STEPS, UNITS
from oclgen.parameters import Parts, Tile, Warps
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import GemmProblem, Problem, divided_by
from oclgen.render import dtype_preamble, render

NAME = "gemm_fragments"

FEWEST = 32
"""Rows and columns of C below which an operand is read too seldom to pay for packing it."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    FREE = parts.FREE

    unit: str
    tile_m: Tile
    tile_n: Tile
    subs_m: Warps
    subs_n: Warps
    ahead: bool
    split_k: Parts
    group_m: Parts

    @property
    def work_items(self) -> int:
        """Work-items per group."""
        return UNITS[self.unit].lanes * self.subs_m * self.subs_n

    @property
    def blocks(self) -> tuple[int, int]:
        """Fragments of C that a sub-group computes, along m and n."""
        unit = UNITS[self.unit]
        block_m, block_n = self.subs_m * unit.rows, self.subs_n * unit.columns
        return self.tile_m // block_m, self.tile_n // block_n

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group: sums of cooperative matrices on their way to lanes."""
        return 4 * UNITS[self.unit].staged_floats * self.subs_m * self.subs_n

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return both operands, packed, by role."""
        return packed_operands(problem, STEPS, a=self.tile_m, b=self.tile_n)

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.unit not in UNITS:
            return f"unit={self.unit} is unknown; there are {', '.join(UNITS)}"
        if reason := limits.why_no(self.unit):
            return f"unit={reason}"
        if problem.dtype not in (dtypes := UNITS[self.unit].dtypes):
            return f"unit={self.unit} multiplies {' and '.join(dtypes)}, not {problem.dtype}"
        if self.split_k > 1 and "k" in problem.free:
            return f"split_k={self.split_k} slices of a free k may be empty; use 1"
        if min(problem.m, problem.n) < FEWEST:
            return (
                f"C has {problem.m} x {problem.n} items; operands are packed, which pays from "
                f"{FEWEST} rows and columns on. Try gemm_dot or gemm_columns"
            )
        return self._shape_conflict() or parts.empty_slice(problem.k, self.split_k, STEPS)

    def _shape_conflict(self) -> str | None:
        unit = UNITS[self.unit]
        for axis, tile, block in (
            ("m", self.tile_m, self.subs_m * unit.rows),
            ("n", self.tile_n, self.subs_n * unit.columns),
        ):
            if tile % block:
                return (
                    f"tile_{axis}={tile} is no multiple of {block}, the fragments of "
                    f"subs_{axis} sub-groups of {self.unit}"
                )
            if tile % PACK_ROWS:
                return f"tile_{axis}={tile}: {PACK_ROWS} rows are packed at a time, use a multiple"
        sums = self.blocks[0] * self.blocks[1] * unit.sums
        if sums > unit.most_sums:
            return (
                f"tile {self.tile_m}x{self.tile_n} on {self.subs_m}x{self.subs_n} sub-groups needs "
                f"{sums} sums per lane; {self.unit} keeps at most {unit.most_sums}"
            )
        return None

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        spaces = sizes_of(self.packed(problem).values())
        frame = Frame(NAME, (self.work_items, 1, 1), self.local_bytes)
        return Needs((frame,), (*spaces, *planes_space(problem, self.split_k)))


DEFAULT = Config(
    unit="dpas8", tile_m=64, tile_n=64, subs_m=4, subs_n=4, ahead=False, split_k=1, group_m=8
)
TRAITS = Traits(rank=15, conv_rank=315, instructions=frozenset(UNITS), packing=DEFAULT)

_SHAPES = (
    (128, 128, 4, 4), (128, 128, 4, 2), (128, 128, 2, 2), (128, 64, 8, 4), (128, 64, 4, 2),
    (64, 64, 4, 4), (64, 64, 2, 2),
)  # fmt: skip
"""Rows and columns of a tile, and sub-groups along both, the best guess first: the largest tiles,
which units of many lanes and of few cut differently."""


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype in fragments.DTYPES


def units_for(problem: GemmProblem, limits: Limits) -> tuple[str, ...]:
    """Return the units that the device showed and that multiply the problem's dtype."""
    return tuple(
        name
        for name, unit in UNITS.items()
        if name in limits.instructions and problem.dtype in unit.dtypes
    )


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    return [
        Config(
            unit=unit, tile_m=tile_m, tile_n=tile_n, subs_m=subs_m, subs_n=subs_n, ahead=False,
            split_k=fill(problem, limits, tile_m, tile_n, STEPS, ITEMS_PER_UNIT), group_m=8,
        )
        for unit in units_for(problem, limits)
        for tile_m, tile_n, subs_m, subs_n in _SHAPES
    ]  # fmt: skip


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the packing of both operands, the product, and the sum of planes if k is split."""
    packs = [pack(tiles, _layout(tiles), swizzled=False) for tiles in _packed(problem, config)]
    product = parts.sum_planes(problem, config.split_k).behind(_product(problem, config))
    return Plan((*packs, *product.launches), config.needs(problem).workspaces)


def _packed(problem: GemmProblem, config: Config) -> tuple[Packing, ...]:
    return tuple(config.packed(problem).values())


def _layout(tiles: Packing) -> Layout:
    """Return how a tile lies in memory: rows of one fragment's steps, one behind the other."""
    return Layout(tiles.tile, STEPS, tiles.elem_bytes, along_k=True, packed=True, by_words=False)


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    operands = {role: tiles.argument() for role, tiles in config.packed(problem).items()}

    @LazyText
    def text() -> str:
        terms = epilogue(problem, "c", split)
        return render(
            NAME,
            **{**asdict(config), "unit": UNITS[config.unit]},
            blocks=config.blocks,
            steps=STEPS,
            preamble=dtype_preamble(problem.dtype),
            fragments=fragments.text(config.unit, problem.dtype),
            staged_alignment=fragments.STAGED_ALIGNMENT,
            **terms,
            terms=plus_matrix_terms(terms["bias"], terms["residual"]),
            edge_m=not divided_by(problem, "m", config.tile_m),
            edge_n=not divided_by(problem, "n", config.tile_n),
        )

    tiles = ceil_div(problem.m, config.tile_m) * ceil_div(problem.n, config.tile_n)
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(tiles * config.work_items, 1, problem.batch * config.split_k),
        local_size=(config.work_items, 1, 1),
        args=parts.product_args(problem, config.split_k, STEPS, operands),
        local_bytes=config.local_bytes,
    )
