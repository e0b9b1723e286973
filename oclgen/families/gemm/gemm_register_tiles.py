"""Tiles that processors' registers hold, and which fit a product: the guesses of `gemm_register`.

The cost of a tile is counted in half cycles of a core that begins two multiply-adds of vectors and
two loads in a cycle. On one core of a Zen 5 with AVX2's vectors, the counts of tiles of one product
and their times had ratios that differ by 10 %; `docs/notebook.md` has the times.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from oclgen.families.parts.caches import CACHE, LINE, are_held
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import DTYPES, GemmProblem

WORTH_PACKING = 40
"""Rows from which packing B pays on CPUs: on two cores with vectors of 16, B packed took 0.4 to 0.9
of the time for most products of 40 rows and more, and 1.3 to 5 times as much for fewer."""
STRIP = 16
"""Items of a line of the cache: of a transposed A with fewer rows a strip reads whole lines."""
SLICE = 256
"""Rows of a slice of a transposed A on CPUs: 384x96x12544 in 64 slices of 196 rows took 0.27 (AVX2)
and 0.4 (AVX-512) of the time that it took in one."""
IN_CACHE = 2**16
"""Items of a transposed A that strips read again from a core's second cache, so that to pack it
costs more than it saves: 65x236x551 took 1.07 and 285x57x77 1.26 times as long with A packed."""
PANEL, FEW_SLICES, FEW_TILES, MANY_ROWS, LARGE = 600, 3, 2, 128, 2**20
"""Rows of a slice of an unpacked B, of which a panel fills some 80 KB of lines; slices that pay for
their sum; rows of tiles up to which a panel is hardly read again; rows of A from which B is packed;
items of a small B. 23x4056x3744 took 38.9 ms in one slice, 33.0 with B packed, 21 in four slices
and more (AVX2)."""
APART = 1024
"""Bytes between rows of B of whose multiples all lines share four places of a way of the nearest
cache (4 KiB), and push each other out. As it lies B then takes, of 40 rows of A and more, 0.98 to
1.2 times as long as packed, in bf16 up to 3.3, and up to 2.05 where rows are 4 KiB apart (AVX2).
With AVX-512, whose vector is a line, which is read once, it takes 0.89 to 1.03."""
FEW = 200
"""Up to this m n / (m + n), slices cost less than packing: each is written and read again."""
ROWS, VECTORS = 12, 8
"""Rows and vectors of columns of a tile, at most."""
IN_FLIGHT = 8
"""Multiply-adds that a core has begun and not ended: fewer sums wait for each other."""
LOAD, ROW_START, TILE_START = 0.4, 6, 40
"""Half cycles that a load costs beside multiply-adds, that a row costs before and behind the loop
over k, and that a tile costs there."""
FAR_LOAD, NEAREST = 0.8, 2**13
"""Half cycles that a load of a vector of B costs more where the columns that a tile reads again and
again, of more than `NEAREST` items, are not in the nearest cache (32 KiB)."""
FARTHER_LOAD, SECOND = 2.4, 2**18
"""The same where they are more than `SECOND` items, and not in a core's second cache (1 MiB)."""
GUARDED = 4
"""Half cycles of an element that is tested for the edge of n, and loaded alone: where a tile has
more columns than the product. Else the last tile begins earlier and loads whole vectors."""
GATHERED, GATHERED_VECTORS = 0.9, 2
"""Half cycles of an element of a B that lies along k and is not packed: it is loaded alone and put
into its lane, for each row of tiles anew. Vectors of such columns in a tile: 8x1520x88 took 0.88
(AVX2) and 0.94 (AVX-512) of the time that it took with one, and 0.85 and 0.72 of that with three.
"""
COPIED, COPY_START = 2, 3000
"""Half cycles of an element that is packed, and of the launch that packs."""
TILES = 3
"""Tiles that are guessed for a processor, for each choice of what is packed."""
SHORT, PAGE, NEAR_RESULTS, RUN = 40, 2**12, 2**22, 128
"""Steps of k of a short sum, bytes of a page, of results that caches hold, and of a row of a tile
that is long then: of seven times 34 rows of 10380 columns and k 6, tiles of 4x24 took 1.26 ms, of
2x40 0.52 (AVX2's vectors)."""
GROUPS = 8
"""Work-groups for each core that keep all cores busy until the end."""
GROUP_WORK = 16_000
"""Half cycles that a work-group should take: to start one costs some 80 ns."""
MOST_BLOCKS = 8
"""Tiles of a work-item at most, which read the same columns of B from the nearest cache."""
RANKED = 16
"""LRU bound. To guess for one product, its tiles are asked for some six times."""
STEPS = 4
"""Steps of packed operands that are written out: they share a loop's instructions, which are the
limit where another thread uses the core. 256x256x256 then takes 0.9 of the time with AVX2's
vectors, and as long as before where the thread is alone."""
AHEAD = (16, 8)
"""Steps of k by which rows of B are asked for ahead, if the nearest cache holds them all, or else:
6x7440x2640 takes 4.0 ms and without 13.3, 16x1024x1024, whose rows share a set, 0.35 and 0.45."""


