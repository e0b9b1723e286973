"""How `gemm_mma` keeps an operand's tiles in local memory, and the launch that packs one likewise.

It knows no matrix instruction; the swizzle is what they all read without a bank conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

from oclgen.families.gemm.gemm_tiles import WORK_ITEMS
from oclgen.families.parts.packing import Packing
from oclgen.plan import Launch, LazyText
from oclgen.render import render

CHUNK_BYTES = 16
"""What one work-item copies at a time, and what the swizzle moves."""
PANEL_BYTES = 128
"""Bytes of a row that does not lie along k: all 32 banks of local memory."""
PACK_ROWS = 64
"""Rows that a work-group packs, 128 bytes of each."""
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

    def neighbour(self, i: int, work_items: int) -> tuple[int, int]:
        """Return where the i-th chunk of a work-item lies: elements across k and along it.

        A work-group copies `work_items` chunks at a time, which are whole rows.
        """
        rows = i * work_items * CHUNK_BYTES // self.row_bytes
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


def pack_rows(rows: Packing) -> Launch:
    """Return the launch that copies matrices to dense rows, filled up with zeros to whole chunks.

    Args:
        rows: the matrices and their workspace; one tile takes all rows and steps of k.
    """
    layout = Layout(rows.tile, rows.tile_k, rows.elem_bytes, True, True, False)
    return pack(rows, layout, swizzled=False, bounded=True)


def pack(tiles: Packing, layout: Layout, swizzled: bool = True, bounded: bool = False) -> Launch:
    """Return the launch that packs an operand so that its tiles lie in memory like `layout`.

    Args:
        tiles: the operand and its workspace.
        layout: how a tile lies in local memory.
        swizzled: False: the tiles are for registers instead of local memory.
        bounded: the last tile ends with the last row, and is not filled up.
    """
    chunk = CHUNK_BYTES // layout.elem_bytes

    @LazyText
    def text() -> str:
        return render(
            "gemm_mma_pack",
            name=tiles.workspace,
            tile=layout.tile,
            tile_k=layout.tile_k,
            row_bytes=layout.row_bytes,
            swizzle=layout.swizzle("row") if swizzled else "0",
            along_k=tiles.along_k,
            bounded=bounded,
            word="uint" if layout.elem_bytes == 4 else "ushort",
            chunk=chunk,
            tf32=tiles.dtype == "tf32",
        )

    steps = PANEL_BYTES // layout.elem_bytes
    return tiles.launch(text, rows=PACK_ROWS, steps=steps, work_items=WORK_ITEMS)
