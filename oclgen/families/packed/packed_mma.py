"""Products of few rows with packed weights on matrix units, by `mma.sync` in inline PTX.

Quants of up to 8 bits are exact as fp16 or bf16. So the units multiply quants, and the numbers of a
block multiply the sums. x in fp32 is split into two pieces of fp16, times a power of two for each
row and tile: their sum is x but for its last bit at times. Of x in 16 bits, what quants are too
large by is subtracted from sums. An infinite x gives NaN.

It is not the family for many rows, for which weights would be unpacked again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import prod
from typing import Annotated, TypeGuard

from oclgen.families.packed.packed_mma_text import Text
from oclgen.families.packed.packed_mma_tiles import ROWS, Tile
from oclgen.families.packed.packed_rows import arguments
from oclgen.families.parts.planes import FLOAT_BYTES
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.packed_problem import PackedProblem
from oclgen.parameters import Range, Unroll, Warps
from oclgen.plan import (
    COUNTERS,
    WARP,
    Frame,
    Launch,
    LazyText,
    Needs,
    Plan,
    buffer,
    ceil_div,
)
from oclgen.problem import DTYPES, Problem
from oclgen.render import dtype_preamble, render

NAME = "packed_mma"

MOST_ROWS = 64
"""Rows up to which reading weights anew for every 8 to 32 rows takes less than unpacking them."""
MOST_SLICES = 16
"""Work-groups that share a block of outputs: the last one keeps as many sums of each output."""
COLUMNS = 16
"""Rows of w of one instruction, outputs for each row of x."""
PAD = 4
"""Floats after each row of sums in local memory, so that a warp meets no bank twice."""
LONG_ROW = 8192
"""Weights of a row from which 16 warps share it."""
RESIDENT = 4096
"""Weights of a row, in tiles of all groups together, that a compute unit works on at a time."""
MOST_SHARING = 8
"""Warps of a work-group beside other work-groups for the same outputs."""
SLICE_WARPS = 12
"""The same at most where a unit has one work-group, which computes several blocks of outputs."""
SHORT_K = 3072
"""Weights of a row up to which one work-group multiplies all."""
FEW_BYTES = 1 << 23
"""Weights of int8 below which a launch is over before groups have computed several blocks."""
MOST_WARPS = 16
"""Warps of a work-group that keep x and find registers enough for what they wait for."""
MOST_IDLE = 0.125
"""Part of the work that a guess lets warps wait for longer rows' sake."""
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
    stages: Annotated[int, Range(2, 8)]
    unroll: Unroll
    groups: Annotated[int, Range(0, 1 << 16)] = 0
    split_k: Annotated[int, Range(1, MOST_SLICES)] = 1

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

    def local_bytes(self, problem: PackedProblem) -> int:
        """Return the bytes of local memory: tiles of each warp, and sums of one or two blocks."""
        cut, text = tile(problem, self.tile_k), self.text(problem)
        tiles = self.warps * self.tile_n * (self.stages * cut.stride + 8 * cut.entries)
        return tiles + text.sums_bytes(self.warps, PAD) * (2 if self.is_repeated(problem) else 1)

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
        return self.blocks_m * (sums + x + ones) + fetched

    def conflict(self, problem: PackedProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := limits.why_no("mma"):
            return reason
        cut = tile(problem, self.tile_k)
        if self.tile_k % cut.unit:
            return f"tile_k={self.tile_k} is no multiple of {cut.unit}, whole blocks of weights"
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
        if cut.is_skewed and (problem.k % self.tile_k or problem.n * cut.row_bytes % cut.width):
            return (
                f"{problem.n} rows of {cut.row_bytes} B begin between multiples of {cut.width} B: "
                f"the last must end at one, and each at the end of a tile of {self.tile_k} weights"
            )
        most = min(MAX_REGISTERS, FILE // self.work_items - BESIDE)
        if (kept := self.registers(problem)) > most:
            return f"a work-item would keep {kept} numbers; at most {most} fit"
        return None

    def needs(self, problem: PackedProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.work_items, 1, 1), self.local_bytes(problem))
        return Needs((frame,), self.workspaces(problem))


DEFAULT = Config(blocks_m=1, blocks_n=1, tile_k=256, warps=1, stages=2, unroll=1)
TRAITS = Traits(rank=5, instructions=frozenset({"mma"}))


def serves(problem: Problem) -> TypeGuard[PackedProblem]:
    """Say whether it is a product of few rows with packed weights."""
    return isinstance(problem, PackedProblem) and problem.m <= MOST_ROWS


def guesses(problem: PackedProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if "mma" not in limits.instructions:
        return []
    return [
        *_of_slices(problem, limits),
        *_of_kept_slices(problem, limits),
        *_of_kept_x(problem, limits),
        *_of_rounds(problem, limits),
    ]


def _of_slices(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose work-groups share k, where half of the units would have no outputs.

    Each unit gets two work-groups. A warp has one tile, or two where a slice would need more than
    `MOST_SHARING` warps. To pass sums takes longer than a short k does in one work-group (H200, us:
    2x768x2304 of q4_0 8.2 and 5.8, 6x976x2816 of q4_k 8.3 and 6.6).
    """
    blocks = ceil_div(problem.n, COLUMNS)
    if problem.m > ROWS or problem.free or 2 * blocks > limits.compute_units:
        return
    if problem.k <= SHORT_K and problem.format != "int8":
        return
    slices = min(MOST_SLICES, 2 * limits.compute_units // blocks)
    for tile_k in (256, 512):
        tiles = ceil_div(problem.k, tile_k)
        if tiles <= MOST_SHARING * slices and tiles > MOST_SHARING // 2:
            warps = ceil_div(tiles, min(slices, tiles))
            one = Config(1, 1, tile_k, warps, stages=2, unroll=1)
            yield replace(one, split_k=ceil_div(tiles, warps))
    one = Config(1, 1, 256, MOST_SHARING // 2, stages=2, unroll=2, split_k=slices)
    if problem.k > 256 * one.shares:
        yield one


def _of_kept_slices(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose work-groups keep x of a slice of k for several blocks of outputs.

    A row is longer than what the warps of one work-group keep. Each unit has a work-group, whose
    sums of all blocks pass to the others at once: 1.3 times as fast as warps that take several
    tiles of a row (H200, ten problems, 0.95 to 1.55). Rows of int8 gain where there are many of x.
    """
    if problem.m > ROWS or problem.free or problem.k <= 256 * MOST_WARPS:
        return
    if problem.format == "int8" and problem.m <= ROWS // 2:
        return
    blocks, tiles = ceil_div(problem.n, COLUMNS), ceil_div(problem.k, 256)

    def cut(warps: int) -> tuple[int, int]:
        slices = ceil_div(tiles, warps)
        return slices, max(1, limits.compute_units // slices)

    def tiles_of_unit(warps: int) -> int:
        return ceil_div(blocks, cut(warps)[1]) * warps

    fewest = max(SLICE_WARPS // 2, ceil_div(tiles, MOST_SLICES))
    warps = min(range(max(fewest, SLICE_WARPS), fewest - 1, -1), key=tiles_of_unit)
    slices, groups = cut(ceil_div(tiles, cut(warps)[0]))
    one = Config(1, 1, 256, ceil_div(tiles, slices), stages=2, unroll=1, split_k=slices)
    yield replace(one, groups=groups if blocks > groups else 0)


def _of_kept_x(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose warps have one tile of each row, for as many groups as units hold.

    Warps with tiles of 256 are faster than half as many with 512 (H200, by turns, parts of the
    read rate: 4x14336x4096 of int4_128z 0.74 and 0.63, 4x2872x3328 of q4_0 0.62 and 0.58), but not
    those of a long k whose scales lie in the blocks (1x14336x4096 of q4_0 0.65 and 0.69), nor more
    than 16 (1x7736x6144 in fp32 0.21 and 0.63). A work-group that computes two blocks of outputs
    is faster than two work-groups (0.55 and 0.49, 6x9632x768 of q6_k; 11.9 and 13.6 us,
    4x7208x1280). Rows of int8 take as long by several tiles a warp, which need less local memory,
    but for short ones of many outputs (14.0 and 11.8 us, 3x23128x1024).
    """
    blocks, units = ceil_div(problem.n, COLUMNS), limits.compute_units
    is_long = problem.k > SHORT_K or blocks < 3 * units or problem.n * problem.k < FEW_BYTES
    if problem.m > ROWS or (problem.format == "int8" and is_long):
        return
    packing, is_short = problem.packing, problem.k < RESIDENT or DTYPES[problem.dtype] == 4
    lengths = (256, 512, 1024)
    if not (is_short or packing.group or tile(problem, 256).is_skewed):
        lengths = (512, 256, 1024)
    # bytes in blocks: fewer warps wait for as many, if each has several blocks of outputs
    is_bytewise = packing.block_bytes >= packing.block and packing.group is None
    if is_bytewise and blocks > units and not (is_short and DTYPES[problem.dtype] == 4):
        lengths = (1024, 512, 256)
    if is_bytewise and DTYPES[problem.dtype] == 4 and problem.k >= RESIDENT:
        lengths = (512, 1024, 256) if problem.m > 1 else (1024, 512, 256)
    for tile_k in sorted(
        lengths,
        key=lambda tile_k: (
            ceil_div(problem.k, tile_k) > MOST_WARPS,
            _idle(problem.k, tile_k) > MOST_IDLE,
        ),
    ):
        warps = ceil_div(problem.k, tile_k)
        most = min(4 if blocks > 8 * units else 3, max(1, RESIDENT // (tile_k * warps)))
        # the fewest groups that need no more turns
        turns = ceil_div(blocks, most * units)
        groups = units * min(most, ceil_div(blocks, turns * units))
        yield Config(1, 1, tile_k, warps, 2, 1, groups if blocks > groups else 0)


def _of_rounds(problem: PackedProblem, limits: Limits) -> Iterator[Config]:
    """Yield configs whose warps take several tiles of a row, one after the other."""
    blocks_m = min(4, ceil_div(problem.m, ROWS))
    # a unit with few tiles of its own is filled by warps that share them
    few = problem.n < 6 * COLUMNS * limits.compute_units
    counts = (4, 2)
    # some 4 KiB for a warp to wait for; x in pieces is cut for more outputs
    tiles: tuple[tuple[int, int], ...]
    if 8 * problem.packing.block_bytes <= 5 * problem.packing.block:
        tiles = ((2, 128), (1, 256), (1, 128))
        if problem.dtype == "fp32":
            tiles = ((2, 128), (4, 256), (2, 256), (1, 256))
    elif problem.dtype == "fp32":
        tiles = ((2, 128), (2, 64), (1, 128), (1, 256))
        if tile(problem, 256).is_skewed and not few:
            tiles, counts = ((2, 256), (1, 256)), (2, 4)
    else:
        tiles = ((1, 128), (1, 256), (1, 64))
    if problem.dtype == "fp32" and not few:
        tiles = ((4, 128), *tiles)
    tiles = tuple(sorted(tiles, key=lambda one: tile(problem, one[1]).is_skewed))
    bytewise = problem.packing.block_bytes >= problem.packing.block
    shared = (8, 4, 2) if bytewise or problem.k < LONG_ROW else (16, 8, 4, 2)
    pairs = [(warps, one) for warps in (shared if few else counts) for one in tiles]
    if problem.k >= RESIDENT:
        pairs.sort(key=lambda pair: _idle(problem.k, pair[0] * pair[1][1]) > MOST_IDLE)
    for warps, (blocks_n, tile_k) in pairs:
        one = Config(blocks_m, blocks_n, tile_k, warps, stages=2, unroll=1)
        # fewer blocks of outputs than units: slices of k, as long as each has two rounds
        slices = limits.compute_units // prod(one.blocks(problem)) if not problem.free else 1
        slices = max(1, min(MOST_SLICES, slices, one.rounds(problem) // 2))
        if slices > 1 and warps > MOST_SHARING:
            continue
        one = replace(one, split_k=slices)
        longer = tile_k > 64 and one.rounds(problem) > 1
        yield replace(one, unroll=2) if longer else one


def _idle(k: int, step: int) -> float:
    """Return the time of warps, as part of their work, that wait while others have a tile."""
    return ceil_div(k, step) * step / k - 1


def rows_of_block(problem: PackedProblem) -> int:
    """Return the rows of x in the columns of an instruction: a power of two, 8 if m may change."""
    if "m" in problem.free or problem.m > ROWS // 2:
        return ROWS
    return 1 << (problem.m - 1).bit_length()


@lru_cache(maxsize=256)
def tile(problem: PackedProblem, tile_k: int) -> Tile:
    """Return how the weights of a problem lie in local memory."""
    row_bytes = problem.packing.row_bytes(problem.k)
    return Tile(problem.packing, tile_k, row_bytes, rows_of_block(problem))


def units(problem: PackedProblem, config: Config) -> str:
    """Return the text of the matrix units and copies: see `packed_mma_units`."""
    return render(
        "packed_mma_units",
        dtype="bf16" if problem.dtype == "bf16" else "fp16",
        elem_bytes=DTYPES[problem.dtype],
        x_bytes=config.text(problem).items * DTYPES[problem.dtype],
        width=tile(problem, config.tile_k).width,
        is_split=config.split_k > 1,
    )


def plan(problem: PackedProblem, config: Config) -> Plan:
    """Return the launch of the product."""
    cut, elem_bytes = tile(problem, config.tile_k), DTYPES[problem.dtype]

    @LazyText
    def text() -> str:
        return render(
            NAME,
            **asdict(config),
            preamble=dtype_preamble(problem.dtype),
            units=units(problem, config),
            text=config.text(problem),
            tile=cut,
            work_items=config.work_items,
            tile_m=config.tile_m,
            tile_n=config.tile_n,
            pad=PAD,
            local_bytes=config.local_bytes(problem),
            elem_bytes=elem_bytes,
            rounds=config.rounds(problem),
            share="share" if config.split_k > 1 else "warp",
            shares=config.shares,
            is_repeated=config.is_repeated(problem),
            most_blocks=config.most_blocks(problem),
            k=problem.k,
            row_bytes=cut.row_bytes,
        )

    groups, rows = config.work_groups(problem)
    is_split = config.split_k > 1
    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(groups * config.work_items, rows, config.split_k),
        local_size=(config.work_items, 1, 1),
        args=(
            *arguments(problem),
            *((*buffer("partials"), *buffer(COUNTERS)) if is_split else ()),
        ),
        local_bytes=config.local_bytes(problem),
    )
    return Plan((launch,), config.workspaces(problem), groups * rows if is_split else 0)
