"""The parameters of `packed_mma`: what they mean, and what they need of a device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Annotated

from oclgen.families.packed.packed_mma_text import Text
from oclgen.families.packed.packed_mma_tiles import ROWS, Slots, Tile
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Range, Unroll, Warps
from oclgen.plan import WARP, Frame, Needs, ceil_div
from oclgen.problem import DTYPES

NAME = "packed_mma"
MOST_SLICES = 16
"""Work-groups that share a block of outputs: the last one keeps as many sums of each output."""
COLUMNS = 16
"""Rows of w of one instruction, outputs for each row of x."""
PAD = 4
"""Floats after each row of sums in local memory, so that a warp meets no bank twice."""
MAX_REGISTERS = 168
"""Private numbers of a work-item beside which addresses and unpacked weights still fit in 255."""
FILE, BESIDE = 65536, 36
"""Registers that work-items of a group share, and those of one beside the numbers it keeps."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"m"})

    blocks_m: Annotated[int, Range(1, 4)]
    blocks_n: Annotated[int, Range(1, 8)]
    tile_k: Annotated[int, Range(64, 1024)]
    warps: Warps
    stages: Annotated[int, Range(1, 8)]
    unroll: Unroll
    groups: Annotated[int, Range(0, 1 << 16)] = 0
    split_k: Annotated[int, Range(1, MOST_SLICES)] = 1
    bulk: Annotated[int, Range(0, 32)] = 0

    @property
    def tile_m(self) -> int:
        """Rows of x of a work-group."""
        return ROWS * self.blocks_m

    @property
    def tile_n(self) -> int:
        """Rows of w of a work-group."""
        return COLUMNS * self.blocks_n

    @property
    def work_items(self) -> int:
        """Work-items per group."""
        return WARP * self.warps

    def is_repeated(self, problem: PackedProblem) -> bool:
        """Say whether a work-group computes more outputs than tile_n."""
        return 0 < self.groups < ceil_div(problem.n, self.tile_n)

    def rounds(self, problem: PackedProblem) -> int:
        """Return the tiles of a row of w that a warp multiplies."""
        return ceil_div(problem.k, self.tile_k * self.shares)

    @property
    def shares(self) -> int:
        """Warps that share k, of all work-groups of a block of outputs."""
        return self.warps * self.split_k

    def blocks(self, problem: PackedProblem) -> tuple[int, int]:
        """Return the blocks of outputs, along n and along m."""
        return ceil_div(problem.n, self.tile_n), ceil_div(problem.m, self.tile_m)

    def work_groups(self, problem: PackedProblem) -> tuple[int, int]:
        """Return the work-groups of a slice of k, along n and along m."""
        blocks, rows = self.blocks(problem)
        return self.groups if self.is_repeated(problem) else blocks, rows

    def most_blocks(self, problem: PackedProblem) -> int:
        """Return the blocks of outputs of a work-group at most."""
        return ceil_div(self.blocks(problem)[0], self.work_groups(problem)[0])

    def workspaces(self, problem: PackedProblem) -> tuple[tuple[str, int], ...]:
        """Return the workspace of sums that slices of k leave, if there are several."""
        if self.split_k == 1:
            return ()
        of_slice = prod(self.work_groups(problem)) * self.most_blocks(problem)
        sums = of_slice * self.split_k * self.text(problem).rows * self.tile_n
        return (("partials", FLOAT_BYTES * sums),)

    def text(self, problem: PackedProblem) -> Text:
        """Return the pieces of the kernel's text, and their counts."""
        return Text(tile(problem, self.tile_k), self.tile_m, self.tile_n, problem.dtype)

    @property
    def is_direct(self) -> bool:
        """Say whether weights go to registers without local memory."""
        return self.stages == 1

    def local_bytes(self, problem: PackedProblem) -> int:
        """Return the bytes of local memory: tiles of each warp, and sums of one or two blocks."""
        text = self.text(problem)
        tiles = self.tiles_bytes(problem) + self.warps * 8 * text.entries
        return tiles + text.sums_bytes(self.warps, PAD) * (2 if self.is_repeated(problem) else 1)

    def tiles_bytes(self, problem: PackedProblem) -> int:
        """Return the bytes of local memory of tiles, or of their blocks' numbers alone."""
        if self.is_direct:
            return self.warps * self.text(problem).heads_bytes
        return self.slots(problem).bytes(self.warps)

    def slots(self, problem: PackedProblem) -> Slots:
        """Return where tiles lie in local memory."""
        return Slots(tile(problem, self.tile_k), self.tile_n, self.stages, self.bulk)

    def registers(self, problem: PackedProblem) -> int:
        """Return the numbers that a work-item keeps: sums, scales, x raw and in pieces."""
        cut, text = tile(problem, self.tile_k), self.text(problem)
        if self.rounds(problem) == 1:
            x = text.parts * text.steps * 2 * text.pieces
            ones = self.tile_k // cut.span * 2 if text.has_ones else 0
        else:
            x = text.steps * (2 * text.pieces + DTYPES[problem.dtype])
            ones = 0
        fetched = self.tile_n * cut.entries // WARP * 2 if cut.format.group else 0
        sums = 4 * (1 + text.chains) * self.blocks_n
        weights = 8 * cut.pieces * self.blocks_n if self.is_direct else 0
        return self.blocks_m * (sums + x + ones) + fetched + weights

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no("mma"):
            return reason
        cut = tile(problem, self.tile_k)
        if self.tile_k % cut.unit:
            return f"tile_k={self.tile_k} is no multiple of {cut.unit}, whole blocks of weights"
        if self.bulk and (reason := self._no_bulk(problem, limits)):
            return reason
        if self.is_direct and not cut.is_direct:
            return f"stages=1: lanes have no eight neighbouring bytes of {problem.format} each"
        if self.groups and not self.is_repeated(problem):
            blocks = ceil_div(problem.n, self.tile_n)
            return f"groups={self.groups}, but only {blocks} tiles of {self.tile_n} outputs"
        if self.split_k > 1 and problem.free:
            return f"split_k={self.split_k}: slices leave as many sums as m and n say"
        if self.split_k > 1 and (self.split_k - 1) * self.warps * self.tile_k >= problem.k:
            return f"split_k={self.split_k}: a work-group would have none of {problem.k} weights"
        if self.unroll > 1 and self.rounds(problem) == 1:
            return f"unroll={self.unroll}: a tile whose x is kept is written out as a whole"
        if (group := cut.format.group) and self.tile_k % group and group % self.tile_k:
            return f"tile_k={self.tile_k} and groups of {group} do not divide"
        is_skewed = self.slots(problem).is_skewed
        if is_skewed and (problem.k % self.tile_k or problem.n * cut.row_bytes % cut.width):
            return (
                f"{problem.n} rows of {cut.row_bytes} B begin between multiples of {cut.width} B: "
                f"the last must end at one, and each at the end of a tile of {self.tile_k} weights"
            )
        most = min(MAX_REGISTERS, FILE // self.work_items - BESIDE)
        if (kept := self.registers(problem)) > most:
            return f"a work-item would keep {kept} numbers; at most {most} fit"
        return None

    def _no_bulk(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers why bulk copies bring no tiles of this product, or None."""
        if self.is_direct or self.rounds(problem) > 1:
            rounds = self.rounds(problem)
            return f"bulk={self.bulk}: stages={self.stages}, {rounds} tiles a warp; x must be kept"
        if self.warps % self.bulk:
            return f"bulk={self.bulk}: does not divide warps={self.warps}"
        if problem.k % self.tile_k:
            return f"bulk={self.bulk}: k={problem.k} is no multiple of tile_k={self.tile_k}"
        return limits.why_no("tma")

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.work_items, 1, 1), self.local_bytes(problem))
        return Needs((frame,), self.workspaces(problem))


def rows_of_block(problem: PackedProblem) -> int:
    """Return the rows of x in the columns of an instruction: a power of two, 8 if m may change."""
    # x in pieces and short groups: columns of further groups cost more than they save
    most = ROWS // 4 if problem.dtype == "fp32" and problem.format == "q6_k" else ROWS // 2
    if "m" in problem.free or problem.m > most:
        return ROWS
    return 1 << (problem.m - 1).bit_length()


@lru_cache(maxsize=256)
def tile(problem: PackedProblem, tile_k: int) -> Tile:
    """Return how the weights of a problem lie in local memory."""
    row_bytes = problem.packing.row_bytes(problem.k)
    return Tile(problem.packing, tile_k, row_bytes, rows_of_block(problem))
