"""The inner loop of a work-item on a processor, as counts of vectors: what a family declares.

It knows no device: a vector that is wider than the device's takes several registers, and a narrower
one leaves lanes idle. `oclgen.predictor` derives features from both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oclgen.plan import ceil_div, round_up


@dataclass(frozen=True, slots=True)
class Registers:
    """The vectors of an inner loop; a step of it multiplies and adds `multiply_adds` vectors.

    Attributes:
        width: lanes of a vector.
        sums: vectors of accumulators, which live through the loop.
        operands: vectors of operands that live at once beside them.
        multiply_adds: multiply-adds of vectors in a step.
        vectors: vectors that a step loads.
        scalars: numbers that a step loads one by one: to broadcast them, or to gather a vector.
        used: part of all lanes of all work-items that hold results.
        panel_step, strip_step: items between what one step of the reduction loads as vectors, or as
            scalars, and what the next one does; 0 where it is not known.
        steps: of the innermost loop, before the next loop around it goes on; 0: not known.
        written: multiply-adds in the loop's text, more than `multiply_adds` where edges have code
            of their own; 0: not known.
        of_items: whether the lanes are neighbouring work-items, of which the compiler joins as many
            as a register has lanes, and computes the others afterwards.
        of_tiles: whether a vector is a register of AMX, which has eight of them: its product takes
            so long that half as many hide its latency, and hide two loads.
    """

    width: int
    sums: int
    operands: int
    multiply_adds: int
    vectors: int
    scalars: int
    used: float = 1.0
    panel_step: int = 0
    strip_step: int = 0
    steps: int = 0
    written: int = 0
    of_items: bool = False
    of_tiles: bool = False

    def of_vector(self, native_width: int) -> int:
        """Return the registers of a vector where a register has `native_width` lanes."""
        return 1 if self.of_items else ceil_div(self.width, native_width)

    def lanes(self, native_width: int) -> int:
        """Return the lanes of a vector where a register has `native_width` lanes."""
        return min(self.width, native_width) if self.of_items else self.width


def product_of_tiles(side: int, columns: int, rows: int, used: float) -> Registers:
    """Return a loop that multiplies each tile of a column with each of a row.

    Args:
        side: columns of a tile of sums.
        columns: tiles of columns.
        rows: tiles of rows.
        used: part of the tiles that holds results.
    """
    return replace(outer_product(side, columns, rows, used), of_tiles=True)


def outer_product(
    width: int,
    vectors: int,
    scalars: int,
    used: float = 1.0,
    gathered: bool = False,
    panel_step: int = 0,
    strip_step: int = 0,
) -> Registers:
    """Return a loop that multiplies each of `vectors` with each of `scalars` broadcasts.

    Args:
        width: lanes of a vector.
        vectors: loaded per step.
        scalars: loaded and broadcast per step.
        used: part of the lanes that hold results.
        gathered: whether the lanes of a vector do not lie side by side, and are loaded one by one.
        panel_step: see `Registers`.
        strip_step: see `Registers`.
    """
    products = vectors * scalars
    return Registers(
        width=width,
        sums=products,
        operands=vectors + 1,
        multiply_adds=products,
        vectors=0 if gathered else vectors,
        scalars=scalars + (vectors * width if gathered else 0),
        used=used,
        panel_step=panel_step,
        strip_step=strip_step,
    )


def covered(*axes: tuple[float, int]) -> float:
    """Return the part of whole blocks that results fill, of axes of (results, block)."""
    part = 1.0
    for extent, block in axes:
        part *= extent / round_up(max(int(extent), 1), block)
    return part
