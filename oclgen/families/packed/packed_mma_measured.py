"""What H200s measured of `packed_mma`: thresholds, and tables of the best tiles.

In a table the first row counts whose condition holds. `packed_mma_guesses` makes configs of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from oclgen.families.packed.packed_mma_config import COLUMNS, tile
from oclgen.packed_problem import PackedProblem
from oclgen.plan import ceil_div
from oclgen.problem import DTYPES

LONG_ROW = 8192
"""Weights of a row from which 16 warps share it."""
RESIDENT = 4096
"""Weights of a row, in tiles of all groups together, that a compute unit works on at a time."""
MOST_SHARING = 8
"""Warps of a work-group beside other work-groups for the same outputs."""
SLICE_WARPS = 12
"""The same at most where a unit has one work-group, which computes several blocks of outputs."""
SHORT_K = 3072
"""Weights of a row up to which one work-group multiplies all: to pass sums takes longer (us:
2x768x2304 of q4_0 8.2 and 5.8, 6x976x2816 of q4_k 8.3 and 6.6)."""
ONE_WARP = 512
"""Weights of a row of which one warp could keep all; two are faster."""
MOST_BULK_SLICES = 8
"""Slices of q8_0's k up to which bulk copies gain: with 11 of six warps 22.2 and 24.4 us."""
WIDE_K = 1536
"""Weights of a row above which one work-group of a unit multiplies two blocks of outputs at a time
by more than four rows in fp32, from registers (1.17 to 1.28 times as fast with four rows of 1792 to
2304 weights of 4 bits; with 768 and 1536 slower)."""
FEW_BYTES = 1 << 23
"""Weights of int8 below which a launch is over before groups have computed several blocks."""
MOST_WARPS = 16
"""Warps of a work-group that keep x and find registers enough for what they wait for."""
MOST_IDLE = 0.125
"""Part of the work that a guess lets warps wait for longer rows' sake."""
FEW_BLOCKS = 6
"""Blocks of outputs for each unit below which warps that share them fill it."""
MANY_BLOCKS = 8
"""Blocks of outputs for each unit above which it holds four work-groups that keep x, not three."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem on a device, by what the tables ask.

    Attributes:
        problem: the product.
        units: compute units of the device.
    """

    problem: PackedProblem
    units: int

    @property
    def blocks(self) -> int:
        """Blocks of outputs, along n."""
        return ceil_div(self.problem.n, COLUMNS)

    @property
    def is_wide(self) -> bool:
        """Whether x has 4 bytes, and so is multiplied in pieces."""
        return DTYPES[self.problem.dtype] == 4

    @property
    def is_long(self) -> bool:
        """Whether a row fills a unit by itself."""
        return self.problem.k >= RESIDENT

    @property
    def has_few(self) -> bool:
        """Whether units have few outputs each."""
        return self.problem.n < FEW_BLOCKS * COLUMNS * self.units

    @property
    def is_bytewise(self) -> bool:
        """Whether a weight has a byte or more."""
        return self.problem.packing.block_bytes >= self.problem.packing.block

    @property
    def is_blockwise(self) -> bool:
        """Whether the scales of such weights lie in their blocks."""
        return self.is_bytewise and self.problem.packing.group is None

    @property
    def is_narrow(self) -> bool:
        """Whether a weight has 5 bits at most, its scales included."""
        return 8 * self.problem.packing.block_bytes <= 5 * self.problem.packing.block

    @property
    def is_skewed(self) -> bool:
        """Whether rows of tiles of 256 weights begin at other multiples than copies do."""
        return tile(self.problem, 256).is_skewed


Value = TypeVar("Value")
Table = tuple[tuple[Callable[[Case], bool], Value], ...]


def first(table: Table[Value], case: Case) -> Value:
    """Return the value of the first row whose condition holds; the last row's always does."""
    return next(value for holds, value in table if holds(case))