class Tile(NamedTuple):
    """Rows and vectors of columns that a work-item computes at once."""

    rows: int
    vectors: int

    @property
    def step(self) -> float:
        """Half cycles of a step of the reduction."""
        sums, loads = self.rows * self.vectors, self.rows + self.vectors
        return max(sums, loads, IN_FLIGHT) + LOAD * loads


class Preparation(NamedTuple):
    """Which operands are packed, and the slices of k."""

    pack_a: bool
    pack_b: bool
    split_k: int = 1


@cache
def tiles(registers: int) -> tuple[Tile, ...]:
    """Return the tiles whose sums and operands fit, those with the cheapest multiply-adds first.

    One register holds an element of A. Of one row, multiply-adds read B from memory.
    """
    found = [
        Tile(rows, vectors)
        for rows in range(1, ROWS + 1)
        for vectors in range(1, VECTORS + 1)
        if rows * vectors + (vectors if rows > 1 else 0) < registers
    ]
    return tuple(sorted(found, key=lambda tile: tile.step / (tile.rows * tile.vectors)))


def gathering(registers: int, vectors: int) -> tuple[Tile, ...]:
    """Return the tiles with as many vectors of columns, which are gathered for all of their rows.

    Their sums fill all registers at most: operands that are spilled then cost less than to gather
    B once more.
    """
    return tuple(Tile(rows, vectors) for rows in range(1, ROWS + 1) if rows * vectors <= registers)


def fitting(
    problem: GemmProblem, limits: Limits, width: int, prepared: Preparation
) -> tuple[Tile, ...]:
    """Return the tiles for a product on a processor, those first that cost least.

    Args:
        problem: the product.
        limits: of the device.
        width: lanes of a vector.
        prepared: whether B is packed, so that its edge costs no tests, and the slices of k.
    """
    registers = 32 if limits.has_32_vectors else 16
    return _ranked(problem, registers, width, prepared._replace(pack_a=False))


def guessed(
    problem: GemmProblem, limits: Limits, width: int, prepared: Preparation
) -> tuple[Tile, ...]:
    """Return the tiles to guess for a processor, best guess first.

    Results of short sums are mostly written, each row of a tile to a page of its own, and lines
    that two tiles share are written twice: so runs are long there.

    Args:
        problem: the product.
        limits: of the device.
        width: lanes of a vector.
        prepared: as in `fitting`.
    """
    found, size = fitting(problem, limits, width, prepared), DTYPES[problem.dtype]
    results = size * problem.m * problem.n * problem.batch
    is_short = size == DTYPES["fp32"] and problem.k <= SHORT
    if is_short and size * problem.n > PAGE and results > NEAR_RESULTS:
        long = tuple(tile for tile in found if size * width * tile.vectors >= RUN)
        found = long or found  # narrow vectors have no tile so wide
    few = found[:TILES]
    return tuple(tile for at, tile in enumerate(few) if not _is_worse(tile, few[:at]))


