"""How `gemm_mma` keeps an operand's tiles in local memory, and the launch that packs one likewise.

It knows no matrix instruction; the swizzle is what they all read without a bank conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from oclgen.families.parts.packing import CHUNK_BYTES, Packing, pack_tiles
from oclgen.plan import Launch

PANEL_BYTES = 128
"""Bytes of a row that does not lie along k: all 32 banks of local memory."""
WORD_BYTES = 4
"""The least that `cp.async` copies."""
SWIZZLED_ROWS = 8
"""Rows behind which a swizzle repeats."""
ROW_BYTES = (128, 64, 32)
"""Rows the hardware knows a swizzle for; the place here is its code in a descriptor, less 1."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An operand's tile in local memory: rows of 32, 64 or 128 bytes in chunks of 16.

    With `along_k` there is one row per row (or column) of C, else one row per step of k in panels
    of 128 bytes. `packed`: memory holds the tiles as they lie in local memory. `by_words`: words
    are read one by one, since `ldmatrix` transposes 16-bit elements alone.
    """

    tile: int
    tile_k: int
    elem_bytes: int
    along_k: bool
    packed: bool
    by_words: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.tile_k * self.elem_bytes if self.along_k else PANEL_BYTES

    @property
    def bytes(self) -> int:
        """Bytes of the tile."""
        return self.tile * self.tile_k * self.elem_bytes

    @property
    def panel(self) -> int:
        """Elements in a row of a panel."""
        return PANEL_BYTES // self.elem_bytes

    def swizzle(self, row: str) -> str:
        """Return the expression that a chunk's index in `row` is exclusive-or'ed with.

        It is the hardware's own (PTX ISA, asynchronous warpgroup matrix instructions, shared
        memory layout): eight rows of one chunk lie in different banks. Where words are read one by
        one, four rows of eight words do.
        """
        if self.by_words:
            return f"({row} % 4 * 2)"
        rows_per_line = PANEL_BYTES // self.row_bytes
        line = f"{row} / {rows_per_line}" if rows_per_line > 1 else row
        return f"({line} % {self.row_bytes // CHUNK_BYTES})"

    def chunk_at(self, row: str, step: str, swizzled: bool = True) -> str:
        """Return the text of the chunk of a packed tile in which a row has a step of k.

        Args:
            row: text of the row; the swizzle is the same every eight rows.
            step: text of the step within the tile.
            swizzled: False: chunks lie in the order of k.
        """
        chunk = f"({step} / {CHUNK_BYTES // self.elem_bytes}"
        return (
            f"{row} * {self.row_bytes // CHUNK_BYTES} + "
            f"{chunk}{f' ^ {self.swizzle(row)}' if swizzled else ''})"
        )

    def neighbour(self, i: int, work_items: int, piece: int = CHUNK_BYTES) -> tuple[int, int]:
        """Return where the i-th piece of a work-item lies: elements across k and along it.

        A work-group copies `work_items` pieces at a time, which are whole rows.

        Args:
            i: which piece.
            work_items: of the work-group.
            piece: bytes of a piece.
        """
        rows = i * work_items * piece // self.row_bytes
        if self.along_k:
            return rows, 0
        return rows // self.tile_k * self.panel, rows % self.tile_k

    @property
    def descriptor(self) -> int:
        """The constant bits of wgmma's matrix descriptor: strides and swizzle, no address.

        PTX ISA, "Matrix descriptor format": the stride between groups of eight rows and, across
        k, that between panels, in units of 16 bytes.
        """
        stride = 8 * self.row_bytes
        leading = CHUNK_BYTES if self.along_k else self.tile_k * PANEL_BYTES
        code = ROW_BYTES.index(self.row_bytes) + 1
        return leading // 16 << 16 | stride // 16 << 32 | code << 62


@dataclass(frozen=True, slots=True)
class Pieces:
    """How an operand is copied whose rows are no multiple of 16 bytes: see `uneven_rows`.

    Neighbouring work-items copy neighbouring pieces: of 8 or 4 bytes, the largest that divide a row
    of `row_bytes` in memory. Where none does, rows may begin in the middle of a word (`halved`);
    then the words around a row are copied, one more than the tile has, which goes behind the
    stage's tiles, and the row is shifted by half a word.
    """

    layout: Layout
    row_bytes: int
    work_items: int

    @property
    def bytes(self) -> int:
        """Bytes of a piece."""
        return max(gcd(self.row_bytes, CHUNK_BYTES), WORD_BYTES)

    @property
    def halved(self) -> bool:
        """Whether rows may begin in the middle of a word."""
        return self.row_bytes % WORD_BYTES != 0

    @property
    def elements(self) -> int:
        """Elements of a piece."""
        return self.bytes // self.layout.elem_bytes

    @property
    def per_row(self) -> int:
        """Pieces of a row."""
        return self.layout.row_bytes // self.bytes

    @property
    def per_chunk(self) -> int:
        """Pieces of a chunk."""
        return CHUNK_BYTES // self.bytes

    @property
    def copies(self) -> int:
        """Pieces that a work-item copies of a tile."""
        return self.layout.bytes // (self.bytes * self.work_items)

    @property
    def rows(self) -> int:
        """Rows of the tile that may have to be shifted."""
        return self.layout.bytes // self.layout.row_bytes if self.halved else 0

    @property
    def may_fail(self) -> bool:
        """Whether a view may be aligned to less than a piece."""
        return not self.halved and self.elements > 1

    def turn(self, i: int) -> int:
        """Return by how many rows the swizzle of piece i differs from that of piece 0.

        Every eight rows it is the same.
        """
        return i * self.work_items * self.bytes // self.layout.row_bytes % SWIZZLED_ROWS

    @property
    def turns(self) -> tuple[int, ...]:
        """Return what `turn` gives for any piece."""
        return tuple(sorted({self.turn(i) for i in range(self.copies)}))


def pack_rows(rows: Packing) -> Launch:
    """Return the launch that copies matrices to dense rows, filled up with zeros to whole chunks.

    Args:
        rows: the matrices and their workspace; one tile takes all rows and steps of k.
    """
    layout = Layout(rows.tile, rows.tile_k, rows.elem_bytes, True, True, False)
    return pack(rows, layout, swizzled=False, bounded=True)


@lru_cache(maxsize=64)
def pack(tiles: Packing, layout: Layout, swizzled: bool = True, bounded: bool = False) -> Launch:
    """Return the launch that packs an operand so that its tiles lie in memory like `layout`.

    Args:
        tiles: the operand and its workspace.
        layout: how a tile lies in local memory.
        swizzled: False: the tiles are for registers instead of local memory.
        bounded: the last tile ends with the last row, and is not filled up.
    """
    within = layout.chunk_at("row", f"p % {layout.tile_k}", swizzled)
    rounded = tiles.dtype == "tf32"
    return pack_tiles(tiles, within, rounded, bounded, shifted=not bounded)
