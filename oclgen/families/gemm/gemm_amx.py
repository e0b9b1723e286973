"""GEMM in 16 bits on processors with AMX, whose tile registers hold 16 rows of 64 bytes.

It is `gemm_pairs` with tiles in the place of vectors: one instruction multiplies 16 x 32 items by
32 x 16, 16 times what a vector of pairs does. Products of fp16 need AMX-FP16. Processors without
these, and other dtypes, stay with the other families.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TypeGuard

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.gemm.gemm_async_sharing import serpentine
from oclgen.families.gemm.gemm_pairs import splits
from oclgen.families.gemm.gemm_register_text import Results
from oclgen.families.gemm.gemm_register_tiles import AHEAD, Tile, blocks_of_item
from oclgen.families.gemm.gemm_tiles import lies_along_k, tiles_of
from oclgen.families.parts.epilogue import epilogue
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.families.parts.packing import Packing, sizes_of
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.opencl import probe
from oclgen.opencl.probe import HALF_TILES, TILES
from oclgen.parameters import Item, Parts
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, ceil_div
from oclgen.problem import GemmProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import dtype_preamble, render

NAME = "gemm_amx"

PRODUCTS = {"bf16": TILES, "fp16": HALF_TILES}
"""The instruction by dtype. That of bf16 rounds to nearest even as `vdpbf16ps` does, and takes
denormals for zeros (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
SIDE = 16
"""Rows of a tile, and columns of a tile of sums."""
STEP = 32
"""Steps of k of a tile of A."""
REGISTERS = 8
ROW_STEPS, COLUMN_STEPS = 256, 128
"""Steps of k that a work-item packs of 16 rows, or of a panel of columns: some 8 KiB, which cost
more than its start."""
COLUMNS = "gemm_pack_columns"
"""Template that packs the operand whose columns are those of tiles."""
LEAST_ROWS = 4
"""Rows from which on tiles are guessed: with fewer, a product reads B once and waits for it."""
ALIKE = 1000
"""Multiply-adds of the product for each item of packing by which orders may differ: a twentieth of
the time, at 0.1 ns an item and 450 multiply-adds each ns."""
SHAPES = ((1, 3), (2, 2), (1, 2), (1, 1))
"""Tiles of rows and of columns to guess. A step of 2 x 2 loads five tiles for four products, of
1 x 3 four for three, but only one of them from beyond the nearest cache."""
TILE_STEPS = 256
"""Steps of k of 48 columns that fill half of the nearest cache."""
PANEL_ITEMS = 1 << 15
"""Of columns that a work-item packs itself, which stay in the two nearest caches."""
MOST_BLOCKS = 16
"""Of a work-item."""
MOST_ROWS = 512
"""Rows up to which work-items pack columns: each does it once, or twice. With more, all rows read
columns that others packed: 3370x753x32 in fp16 takes 0.61 and 0.66 ms."""
FAR_ITEMS = 1 << 17
"""Of the rows of a work-item, which stay in the second cache while others pack its columns: with
four times as many 2048x2048x2048 takes twice as long."""
NEAR_ITEMS, LEAST_PANELS = 1 << 17, 4
"""Items of all columns that stay in the second cache, and panels of them, for which a work-item
takes columns one after the other: C is written along its rows then. 6814x300x160 in fp16 takes 0.70
ms and 0.83 down the rows, 3370x753x32 0.47 and 0.61."""


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

    def needs(self, problem: GemmProblem) -> Needs:
        """Return what the plan asks of a device."""
        spaces = sizes_of(self.packed(problem).values())
        planes = planes_space(problem, self.split_k)
        return Needs((Frame(NAME, (1, 1, 1)),), (*spaces, *planes))

    def in_registers(self, problem: GemmProblem) -> Registers:
        """Return the outer product of a column and a row of tiles: what counts are tiles."""
        used = covered(
            (problem.m, self.item_m), (problem.n, self.item_n), (problem.k / self.split_k, STEP)
        )
        return outer_product(SIDE, self.columns // SIDE, self.rows // SIDE, used)

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
        role, other = _roles(self.swap)
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
        if problem.k % 2:
            return f"k={problem.k} is odd, the last pair of a row has one item; use pack_rows=True"
        return None

    def has_narrow_step(self, problem: GemmProblem) -> bool:
        """Whether unpacked rows end within a step."""
        return not self.pack_rows and problem.k % STEP != 0

    def is_sliced(self, problem: GemmProblem) -> bool:
        """Whether sums wait in memory while other blocks take the same steps of k."""
        return self.blocks > 1 and ceil_div(problem.k, self.split_k) > self.tile_k

    def packed(self, problem: GemmProblem) -> dict[str, Packing]:
        """Return the operands that are packed, by role: one as rows, one as panels of pairs."""
        left, right = _roles(self.swap)
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
TRAITS = Traits(rank=25, conv_rank=310, instructions=frozenset(PRODUCTS.values()), rate=16)


def _roles(swap: bool) -> tuple[str, str]:
    """Return the roles of the operand whose rows are tiles' rows, and of the other one."""
    return ("b", "a") if swap else ("a", "b")


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
        for swap in _orders(problem)
        for rows, columns in _shapes(problem, swap)
        for split_k in sorted({1, splits(problem, limits)[-1]}, reverse=True)
    ]


def _orders(problem: GemmProblem) -> list[bool]:
    """Return whether operands swap: the order that packs less first, the other if it costs alike.

    Products of either order take equal times, so that packing decides: 128x1024x1024 nt takes 0.29
    and 0.50 ms.
    """
    first, second = sorted((False, True), key=lambda swap: _packing_cost(problem, swap))
    more = _packing_cost(problem, second) - _packing_cost(problem, first)
    return [first, second] if ALIKE * more < prod((problem.m, problem.n, problem.k)) else [first]


def _packing_cost(problem: GemmProblem, swap: bool) -> int:
    """Return the items that are read and written once more before the product.

    What turns in registers counts twice: 4945 x 312 items in 0.8 ms, side by side in a third of it.
    """
    left, right = _roles(swap)
    of_rows = prod(problem.buffers[left]) * (1 if lies_along_k(problem, left) else 2)
    of_columns = prod(problem.buffers[right]) * (2 if lies_along_k(problem, right) else 1)
    return of_columns + (of_rows if _must_pack(problem, swap) else 0)


def _must_pack(problem: GemmProblem, swap: bool) -> bool:
    """Return whether rows have to be packed; else they are read faster as they lie."""
    return not lies_along_k(problem, _roles(swap)[0]) or problem.k % 2 == 1


def _shapes(problem: GemmProblem, swap: bool) -> list[tuple[int, int]]:
    """Return the tiles' rows and columns to guess, none of which is empty."""
    high, wide = (problem.n, problem.m) if swap else (problem.m, problem.n)
    return [
        (rows, columns)
        for rows, columns in SHAPES
        if SIDE * rows <= max(high, SIDE) and SIDE * (columns - 1) < wide
    ]


def _guess(
    problem: GemmProblem,
    limits: Limits,
    swap: bool,
    rows: int,
    columns: int,
    split_k: int,
) -> Config:
    # neighbours along n write rows of C on and on, where a large C waits for memory
    item_m, item_n = (columns, rows) if swap else (rows, columns)
    turned = replace(problem, m=problem.n, n=problem.m, bias="none") if swap else problem
    high, wide = SIDE * rows, SIDE * columns
    within = not lies_along_k(problem, _roles(swap)[1]) and turned.m <= MOST_ROWS
    across = turned.m <= high if within else _writes_rows(turned, wide)
    if within and across:
        blocks = _panels_of_item(turned, limits, wide, split_k)
    else:
        blocks = _blocks_of_item(turned, limits, (high, wide), across, split_k)
    if not (within or across):
        blocks = min(blocks, 1 << (max(1, FAR_ITEMS // (high * problem.k)).bit_length() - 1))
    return Config(
        item_m=SIDE * item_m, item_n=SIDE * item_n, blocks=blocks, across=across, within=within,
        tile_k=TILE_STEPS, order="n", swap=swap, pack_rows=_must_pack(problem, swap),
        split_k=split_k,
    )  # fmt: skip


def _writes_rows(problem: GemmProblem, wide: int) -> bool:
    """Return whether a work-item takes columns one after the other, though others packed them."""
    is_near = problem.k <= TILE_STEPS and problem.k * problem.n <= NEAR_ITEMS
    return is_near and problem.n > (LEAST_PANELS - 1) * wide


def _panels_of_item(problem: GemmProblem, limits: Limits, wide: int, split_k: int) -> int:
    """Return how many neighbouring panels a work-item packs: as many as leave each core one.

    Rows of neighbours share lines and pages: 16x384x69696 takes 6.7 ms with eight, 8.6 with one.
    """
    panels = ceil_div(problem.n, wide)
    found = min(MOST_BLOCKS, 1 << (panels - 1).bit_length())
    slices = problem.batch * split_k
    while found > 1 and slices * ceil_div(panels, found) < limits.compute_units:
        found //= 2
    return found


def _blocks_of_item(
    problem: GemmProblem, limits: Limits, tile: tuple[int, int], across: bool, split_k: int
) -> int:
    """Return the blocks of a work-item, as `gemm_register` has them."""
    along, other = (problem.n, problem.m) if across else (problem.m, problem.n)
    high, wide = reversed(tile) if across else tile
    slices, k = problem.batch * split_k, ceil_div(problem.k, split_k * STEP)
    steps = replace(problem, batch=slices, m=along, n=other, k=k, bias="none")
    return blocks_of_item(steps, limits, Tile(high, wide // SIDE), wide, MOST_BLOCKS)


def plan(problem: GemmProblem, config: Config) -> Plan:
    """Return the launches: packing, the product, and the sum of its planes where k is split."""
    packed = config.packed(problem)
    left, right = _roles(config.swap)
    packs = []
    if not config.within:
        packs.append(_pack(COLUMNS, packed[right], config.columns, COLUMN_STEPS))
    if config.pack_rows:
        packs.append(_pack("gemm_pack_rows", packed[left], SIDE, ROW_STEPS))
    product = parts.sum_planes(problem, config.split_k).behind(_product(problem, config))
    return Plan((*packs, *product.launches), config.needs(problem).workspaces)


def tiles(dtype: str = "bf16") -> str:
    """Return the macros of the tile registers."""
    return probe.tiles(PRODUCTS[dtype])


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
            edge_m=False,
            edge_n=problem.n % config.item_n != 0,
            sliced=config.is_sliced(problem),
            edge_k=config.has_narrow_step(problem),
        )

    along_m, along_n = ceil_div(problem.m, config.item_m), ceil_div(problem.n, config.item_n)
    if config.swap != config.across:
        along_n = ceil_div(along_n, config.blocks)
    else:
        along_m = ceil_div(along_m, config.blocks)
    depth = problem.batch * config.split_k
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(*((along_m, along_n) if config.order == "m" else (along_n, along_m)), depth),
        local_size=(1, 1, 1),
        args=parts.product_args(problem, config.split_k, STEP, operands),
    )
