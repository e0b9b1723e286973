"""Where matrix units' operands lie in a tile, as text: what the template of `mma_units` writes."""

from __future__ import annotations

from typing import NamedTuple

from oclgen.families.gemm.gemm_mma_tiles import PANEL_BYTES, Layout
from oclgen.families.parts.packing import CHUNK_BYTES

K_BYTES = 32
"""Bytes of k that one matrix instruction covers: 16 values of 16 bits or 8 of tf32."""


class Lane(NamedTuple):
    """What a lane of a warp reads of a fragment: its line across k and its chunk along k.

    `word` is added to the address where words are read one by one.
    """

    across: str
    along: str
    word: str = ""


def lane_of(side: str, lay: Layout) -> Lane:
    """Return which part of a fragment of side a or b a lane reads."""
    pairs = "lane % 8 + lane / 16 * 8"
    if lay.along_k:
        if side == "a":
            return Lane("lane % 16", "lane / 16")
        return Lane(pairs, "lane / 8 % 2")
    if lay.by_words:
        return Lane("lane / 16", "lane % 4", " + lane / 4 % 4 * 4")
    if side == "a":
        return Lane("lane / 8 % 2", pairs)
    return Lane("lane / 16", "lane % 16")


def moved(side: str, flip: int, add: int) -> str:
    """Return a place of side a or b with bits of its swizzle flipped, and moved on.

    Args:
        side: variable of the kernel that holds the place, in bytes.
        flip: bits to flip; 0: none.
        add: bytes to add; 0: none.
    """
    flipped = f"({side} ^ {flip})" if flip else side
    return f"{flipped} + {add}" if add else flipped


def words(side: str, lay: Layout, i: int, q: int) -> str:
    """Return the four words of fragment i at block q of k, each read on its own.

    Args:
        side: "a" or "b".
        lay: how the tile lies; its neighbours are rows or columns, of 4 bytes.
        i: fragment along rows or columns.
        q: block of k.
    """
    parts = []
    for high in (0, 1):
        for low in (0, 1):
            e, h = (low, high) if side == "a" else (high, low)
            chunks = 4 * i + 2 * e
            panel = chunks // 8 * lay.tile_k * PANEL_BYTES
            at = moved(side, chunks % 8 * CHUNK_BYTES, panel + (8 * q + 4 * h) * PANEL_BYTES)
            parts.append(f"word({at})")
    return ", ".join(parts)


def transposed(side: str, lay: Layout, i: int, q: int) -> str:
    """Return the place of fragment i at block q of k that `ldmatrix` transposes.

    Args:
        side: "a" or "b".
        lay: how the tile lies; its neighbours are rows or columns, of 2 bytes.
        i: fragment along rows or columns.
        q: block of 16 steps of k.
    """
    panel = 2 * i // 8 * lay.tile_k * PANEL_BYTES
    return moved(side, 2 * i % 8 * CHUNK_BYTES, panel + q * 16 * PANEL_BYTES)


def offset(lay: Layout, block: int, q: int) -> int:
    """Return how far wgmma's descriptor moves to a row and block of k, in units of 16 bytes.

    Args:
        lay: how the tile lies.
        block: first row or column of the block.
        q: block of k, of `K_BYTES`.
    """
    if lay.along_k:
        return (block * lay.row_bytes + K_BYTES * q) // CHUNK_BYTES
    return (block // lay.panel * lay.tile_k * PANEL_BYTES + q * 16 * PANEL_BYTES) // CHUNK_BYTES
