"""What the template of `packed_mma` writes: counts of its loops, its sums, where a step lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oclgen.families.packed.packed_formats import Text as Stripe
from oclgen.families.packed.packed_mma_tiles import ROWS, STEP, MatrixStep, Tile
from oclgen.plan import WARP

PIECES = 2
"""Numbers of fp16 that together are a number of fp32, except for its last bit at times."""
SUBTRACTED = 1
"""Steps of a group up to which instructions for x alone cost less than registers for its sums."""
PAIRS_OF_SCALES = """\
const uint two = masked(((__global const ushort *)p)[96 + at / 32], 0xffffu, 0u);
const float scale = (float)(char)(two >> at / 16 % 2 * 8);
const float d = vload_half(104, (__global const half *)p) * scale;"""
"""Numbers of q6_k: neighbouring groups share a load of two bytes, which compilers do not cut in two
where an inline instruction takes it."""
LONG_CHAIN = 8
"""Steps from which two sums wait less than adding both costs."""


@dataclass(frozen=True)
class Text:
    """The pieces of text that depend on the weights' format, the config and the dtype of x.

    Attributes:
        tile: how weights lie in local memory.
        tile_m: columns of sums of a work-group.
        tile_n: rows of w of a work-group.
        dtype: of x.
    """

    tile: Tile
    tile_m: int
    tile_n: int
    dtype: str

    @property
    def stripe(self) -> Stripe:
        """The format's own text: where quants and numbers lie."""
        return self.tile.stripes.text

    @property
    def has_zeros(self) -> bool:
        """Whether something is added to each weight."""
        return "z" in self.stripe.weight

    @property
    def minus(self) -> str:
        """The sign of what is added."""
        return "-" if "- z" in self.stripe.weight else ""

    @property
    def rows_of_block(self) -> int:
        """Rows of x in the columns of an instruction."""
        return self.tile.rows if self.tile.groups > 1 else ROWS

    @property
    def rows(self) -> int:
        """Rows of x of a work-group."""
        return self.tile_m if self.tile.groups == 1 else self.tile.rows

    @property
    def pieces(self) -> int:
        """Blocks that a block of x is multiplied as."""
        return PIECES if self.dtype == "fp32" else 1

    @property
    def is_scaled(self) -> bool:
        """Whether x is multiplied by powers of two, since fp16 has a smaller range."""
        return self.dtype == "fp32"

    @property
    def magic(self) -> int:
        """Bits of a number whose last ones count up: from 128 in bf16, from 0 in fp16.

        The smallest numbers of fp16 count in `Text.unit`: they need no bits but a quant's own.
        """
        return 0x4300 if self.dtype == "bf16" else 0

    @property
    def one(self) -> int:
        """Bits of what a quant of 1 is, as quants are multiplied."""
        return 0x3F80 if self.dtype == "bf16" else 1

    @property
    def unit(self) -> str:
        """What sums are multiplied by at last, because a quant of 1 was multiplied as `one`."""
        return "" if self.dtype == "bf16" else " * 0x1p24f"

    @property
    def is_exact(self) -> bool:
        """Whether what quants are too large by is subtracted from each of them.

        Of x in 16 bits it is subtracted from the sums: their last bits are lost by rounding, but
        not those of results, which have fewer.
        """
        return self.dtype == "fp32"

    @property
    def excess(self) -> int:
        """By what quants are too large, if that is subtracted from their sums; 0: by nothing."""
        if self.is_exact:
            return 0
        if not self.stripe.run:
            return 0 if self.magic else 128
        return self.stripe.offset + (128 if self.magic else 0)

    @property
    def numbers(self) -> str:
        """Declarations of what multiplies sums, of a block in local memory."""
        numbers = PAIRS_OF_SCALES if self.tile.format.name == "q6_k" else self.stripe.numbers
        return numbers.replace("__global", "__local")

    @property
    def is_subtracted(self) -> bool:
        """Whether sums of quants begin with instructions that multiply x by minus the excess."""
        short = self.steps_of_group <= SUBTRACTED
        return short and self.excess > 0 and not self.has_zeros

    @property
    def minus_excess(self) -> int:
        """Bits of minus the excess, as quants are multiplied: of a small fp16, or of a bf16."""
        if not self.magic:
            return 0x8000 | self.excess
        return int(np.float32(-self.excess).view(np.uint32)) >> 16

    @property
    def has_ones(self) -> bool:
        """Whether sums of x alone are needed."""
        return not self.is_subtracted and (self.has_zeros or self.excess > 0)

    def zero_of(self, scale: str, zero: str) -> str:
        """Return what sums of x are multiplied by, from the two numbers of their weights.

        What quants are too large by is part of it; without zeros, sums of quants begin with it.
        """
        if not self.has_zeros:
            return "0.0f"
        if not self.excess:
            return zero
        return f"{zero} {'+' if self.minus else '-'} {self.excess}.0f * {scale}"

    @property
    def items(self) -> int:
        """Items of x that a lane loads at once: at most 16 bytes."""
        return 4 if self.dtype == "fp32" else self.tile.stretch

    @property
    def raw(self) -> str:
        """The type of these items, as they are loaded."""
        return "float4" if self.dtype == "fp32" else f"uint{self.items // 2}"

    @property
    def steps(self) -> int:
        """Steps whose x a lane has of a part."""
        return self.tile.part // STEP // self.tile.groups

    @property
    def lane_x(self) -> str:
        """The place of a lane's items in a row of x, from a load's first."""
        return f"{self.tile.stretch} * part{' + part / 2 * 16' if self.tile.is_by_twos else ''}"

    @property
    def x_places(self) -> list[int]:
        """Distances, in a row of x, of what a lane loads for a part."""
        tile = self.tile
        runs = [
            at + half
            for at in range(0, tile.shared, 4 * tile.stretch * (2 if tile.is_by_twos else 1))
            for half in ((0, STEP) if tile.is_by_twos else (0,))
        ]
        group = [at + four for at in runs for four in range(0, tile.stretch, self.items)]
        return [span + at for span in range(0, tile.part, tile.span) for at in group]

    def x_of(self, place: int) -> int:
        """Return which four of the items that were loaded for a group a step multiplies.

        Args:
            place: of the step in its group.
        """
        if not self.tile.is_by_twos:
            return place
        return place // 4 * 4 + (0, 2, 1, 3)[place % 4]

    @property
    def steps_of_group(self) -> int:
        """Steps whose sums have the same numbers."""
        return self.tile.shared // STEP

    @property
    def spans(self) -> list[list[tuple[MatrixStep, int]]]:
        """Steps of a part by the block of sums they add to, each with its group in it."""
        steps, count = self.tile.parts[0], self.tile.span // STEP
        return [
            [(step, at // self.steps_of_group) for at, step in enumerate(steps[first:][:count])]
            for first in range(0, len(steps), count)
        ]

    @property
    def parts(self) -> int:
        """Parts of a tile."""
        return self.tile.tile_k // self.tile.part

    def sums_bytes(self, warps: int, pad: int) -> int:
        """Return the bytes of all warps' sums of a block, `pad` floats behind each row of x."""
        return 4 * warps * self.rows * (self.tile_n + pad)

    @property
    def rows_at_once(self) -> int:
        """Rows of w that a warp copies together."""
        return WARP // self.tile.lanes

    @property
    def heads(self) -> int:
        """Loads of a lane for the numbers of blocks of a warp's tile, where four are a quad."""
        return self.entries // 4 // WARP if self.stripe.quads else 0

    @property
    def heads_bytes(self) -> int:
        """Bytes of local memory of a warp for what these loads bring."""
        return 16 * WARP * self.heads

    def held(self, step: MatrixStep) -> str:
        """Return the name of a step's quants among what a lane loaded into registers."""
        further = f"p * {self.tile.pieces // self.parts} + " if self.parts > 1 else ""
        word = "y" if self.tile.second(step) else "x"
        return f"held[r][row][{further}{self.tile.piece(step)}].{word}"

    @property
    def entries(self) -> int:
        """Numbers of a warp's tile that lanes work out once, see `Tile.entries`."""
        return self.tile_n * self.tile.entries

    @property
    def every(self) -> int:
        """Weights that share such a number; 0: there is none."""
        return self.tile.tile_k // self.tile.entries if self.tile.entries else 0

    @property
    def chains(self) -> int:
        """Sums that do not wait for each other: of piece 0 and the others, or of every second step.

        The other pieces are small enough to share a sum.
        """
        if self.pieces > 1:
            return 2
        return 2 if self.tile.span // STEP >= LONG_CHAIN else 1

    def chain(self, place: int, piece: int) -> int:
        """Return which of the chains adds the product of a piece, `place`-th of its sum."""
        return min(piece, 1) if self.pieces > 1 else place % self.chains

    def zero(self, name: str) -> str:
        """Return the statement that makes the chains zero; `name` has a place for a chain's."""
        return " = ".join(name.format(i) for i in range(self.chains)) + " = 0.0f;"

    def added(self, name: str) -> str:
        """Return the sum of the chains, the smallest pieces first."""
        return " + ".join(name.format(i) for i in reversed(range(self.chains)))

    @property
    def per_block(self) -> int:
        """Parts of a block of weights."""
        return max(1, self.tile.format.block // self.tile.part)

    @property
    def part_bytes(self) -> int:
        """Bytes from the blocks of one part to those of the next."""
        form = self.tile.format
        return form.row_bytes(self.tile.part) if self.per_block == 1 else form.block_bytes

    def quants_at(self, step: MatrixStep) -> str:
        """Return the first byte of a step's quants in the block of part `p`, of lane 0.

        A lane's bytes of two steps are neighbours, if it has as many.
        """
        first = step.o + (4 - STEP if self.tile.second(step) else 0)
        return f"{first}{self._further(self.tile.part // self.tile.stripes.halves)}"

    def word_at(self, step: MatrixStep) -> str:
        """Return the name of what loads a step's quants: of words at multiples of 4 bytes or not.

        Rows of a tile begin at multiples of `Tile.unit_bytes`.
        """
        form = self.tile.format
        distance = step.block * form.block_bytes + self.stripe.quants + step.o
        known = self.tile.unit_bytes % 4 == 0 and self.part_bytes % 4 == 0
        return "WORD" if known and distance % 4 == 0 else "BYTES"

    def weights_at(self, step: MatrixStep) -> str:
        """Return the place of a step's first weight in the block of part `p`."""
        return f"{step.at}{self._further(self.tile.part)}"

    def _further(self, distance: int) -> str:
        """Return how far part `p` of a block lies after its first, `distance` for each part."""
        if self.per_block == 1:
            return ""
        return f" + p{'' if self.parts == self.per_block else f' % {self.per_block}'} * {distance}"


def pair(bits: int) -> str:
    """Return 32 bits that hold a number of 16 bits twice."""
    return f"0x{bits * 0x10001:08x}u"
