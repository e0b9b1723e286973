"""What the template of `packed_mma` writes: counts of its loops, its sums, where a step lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from oclgen.families.packed.packed_formats import Text as Stripe
from oclgen.families.packed.packed_mma_tiles import STEP, MatrixStep, Tile
from oclgen.plan import WARP

PIECES = 3
"""Numbers of 16 bits that together are a number of fp32."""


@dataclass(frozen=True)
class Text:
    """The pieces of text that depend on the weights' format, the config and the dtype of x.

    Attributes:
        tile: how weights lie in local memory.
        tile_m: rows of x of a work-group, each piece of a folded one for itself.
        tile_n: rows of w of a work-group.
        elem_bytes: bytes of an element of x; 4: it is multiplied in `PIECES`.
        folded: the pieces are columns of one block, not blocks.
    """

    tile: Tile
    tile_m: int
    tile_n: int
    elem_bytes: int
    folded: bool

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
    def rows(self) -> int:
        """Rows of x of a work-group."""
        return self.tile_m // PIECES if self.folded else self.tile_m

    @property
    def pieces(self) -> int:
        """Blocks that a block of x is multiplied as."""
        return PIECES if self.elem_bytes == 4 and not self.folded else 1

    @property
    def steps(self) -> int:
        """Steps of a part, whose x is in registers."""
        return self.tile.part // STEP

    @property
    def parts(self) -> int:
        """Parts of a tile."""
        return self.tile.tile_k // self.tile.part

    @property
    def stage_bytes(self) -> int:
        """Bytes of a warp's tile."""
        return self.tile_n * self.tile.stride

    @property
    def rows_at_once(self) -> int:
        """Rows of w that a warp copies together."""
        return WARP // self.tile.lanes

    @property
    def entries(self) -> int:
        """Numbers of a warp's tile that lanes work out once, see `Tile.entries`."""
        return self.tile_n * self.tile.entries

    @property
    def every(self) -> int:
        """Weights that share such a number; 0: there is none."""
        return self.tile.tile_k // self.tile.entries if self.tile.entries else 0

    @cached_property
    def sums(self) -> list[list[int]]:
        """Steps of a part, by their places in it, that share their numbers."""
        return self.tile.sums(self.tile.parts[0])

    @property
    def chains(self) -> int:
        """Sums that do not wait for each other: of the pieces, or of every second step."""
        return self.pieces if self.pieces > 1 else min(2, len(self.sums[0]))

    def chain(self, place: int, piece: int) -> int:
        """Return which of the chains adds the product of a piece, `place`-th of its sum."""
        return piece if self.pieces > 1 else place % self.chains

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
        """Return the first byte of a step's quants in the block of part `p`."""
        return f"{step.o}{self._further(self.tile.part // self.tile.stripes.halves)}"

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
