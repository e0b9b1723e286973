"""How results of matrix units are stored: through the local memory of the tiles, in parts that fit.

It knows shapes and addresses; `mma_tiles.cl.mako` uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from oclgen.families.parts.packing import CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Staging:
    """A part of a work-group's results: some rows and columns of what each warp computes.

    With wgmma a "warp" is four. Rows lie one after the other, padded so that a warp meets no bank
    twice: it writes 16 bytes of eight rows at once or, of 32-bit results, 32 bytes of four.
    """

    tile_m: int
    tile_n: int
    warp_m: int
    warp_n: int
    part_m: int
    part_n: int
    result_bytes: int

    @property
    def rows(self) -> int:
        """Rows of the part."""
        return self.tile_m // self.warp_m * self.part_m

    @property
    def columns(self) -> int:
        """Columns of the part."""
        return self.tile_n // self.warp_n * self.part_n

    @property
    def has_whole_rows(self) -> bool:
        """Whether columns of the part are neighbours in C."""
        return self.part_n == self.warp_n or self.tile_n == self.warp_n

    @property
    def line_bytes(self) -> int:
        """Bytes from a row to the next."""
        written = self.result_bytes // 2  # chunks of a row that one instruction writes
        chunks = self.columns * self.result_bytes // CHUNK_BYTES
        padding = written if chunks // written % 2 == 0 else 0
        return (chunks + padding) * CHUNK_BYTES

    @property
    def bytes(self) -> int:
        """Bytes of local memory."""
        return self.rows * self.line_bytes

    def lanes(self, run: int, work_items: int) -> int:
        """Return how many neighbours store a row together, where each stores `run` results at once.

        The others of the work-group store other rows, each as many.

        Args:
            run: results that lie side by side in C; it divides the columns.
            work_items: of the work-group.
        """
        return gcd(self.columns // run, work_items)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First row and column, within what a warp computes, of each part of the tile."""
        return [
            (m, n)
            for m in range(0, self.warp_m, self.part_m)
            for n in range(0, self.warp_n, self.part_n)
        ]

    def row_in_tile(self, first: int) -> str:
        """Return the expression of `row` of the part whose first row is this, in the tile."""
        return _place("row", self.part_m, self.warp_m, self.tile_m, first)

    def column_in_tile(self, first: int) -> str:
        """Return the expression of `column` of the part whose first column is this, in the tile."""
        return _place("column", self.part_n, self.warp_n, self.tile_n, first)


def _place(name: str, part: int, warp: int, tile: int, first: int) -> str:
    """Return where row or column `name` of a part lies in the tile, of which a warp has `warp`."""
    inside = name if tile == warp or part == warp else f"{name} / {part} * {warp} + {name} % {part}"
    return f"{inside} + {first}" if first else inside


def staging(
    tile: tuple[int, int],
    warp: tuple[int, int],
    block: tuple[int, int],
    result_bytes: int,
    room: int,
) -> Staging:
    """Return the largest part of a tile that fits in `room` bytes; whole rows before whole blocks.

    Args:
        tile: rows and columns of the tile.
        warp: rows and columns of what a warp computes.
        block: rows and columns of the smallest part of that.
        result_bytes: of a staged result.
        room: bytes of local memory; a part of one block must fit.
    """
    sizes = [(m, warp[1]) for m in _parts(warp[0], block[0])]
    sizes += [(block[0], n) for n in _parts(warp[1], block[1])]
    parts = (Staging(*tile, *warp, *size, result_bytes) for size in sizes)
    return next(part for part in parts if part.bytes <= room)


def _parts(whole: int, unit: int) -> Iterator[int]:
    """Yield the divisors of `whole` that `unit` divides, largest first."""
    return (whole // n for n in range(1, whole // unit + 1) if whole % (n * unit) == 0)
