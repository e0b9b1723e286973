"""How packed weights lie in local memory for matrix units, and which numbers multiply their sums.

A warp copies `tile_k` weights of 16 rows at a time, as bytes. A matrix instruction takes a *step*:
16 weights of each row. Four lanes share a row, and each has four weights of the step, from four
neighbouring bytes. This module knows shapes and addresses; `packed_mma.cl.mako` uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, lcm

from oclgen.families.packed.packed_formats import Stripes
from oclgen.packed_problem import Format
from oclgen.plan import ceil_div

STEP = 16
"""Weights of a row that one instruction multiplies, and bytes that its lanes read together."""
ROWS = 8
"""Rows of x of an instruction: the columns of sums that it adds to."""
COPIES = (16, 8)
"""Bytes that one `cp.async` copies, from multiples of that."""
RUN = 32
"""Bytes that four lanes load together straight into registers."""
FLUSHED = 64
"""Weights whose products the units add up, in sums that they cut off, not round."""
BULK = 16
"""Bytes whose multiples a bulk copy begins at and brings."""
BARRIER_BYTES, COUNTER_BYTES = 8, 4
"""Bytes of a slot's barrier, at which copies arrive, and of a row's counter of its readers."""


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """Sixteen weights of a row, for one instruction.

    Attributes:
        block: block of the tile they lie in.
        o: first byte of their quants in the block.
        half: which halves of these bytes they are.
        at: place of the first weight in the block.
    """

    block: int
    o: int
    half: int
    at: int


@dataclass(frozen=True)
class Tile:
    """Weights of a row that a warp copies at once, as bytes of one format.

    Attributes:
        format: of the weights.
        tile_k: weights of a row in a tile.
        row_bytes: bytes of a row of w.
        rows: rows of x in the 8 columns of an instruction; the other columns multiply further
            groups of weights by the same rows.
    """

    format: Format
    tile_k: int
    row_bytes: int
    rows: int

    @property
    def stripes(self) -> Stripes:
        """The format, cut into what a lane reads at once."""
        return Stripes(self.format, 4)

    @property
    def unit(self) -> int:
        """Weights of which tiles are multiples: whole blocks, and whole parts."""
        return lcm(self.format.block, self.part)

    @property
    def groups(self) -> int:
        """Groups of weights whose sums are columns of one block, each with numbers of its own.

        A column has x of its own group and zeros for the others. So the numbers of all groups
        multiply one block of sums, of which no column is idle.
        """
        return max(1, min(ROWS // self.rows, self.tile_k // self.shared))

    @property
    def stretch(self) -> int:
        """Neighbouring weights of a lane: 8 of two steps, where both have the same numbers.

        x is then loaded by 16 bytes, and a warp's loads touch half as many lines: at most 64
        bytes of each row of x. Runs of 16 bytes are taken by twos.
        """
        run = self.stripes.text.run
        wide = self.shared >= (4 if run == STEP else 2) * STEP and run <= 2 * STEP
        return 8 if wide else 4

    @property
    def is_by_twos(self) -> bool:
        """Whether two lanes share a run of bytes, and four lanes two runs."""
        return self.stretch > 4 and self.stripes.text.run == STEP

    def second(self, step: MatrixStep) -> bool:
        """Say whether a step has the second four of its lanes' eight weights."""
        apart = 2 * STEP if self.is_by_twos else STEP
        return self.stretch > 4 and self.place(step) // apart % 2 == 1

    @property
    def span(self) -> int:
        """Weights of a row that one block of sums has."""
        return self.groups * self.shared

    @property
    def part(self) -> int:
        """Weights whose x is in registers at a time: both halves of the bytes they lie in."""
        return max(FLUSHED, 2 * self.stripes.text.run, self.span)

    @property
    def bytes(self) -> int:
        """Bytes of a row."""
        return self.format.row_bytes(self.tile_k)

    @property
    def unit_bytes(self) -> int:
        """Bytes at whose multiples all rows of tiles begin."""
        return gcd(self.bytes, self.row_bytes)

    @property
    def is_skewed(self) -> bool:
        """Whether rows of a tile begin where no copy can: then their copies begin before them."""
        return self.unit_bytes % COPIES[-1] != 0

    @property
    def width(self) -> int:
        """Bytes of a copy."""
        return next((width for width in COPIES if self.unit_bytes % width == 0), COPIES[0])

    @property
    def copies(self) -> int:
        """Copies of a row."""
        return ceil_div(self.bytes + self.width - gcd(self.unit_bytes, self.width), self.width)

    @property
    def stride(self) -> int:
        """Bytes from a row to the next: an odd multiple of 16, so that 8 rows share no bank."""
        return 16 * (ceil_div(self.copies * self.width, 16) | 1)

    @property
    def is_direct(self) -> bool:
        """Whether each lane can load what it multiplies: eight neighbouring bytes of two steps."""
        places = (self.unit_bytes, self.format.block_bytes, self.stripes.text.quants)
        return self.stretch == 8 and not any(place % self.stretch for place in places)

    @property
    def pieces(self) -> int:
        """Runs of 32 bytes of quants of a row, of which four lanes have eight bytes each."""
        return self.tile_k // self.stripes.halves // RUN

    def piece(self, step: MatrixStep) -> int:
        """Return which of these runs a step of the first part lies in."""
        quants = self.format.block // self.stripes.halves
        return (step.block * quants + step.o - STEP * self.second(step)) // RUN

    def piece_at(self, piece: int) -> int:
        """Return the byte of a row of the tile at which such a run begins."""
        block, o = divmod(piece * RUN, self.format.block // self.stripes.halves)
        return block * self.format.block_bytes + self.stripes.text.quants + o

    @property
    def lanes(self) -> int:
        """Lanes of a warp that copy a row: the fewest copies, then the longest runs."""
        return min((32, 16, 8, 4), key=lambda lanes: ceil_div(self.copies, lanes) * lanes)

    @property
    def entries(self) -> int:
        """Numbers of a row of a tile that lanes work out once; 0: each reads them where they lie.

        Those are entries of `scales`, and numbers of 6 bits.
        """
        if self.format.group:
            return ceil_div(self.tile_k, self.format.group)
        return self.tile_k // self.shared if self.stripes.text.quads else 0

    @cached_property
    def parts(self) -> list[list[MatrixStep]]:
        """Steps of each part, those with the same numbers side by side."""
        cut, size = self.stripes, self.format.block
        quants = size // cut.halves
        run = cut.text.run
        steps = [
            MatrixStep(block, o, half, (o // run * 2 * run + o % run if run else o) + half * run)
            for block in range(self.tile_k // size)
            for o in range(0, quants, STEP)
            for half in range(cut.halves)
        ]
        count = self.part // STEP
        steps.sort(key=lambda step: step.block * size + step.at)
        return [steps[first : first + count] for first in range(0, len(steps), count)]

    def place(self, step: MatrixStep) -> int:
        """Return the place of a step's first weight in the tile."""
        return step.block * self.format.block + step.at

    @property
    def shared(self) -> int:
        """Neighbouring weights that are summed before they are multiplied by their numbers."""
        if self.format.group is not None:
            return min(FLUSHED, self.format.group or FLUSHED)
        return self.stripes.text.shared or self.format.block


@dataclass(frozen=True, slots=True)
class Slots:
    """Where in local memory the tiles of a work-group's warps lie.

    Attributes:
        tile: of a warp.
        rows: of w in a tile.
        stages: slots of each warp, which its tiles take in turn.
        sharing: neighbouring warps whose tiles of a row are one bulk copy to one slot; 0: warps
            copy their own tiles, by `cp.async`.
    """

    tile: Tile
    rows: int
    stages: int
    sharing: int

    @property
    def copied(self) -> int:
        """Bytes of a row of a slot."""
        return self.sharing * self.tile.bytes

    @property
    def stride(self) -> int:
        """Bytes from a row to the next: an odd multiple of 16, so that 8 rows share no bank."""
        if not self.sharing:
            return self.tile.stride
        return BULK * (ceil_div(self.copied + (BULK - 1) * self.is_skewed, BULK) | 1)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return self.rows * self.stride

    @property
    def is_skewed(self) -> bool:
        """Whether copies begin before the rows of a tile."""
        if not self.sharing:
            return self.tile.is_skewed
        return gcd(self.copied, self.tile.row_bytes) % BULK != 0

    @property
    def has_counters(self) -> bool:
        """Whether the last warp that has read a row of a slot copies the next one to it."""
        return self.sharing > 1

    @property
    def barrier_bytes(self) -> int:
        """Bytes of the barriers of these warps' slots, and of the counters of their rows."""
        counters = self.rows * COUNTER_BYTES if self.has_counters else 0
        return self.stages * (BARRIER_BYTES + counters) if self.sharing else 0

    def bytes(self, warps: int) -> int:
        """Return the bytes of all slots of a work-group, and of their barriers."""
        of_slots = self.stages * self.slot_bytes + self.barrier_bytes
        return ceil_div(warps, max(1, self.sharing)) * of_slots