LENGTHS: Table[tuple[int, ...]] = (
    # bytes in blocks: fewer warps wait for as many, if each has several blocks of outputs
    (lambda c: c.is_blockwise and c.is_wide and c.is_long and c.problem.m > 1, (512, 1024, 256)),
    (lambda c: c.is_blockwise and c.is_wide and c.is_long, (1024, 512, 256)),
    # work-groups of one warp: 3x10264x512 of q6_k 10.0 us, of two 8.5
    (lambda c: c.is_blockwise and not c.is_wide and c.problem.k <= ONE_WARP, (256, 512)),
    (lambda c: c.is_blockwise and not c.is_wide and c.blocks > c.units, (1024, 512, 256)),
    # a long k whose scales lie in the blocks: 1x14336x4096 of q4_0 0.69 and with 256 0.65
    (
        lambda c: c.is_long and not (c.is_wide or c.problem.packing.group or c.is_skewed),
        (512, 256, 1024),
    ),
    # 4x14336x4096 of int4_128z 0.74 and with 512 0.63, 4x2872x3328 of q4_0 0.62 and 0.58
    (lambda _: True, (256, 512, 1024)),
)
"""Weights of a tile, the best first, where warps keep x and have one tile of each row. Figures are
parts of the read rate, by turns."""

BULK: Table[int] = (
    # 512 weights of q8_0: 5x792x512 4.7 and 5.1 us; 768 of int8: 3x2088x768 5.6 and 6.2 us
    (lambda c: c.problem.format == "q8_0" and 512 < c.problem.k <= RESIDENT, 256),
    # short rows, more blocks than units: 7x10192x2304 13.7 and 12.2 us, 2x4456x1792 9.2 and 8.9
    (
        lambda c: (
            c.problem.format == "int8"
            and 1024 <= c.problem.k <= RESIDENT
            and (c.blocks <= c.units or c.problem.k > SHORT_K)
        ),
        256,
    ),
    (
        lambda c: (
            c.problem.format == "q6_k"
            and ONE_WARP < c.problem.k <= RESIDENT
            and c.problem.m <= 4
            and c.blocks > c.units
        ),
        512,
    ),
    # 4 bits, 8x14336x4096 of q4_k: 18.6 and 19.5 us
    (lambda _: True, 0),
)
"""Weights of a tile of the warps that share bulk copies, and so keep x; 0: they copy by `cp.async`.
Times are without and with bulk copies."""

TILES: Table[tuple[tuple[int, int], ...]] = (
    (
        lambda c: c.is_wide and c.is_narrow and not c.has_few,
        ((4, 128), (2, 128), (4, 256), (2, 256), (1, 256)),
    ),
    (lambda c: c.is_wide and c.is_narrow, ((2, 128), (4, 256), (2, 256), (1, 256))),
    (lambda c: c.is_narrow, ((2, 128), (1, 256), (1, 128))),
    (lambda c: c.is_wide and c.is_skewed and not c.has_few, ((4, 128), (2, 256), (1, 256))),
    (lambda c: c.is_wide and not c.has_few, ((4, 128), (2, 128), (2, 64), (1, 128), (1, 256))),
    (lambda c: c.is_wide, ((2, 128), (2, 64), (1, 128), (1, 256))),
    (lambda _: True, ((1, 128), (1, 256), (1, 64))),
)
"""(blocks_n, tile_k), the best first, where warps take several tiles of a row: some 4 KiB for a
warp to wait for; x in pieces is cut for more outputs."""

SHARING: Table[tuple[int, ...]] = (
    (lambda c: c.has_few and (c.is_bytewise or c.problem.k < LONG_ROW), (8, 4, 2)),
    (lambda c: c.has_few, (16, 8, 4, 2)),
    (lambda c: c.is_wide and c.is_skewed and not c.is_narrow, (2, 4)),
    (lambda _: True, (4, 2)),
)
"""Warps that share these rows, the best first: a unit with few outputs is filled by more."""