def _is_worse(tile: Tile, before: Iterable[Tile]) -> bool:
    """Say whether a tile keeps a core busy by its last sum, and one of as many columns costs less.

    The model of times takes such tiles for faster than they are: 512x512x512 took 0.94 of the time
    with 6x2 vectors of 8 that it took with 4x2.
    """
    is_small = tile.rows * tile.vectors <= IN_FLIGHT
    return is_small and any(one.vectors == tile.vectors and one.rows > tile.rows for one in before)


@lru_cache(maxsize=RANKED)
def _ranked(
    problem: GemmProblem, registers: int, width: int, prepared: Preparation
) -> tuple[Tile, ...]:
    """Return the tiles by their cost, to which it is all the same whether A is packed."""
    if problem.trans_b and not prepared.pack_b:
        known = gathering(registers, min(GATHERED_VECTORS, ceil_div(problem.n, width)))
    else:
        known = tiles(registers)
    return tuple(sorted(known, key=lambda tile: cost(problem, tile, width, prepared)))


def cost(problem: GemmProblem, tile: Tile, width: int, prepared: Preparation) -> float:
    """Return the half cycles of a matrix of the batch on one core, where operands are in caches.

    Args:
        problem: the product.
        tile: of a work-item.
        width: lanes of a vector.
        prepared: whether B is packed, and the slices of k: a tile reads a panel of a slice again.
    """
    columns = tile.vectors * width
    across = ceil_div(problem.n, columns)
    blocks = ceil_div(problem.m, tile.rows)
    step = tile.step + _far_load(ceil_div(problem.k, prepared.split_k) * columns) * tile.vectors
    found = blocks * across * (problem.k * step + tile.rows * ROW_START + TILE_START)
    if prepared.pack_b:
        return found + COPIED * across * columns * problem.k + COPY_START
    if problem.trans_b:
        return found + GATHERED * blocks * across * columns * problem.k
    if columns <= problem.n and "n" not in problem.free:
        return found
    empty = tile.vectors - problem.n % columns // width if problem.n % columns else 0
    return found + blocks * empty * width * problem.k * GUARDED


def _far_load(panel: int) -> float:
    """Return the half cycles that loads of a panel of `panel` items of B cost more."""
    return FARTHER_LOAD if panel > SECOND else FAR_LOAD if panel > NEAREST else 0.0


def blocks_of_item(
    problem: GemmProblem, limits: Limits, tile: Tile, columns: int, most: int = MOST_BLOCKS
) -> int:
    """Return the tiles that a work-item computes one after the other, a power of two.

    More work-groups divide the work better among the cores, up to a point, and cost more to start.

    Args:
        problem: the product.
        limits: of the device.
        tile: of the work-item.
        columns: of a tile.
        most: tiles at most.
    """
    rows = ceil_div(problem.m, tile.rows)
    work = problem.k * tile.step + tile.rows * ROW_START + TILE_START
    found = min(most, 1 << (rows - 1).bit_length())
    while found * work > GROUP_WORK:
        if found == 1 or _groups(problem, rows, columns, found) >= GROUPS * limits.compute_units:
            break
        found //= 2
    return found


def _groups(problem: GemmProblem, rows: int, columns: int, blocks: int) -> int:
    return problem.batch * ceil_div(problem.n, columns) * ceil_div(rows, blocks)


def preparations(
    problem: GemmProblem, limits: Limits, width: int, widens: bool
) -> Iterable[Preparation]:
    """Return which operands are packed, the best guess first.

    Packing also widens elements of 16 bits to fp32. To load, widen and broadcast one of A takes six
    instructions, of fp32 one: A of 16 bits is always packed. 1430x1032x168 in fp16 took 0.33, and
    52x434x710 0.5 of the time that it took with A as it lies (one core, AVX-512).

    Args:
        problem: the product.
        limits: of the device.
        width: lanes of a vector.
        widens: whether A is of 16 bits.
    """
    found = _preparations(problem, limits, width)
    if problem.m >= WORTH_PACKING and _push_out(problem, limits):
        found = [one for one in found if one.pack_b]
    return dict.fromkeys(one._replace(pack_a=True) for one in found) if widens else found


