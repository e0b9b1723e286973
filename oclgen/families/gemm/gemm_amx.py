"""GEMM in 16 bits on processors with AMX, whose tile registers hold 16 rows of 64 bytes.

It is `gemm_pairs` with tiles in the place of vectors: one instruction multiplies 16 x 32 items by
32 x 16, 16 times what a vector of pairs does. Products of fp16 need AMX-FP16. Processors without
these, and other dtypes, stay with the other families.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_amx_blocks import (
    PRODUCTS,
    SIDE,
    STEP,
    TILE_STEPS,
    must_pack,
    orders,
    roles,
    shapes,
    walk,
)
from oclgen.families.gemm.gemm_async_sharing import serpentine
from oclgen.families.gemm.gemm_pairs import splits
from oclgen.families.gemm.gemm_register_text import Results
from oclgen.families.gemm.gemm_register_tiles import AHEAD
from oclgen.families.gemm.gemm_tiles import lies_along_k, tiles_of
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.families.parts.packing import Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import probe
from oclgen.parameters import Item, Parts
from oclgen.plan import AnyLaunch, Launch, LazyText, Outline, Plan, Spread, ceil_div
from oclgen.problem import GemmProblem, Problem
from oclgen.registers import Registers, covered, product_of_tiles
from oclgen.render import dtype_preamble, render

NAME = "gemm_amx"

REGISTERS = 8
ROW_STEPS, COLUMN_STEPS = 256, 128
"""Steps of k that a work-item packs of 16 rows, or of a panel of columns: some 8 KiB, which cost
more than its start."""
COLUMNS = "gemm_pack_columns"
"""Template that packs the operand whose columns are those of tiles."""
LEAST_ROWS = 4
"""Rows from which on tiles are guessed: with fewer, a product reads B once and waits for it."""
PANEL_ITEMS = 1 << 15
"""Of columns that a work-item packs itself, which stay in the two nearest caches."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    item_m: Item
    item_n: Item
    blocks: Parts
    across: bool
    within: bool
    tile_k: Parts
    order: str
    swap: bool
    pack_rows: bool
    split_k: Parts

    @property
    def rows(self) -> int:
        """Rows of tiles per work-item, times 16: rows of A, or columns of B where they swap."""
        return self.item_n if self.swap else self.item_m

    @property
    def columns(self) -> int:
        """Columns of tiles per work-item, times 16."""
        return self.item_m if self.swap else self.item_n

    def conflict(self, problem: GemmProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return (
            limits.why_no(PRODUCTS[problem.dtype])
            or self._shape_conflict(problem)
            or self._layout_conflict(problem)
            or parts.empty_slice(problem.k, self.split_k, STEP)
        )

    def spread(self, problem: GemmProblem) -> Spread:
        """Return the sizes of the product's launch."""
        along_m, along_n = ceil_div(problem.m, self.item_m), ceil_div(problem.n, self.item_n)
        if self.swap != self.across:
            along_n = ceil_div(along_n, self.blocks)
        else:
            along_m = ceil_div(along_m, self.blocks)
        groups = (along_m, along_n) if self.order == "m" else (along_n, along_m)
        return Spread(NAME, (*groups, problem.batch * self.split_k), (1, 1, 1))

    def workspaces(self, problem: GemmProblem) -> tuple[tuple[str, int], ...]:
        """Return role and bytes of packed operands, and of planes."""
        spaces = sizes_of(self.packed(problem).values())
        return (*spaces, *planes_space(problem, self.split_k))

    def outline(self, problem: GemmProblem) -> Outline:
        """Return the plan without the product's text and arguments."""
        return Outline(_around(problem, self, self.spread(problem)), self.workspaces(problem))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column and a row of tiles: what counts are tiles."""
        used = covered(
            (problem.m, self.item_m), (problem.n, self.item_n), (problem.k / self.split_k, STEP)
        )
        return product_of_tiles(SIDE, self.columns // SIDE, self.rows // SIDE, used)

    def _shape_conflict(self, problem: GemmProblem) -> str | None:
        if self.item_m % SIDE or self.item_n % SIDE:
            return (
                f"item_m={self.item_m} item_n={self.item_n} are no multiples of {SIDE}, the rows "
                "and columns of a tile"
            )
        if self.tile_k % STEP:
            return f"tile_k={self.tile_k} is no multiple of {STEP}, the steps of k of a tile"
        operands = 4 if self.has_narrow_step(problem) else 2
        if (tiles := self.item_m * self.item_n // SIDE**2 + operands) > REGISTERS:
            return (
                f"item_m={self.item_m} item_n={self.item_n} needs {tiles} tiles of sums and "
                f"operands; a processor has {REGISTERS}"
            )
        if self.rows > max(_extent(problem, self.swap), SIDE):
            name, size = ("n", problem.n) if self.swap else ("m", problem.m)
            return f"item_{name}={self.rows} reads whole tiles, and {name}={size} has fewer"
        if self.order not in ("m", "n"):
            return f"order={self.order!r} is unknown; the fastest dimension is 'm' or 'n'"
        return None

    def _layout_conflict(self, problem: GemmProblem) -> str | None:
        role, other = roles(self.swap)
        if self.within and lies_along_k(problem, other):
            return f"{other} is stored along k, and turns before the product; use within=False"
        if self.within and self.tile_k * self.columns > PANEL_ITEMS:
            return (
                f"tile_k={self.tile_k} of {self.columns} columns within the product are more than "
                f"{PANEL_ITEMS} items of private memory"
            )
        if self.pack_rows:
            return None
        if not lies_along_k(problem, role):
            return f"{role} is not stored along k, and tiles are rows along k; use pack_rows=True"
        return None

    def has_narrow_step(self, problem: GemmProblem) -> bool:
        """Whether unpacked rows end within a step."""
        return not self.pack_rows and problem.k % STEP != 0

    def is_sliced(self, problem: GemmProblem) -> bool:
        """Whether sums wait in memory while other blocks take the same steps of k."""
        return self.blocks > 1 and ceil_div(problem.k, self.split_k) > self.tile_k

    def overwritten(self, problem: GemmProblem) -> int:
        """Return the rows behind a row that store over what its last vector stored past n.

        With 4 columns, 182700x4x10 in bf16 takes 0.51 ms, and 0.85 if each row is stored by halves.
        """
        past = self.item_n - problem.n
        is_free = "n" in problem.free or problem.bias == "n" or problem.residual
        return 0 if is_free or not 0 < past < SIDE else ceil_div(past, problem.n)

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are packed, by role: one as rows, one as panels of pairs."""
        left, right = roles(self.swap)
        columns = {} if self.within else {right: tiles_of(problem, right, self.columns, STEP)}
        return {left: tiles_of(problem, left, 1, STEP), **columns} if self.pack_rows else columns


DEFAULT = Config(
    item_m=16,
    item_n=32,
    blocks=1,
    across=False,
    within=False,
    tile_k=256,
    order="m",
    swap=False,
    pack_rows=True,
    split_k=1,
)
TRAITS = Traits(
    rank=25, conv_rank=310, instructions=frozenset(PRODUCTS.values()), rate=lambda _limits: 16
)


def _extent(problem: GemmProblem, swap: bool) -> int:
    return problem.n if swap else problem.m


def serves(problem: Problem) -> TypeGuard[GemmProblem]:
    """Say whether the family can compute the problem at all."""
    return isinstance(problem, GemmProblem) and problem.dtype in PRODUCTS


def guesses(problem: GemmProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if PRODUCTS[problem.dtype] not in limits.instructions or problem.m < LEAST_ROWS:
        return []
    return [
        _guess(problem, limits, swap, rows, columns, split_k)
        for swap in orders(problem)
        for rows, columns in shapes(problem, swap)
        for split_k in sorted({1, splits(problem, limits)[-1]}, reverse=True)
    ]


def _guess(
    problem: GemmProblem,
    limits: Limits,
    swap: bool,
    rows: int,
    columns: int,
    split_k: int,
) -> Config:
    item_m, item_n = (columns, rows) if swap else (rows, columns)
    turned = replace(problem, m=problem.n, n=problem.m, bias="none") if swap else problem
    along_k = lies_along_k(problem, roles(swap)[1])
    way = walk(turned, limits, (SIDE * rows, SIDE * columns), split_k, along_k)
    # neighbours along n write rows of C on and on, where a large C waits for memory
    return Config(
        item_m=SIDE * item_m, item_n=SIDE * item_n, **way._asdict(), tile_k=TILE_STEPS, order="n",
        swap=swap, pack_rows=must_pack(problem, swap), split_k=split_k,
    )  # fmt: skip


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launches: packing, the product, and the sum of its planes where k is split."""
    return Plan(_around(problem, config, _product(problem, config)), config.workspaces(problem))


def _around(
    problem: GemmProblem, config: Config, product: AnyLaunch
) -> tuple[Launch | AnyLaunch, ...]:
    """Return the product's launch between those that pack before it and the sum behind it."""
    packed = config.packed(problem)
    left, right = roles(config.swap)
    packs = []
    if not config.within:
        packs.append(_pack(COLUMNS, packed[right], config.columns, COLUMN_STEPS))
    if config.pack_rows:
        packs.append(_pack("gemm_pack_rows", packed[left], SIDE, ROW_STEPS))
    return *packs, *parts.with_sum(problem, config.split_k, product)


def tiles(dtype: str = "bf16") -> str:
    """Return the macros of the tile registers."""
    return probe.tiles(PRODUCTS[dtype])


@lru_cache(maxsize=64)
def _pack(template: str, packed: Packing, rows: int, steps: int) -> Launch:
    """Return the launch that packs an operand for tiles, k filled up with zeros.

    Args:
        template: of its kernel.
        packed: the operand.
        rows: rows, or columns, that a work-item packs.
        steps: steps of k that it packs.
    """

    @LazyText
    def text() -> str:
        return render(
            template,
            name=packed.workspace,
            steps=steps,
            along_k=packed.along_k,
            width=rows,
            transpose=transpose_text(SIDE),
            ahead=AHEAD[0],
        )

    launch = packed.launch(text, rows=rows, steps=steps)
    if template != COLUMNS or packed.along_k:
        return launch
    along_k, panels, batch = launch.global_size
    return replace(launch, global_size=(panels, along_k, batch))


def _product(problem: GemmProblem, config: Config) -> Launch:
    split = config.split_k > 1
    operands = {role: panels.argument() for role, panels in config.packed(problem).items()}
    high = _extent(problem, config.swap)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            tiles=tiles(problem.dtype),
            transpose=transpose_text(SIDE) if config.swap else "",
            **epilogue(problem, "c", split),
            text=Results(problem, config),
            pack_ahead=AHEAD[0],
            winding=serpentine("n", config.rows // SIDE, config.columns // SIDE),
            edge_rows=high % config.rows != 0,
            edge_m=False,  # the loop over rows ends at m
            edge_n=problem.n % config.item_n != 0,
            sliced=config.is_sliced(problem),
            overwritten=config.overwritten(problem),
            edge_k=config.has_narrow_step(problem),
            odd=not config.pack_rows and problem.k % 2 == 1,
        )

    args = parts.product_args(problem, config.split_k, STEP, operands)
    return config.spread(problem).launch(text, args)