def _preparations(problem: GemmProblem, limits: Limits, width: int) -> Iterable[Preparation]:
    """Return which operands are packed for the way in which they lie.

    Of a transposed A a tile reads a strip of columns, some bytes of each line of the cache. Either
    the lines of a slice stay there until the next strip reads them, or A is packed.
    """
    if problem.trans_a and problem.m >= STRIP and problem.m * problem.k > IN_CACHE:
        if problem.k >= 4 * SLICE and problem.m * problem.n <= FEW * (problem.m + problem.n):
            split = round(problem.k / SLICE)
            return (
                Preparation(False, False, split),
                Preparation(True, False, split),
                Preparation(False, True, split),
            )
        return Preparation(True, True), Preparation(True, False), Preparation(False, True)
    packed = problem.m >= WORTH_PACKING or _is_cheaper(problem, limits, width)
    split = _slices(problem, limits, width)
    as_it_lies = Preparation(False, False, max(split, _slices_held(problem, limits, width)))
    copied = Preparation(False, True, split)
    found = (copied, as_it_lies) if packed else (as_it_lies, copied)
    return *found, Preparation(True, True, split)


def _push_out(problem: GemmProblem, limits: Limits) -> bool:
    """Say whether lines of a B that is not packed push each other out before all is read."""
    reads_lines_again = limits.native_float_width * DTYPES["fp32"] < LINE
    lies_along_n = not problem.trans_b and "n" not in problem.free
    return reads_lines_again and lies_along_n and problem.n * DTYPES[problem.dtype] % APART == 0


def _is_cheaper(problem: GemmProblem, limits: Limits, width: int) -> bool:
    """Say whether packing B pays for a few rows.

    It does where no tile fits the columns, and where rows of tiles would gather B again.
    """
    ways = [Preparation(False, pack_b) for pack_b in (True, False)]
    packed, gathered = (
        cost(problem, fitting(problem, limits, width, way)[0], width, way) for way in ways
    )
    return packed < gathered


def _slices(problem: GemmProblem, limits: Limits, width: int) -> int:
    """Return the slices of k that give each core work, where tiles are few and k is long."""
    tile = fitting(problem, limits, width, Preparation(False, True))[0]
    groups = _groups(problem, ceil_div(problem.m, tile.rows), tile.vectors * width, 1)
    wanted = ceil_div(2 * limits.compute_units, groups)
    return max(min(wanted, problem.k // (2 * SLICE)), 1)


def _slices_held(problem: GemmProblem, limits: Limits, width: int) -> int:
    """Return the slices of k of which a core's second cache holds a panel for all rows of tiles.

    Rows of a B that is not packed are pages apart, and a panel has a part of each of their lines.
    One slice where few rows of tiles read a panel again, where many do, so that packing B costs
    little, where k is short, and where B is small.
    """
    tile = fitting(problem, limits, width, Preparation(False, False))[0]
    is_read_again = FEW_TILES * tile.rows < problem.m < MANY_ROWS
    is_far = not (problem.trans_a or problem.trans_b) and problem.k * problem.n > LARGE
    slices = round(problem.k / PANEL)
    return slices if is_far and is_read_again and slices >= FEW_SLICES else 1


def steps_at_once(problem: GemmProblem, prepared: Preparation, tile: Tile) -> int:
    """Return the steps of the reduction that a guess writes out; no slice of k is empty by them.

    Compilers load early what all steps read, and sums then leave the registers where rows of an
    operand lie apart. Of one vector of columns loads are the limit.

    Args:
        problem: the product.
        prepared: which operands are packed, and the slices of k.
        tile: of a work-item.
    """
    lies_apart = not prepared.pack_b or (problem.trans_a and not prepared.pack_a)
    is_long = problem.k >= STEPS * prepared.split_k**2
    return STEPS if is_long and tile.vectors > 1 and not lies_apart else 1


def rows_ahead(problem: GemmProblem, item_n: int) -> int:
    """Return how many rows of an unpacked B are asked for ahead: none of one that is near."""
    row = problem.n * DTYPES[problem.dtype]
    if problem.trans_b or row * problem.k <= CACHE:
        return 0
    columns = range(0, item_n * DTYPES[problem.dtype], LINE)
    held = (
        rows
        for rows in AHEAD
        if are_held((step * row + column) // LINE for step in range(rows) for column in columns)
    )
    return next(held, AHEAD[-1])
