"""Direct convolution in registers for CPUs, forward and backward-data: lanes are channels.

It is not made for GPUs, where `conv_gemm` shares what it loads through local memory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from oclgen.families.conv.conv_register_text import stored_counts
from oclgen.families.conv.correlation import Axis, Correlation, Run, correlations, operands, runs_of
from oclgen.families.conv.lanes import (
    MOST_GUESSES,
    VECS,
    channel_time,
    cost,
    vector_widths,
)
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.caches import CACHE, LINE, are_held
from oclgen.families.parts.epilogue import epilogue, store_channels, terms
from oclgen.families.parts.lane_packing import lanes, pack_lanes, pack_weights, transpose_text
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.widening import WIDENED, is_widened, widen, widened_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Unroll, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div
from oclgen.problem import DTYPES, ConvProblem, Problem, divided_by
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

if TYPE_CHECKING:
    from oclgen.families.conv import conv_pairs

NAME = "conv_register"

MAX_ACCUMULATORS = 40
"""Vectors per work-item past which they are spilled to memory (AVX-512 has 32 registers)."""

MAX_KERNEL_W = 16
"""Taps along a row that are written out; text grows with them."""

WITHIN_TAPS = ((True, True), (True, False))
"""(taps_outer, channels_fastest), where channels are summed over within a tap."""

MAX_TEXT = 4000
"""Multiply-adds written out, past which compilers take seconds."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; its template begins with the legend."""

    FREE = frozenset({"batch"})

    images: Item
    item_x: Item
    vec: Vector
    vecs: Item
    unroll: Unroll
    taps_outer: bool
    channels_fastest: bool

    @property
    def block(self) -> int:
        """Channels per work-item."""
        return self.vec * self.vecs

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if limits.kind == "gpu":
            return f"{NAME} gives each work-item whole vectors of channels; GPUs take conv_gemm"
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        return why_no_sums(problem, self, MAX_ACCUMULATORS)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        packed = packing(parts_of(problem)[0], problem, self)
        return Needs((Frame(NAME, (1, 1, 1)),), _workspaces(problem, packed))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of weights of channels and elements of images."""
        part = largest(problem)
        used = covered((part.channels, self.block), (part.cols.results, self.item_x))
        product = outer_product(self.vec, self.vecs, self.images * self.item_x, used)
        return replace(
            product,
            steps=part.depth if self.taps_outer else part.cols.taps,
            written=written_out(self, part.cols),
        )


DEFAULT = Config(
    images=1, item_x=8, vec=16, vecs=1, unroll=1, taps_outer=False, channels_fastest=False
)
TRAITS = Traits(rank=170)


class Piece(NamedTuple):
    """Code for blocks of columns that reach the same taps; `blocks` None stands for the rest."""

    blocks: tuple[int, ...] | None
    results: int
    runs: tuple[Run, ...]


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.direction != "bwd_weights"
        and problem.kernel_w <= MAX_KERNEL_W
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    part = largest(problem)
    width, vectors = part.cols.results, vector_widths(part.channels, limits)
    shapes = [
        (cost(n * x, vecs) * waste(width, x) * channel_time(part, vec, vecs), n, x, vec, vecs)
        for n, x, vec, vecs in product(sharing(problem), even_cuts(width, limits), vectors, VECS)
        if n * x * vecs <= limits.vector_sums
    ]
    return [
        Config(n, x, vec, vecs, 1, taps_outer, channels_fastest)
        for _, n, x, vec, vecs in sorted(shapes)[: MOST_GUESSES // 2]
        for taps_outer, channels_fastest in _orders(problem, part, n, x)
    ]


def _orders(
    problem: ConvProblem, part: Correlation, images: int, item_x: int
) -> tuple[tuple[bool, bool], ...]:
    """Return guesses of (taps_outer, channels_fastest), best guess first.

    With taps outside, a core asks for many channels' elements at once, and waits once where they
    come from memory; inside, it waits for each channel. But the next tap then finds the elements in
    the nearest cache only if that holds those of all channels.
    """
    if problem.layout == "nhwc" or part.rows.taps * part.cols.taps == 1:
        return WITHIN_TAPS
    return (
        WITHIN_TAPS
        if _keeps_taps(problem, part, images, item_x)
        else ((False, False), (True, True))
    )


def _keeps_taps(problem: ConvProblem, part: Correlation, images: int, item_x: int) -> bool:
    """Say whether the nearest cache holds what a work-item reads of all planes for a tap."""
    size, plane = DTYPES[problem.dtype], part.rows.read * part.cols.read
    span = size * ((item_x - 1) * part.cols.step + 1)
    if images * part.depth * span > CACHE:
        return False
    starts = (size * plane * at for at in range(images * part.depth))
    return are_held(
        line for start in starts for line in range(start // LINE, (start + span) // LINE + 1)
    )


def largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(parts_of(problem), key=lambda part: part.results * part.reduction)


def sharing(problem: ConvProblem) -> tuple[int, ...]:
    """Return how many images may share loaded weights."""
    return tuple(n for n in (1, 2, 4) if divided_by(problem, "batch", n))


def even_cuts(width: int, limits: Limits) -> tuple[int, ...]:
    """Return block sizes from 4 on that cut a row most evenly: the longest of the best ones."""
    most = min(limits.vector_sums, width)
    sizes = sorted(range(min(4, width), most + 1), key=lambda x: (waste(width, x), -x))
    return tuple(sorted(sizes[:6]))


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return a launch that packs the weights, one that widens images, and one per correlation."""
    parts = parts_of(problem)
    packed = packing(parts[0], problem, config)
    prepared = (_pack(problem, config, parts[0], packed), *widen(problem, operands(problem)[1]))
    launches = (correlate(NAME, problem, config, part, packed) for part in parts)
    return Plan((*prepared, *launches), _workspaces(problem, packed))


def _workspaces(problem: ConvProblem, packed: Packing) -> tuple[tuple[str, int], ...]:
    return ((PACKED, packed.bytes), *widened_space(problem, operands(problem)[1]))


def _pack(problem: ConvProblem, config: Config, part: Correlation, packed: Packing) -> Launch:
    if problem.layout == "nhwc":
        return pack_weights(problem, packed, part.channels, part.depth, config.vec)
    return pack_lanes(packed, config.vec)


def packing(part: Correlation, problem: ConvProblem, config: Config) -> Packing:
    """Return how the weights are packed: a result's channels become lanes.

    For images in channels_last a tap's channels that are summed over lie side by side, else those
    of a channel's taps.

    Args:
        part: the correlation that is computed: its channels are the results'.
        problem: forward or backward-data; it says how w lies.
        config: its `block` is the number of channels that are packed together.
    """
    taps = problem.kernel_h * problem.kernel_w
    if problem.direction == "fwd" or problem.layout == "nhwc":
        return lanes(
            "w", problem.dtype, part.groups, part.channels, part.depth * taps, config.block
        )
    batch = part.groups * part.depth
    return lanes("w", problem.dtype, batch, part.channels, taps, config.block)


@lru_cache(maxsize=256)
def pieces(cols: Axis, item_x: int) -> list[Piece]:
    """Return the pieces of code that a row's blocks of `item_x` results need, commonest last."""
    blocks: dict[tuple[int, tuple[Run, ...]], list[int]] = {}
    every, full = range(ceil_div(cols.results, item_x)), cols.full
    # blocks of which every tap falls inside are alike, and a row may have thousands
    begin = ceil_div(full.start, item_x)
    alike = range(begin, max(full.stop // item_x, begin))
    for block in (*every[:begin], *alike[:1], *every[alike.stop :]):
        first = block * item_x
        count = min(item_x, cols.results - first)
        code = (count, _runs(cols, first, count))
        blocks.setdefault(code, []).extend(alike if block in alike else [block])
    ranked = sorted(blocks.items(), key=lambda entry: len(entry[1]))
    return [
        Piece(None if at == len(ranked) - 1 else tuple(where), *code)
        for at, (code, where) in enumerate(ranked)
    ]


def why_no_sums(problem: ConvProblem, config: Config | conv_pairs.Config, most: int) -> str | None:
    """Say with numbers why the work-items of a config cannot have the sums that it asks for.

    Args:
        problem: forward or backward-data.
        config: what shares it out.
        most: vectors of sums that stay in a core's registers.
    """
    vectors = config.images * config.item_x * config.vecs
    if vectors > most:
        return (
            f"images={config.images} item_x={config.item_x} vecs={config.vecs} needs {vectors} "
            f"vectors of accumulators; at most {most} stay in registers"
        )
    if not divided_by(problem, "batch", config.images):
        return f"images={config.images} does not divide the batch of {problem.batch}"
    parts = parts_of(problem)
    widest = max(part.cols.results for part in parts)
    if config.item_x > max(widest, DEFAULT.item_x):
        return f"item_x={config.item_x} is more than the {widest} results of a row"
    written = max(written_out(config, part.cols) for part in parts)
    if written > MAX_TEXT:
        return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are allowed"
    return None


def written_out(config: Config | conv_pairs.Config, cols: Axis) -> int:
    """Return the multiply-adds of vectors that a correlation's text has."""
    runs = (run for piece in pieces(cols, config.item_x) for run in piece.runs)
    return (
        config.images
        * config.vecs
        * sum(len(run.reached) * (len(run.span) if config.taps_outer else 1) for run in runs)
    )


def _runs(cols: Axis, first: int, count: int) -> tuple[Run, ...]:
    reach = [cols.reach(first + x) for x in range(count)]
    reached = [tuple(x for x in range(count) if tap in reach[x]) for tap in range(cols.taps)]
    return runs_of(reached)


@lru_cache(maxsize=64)
def parts_of(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations, each with rows strung together where that is possible."""
    return tuple(part.strung() for part in correlations(problem))


class Pairs(NamedTuple):
    """Images whose channels are pairs of bf16 in words, for an instruction that adds products.

    Attributes:
        dot: text of the macro `DOT_PAIRS`.
        of_pixels: channels of a pixel are neighbours, else pixels of a plane.
        plane: words of a plane, some of which may fill it up.
        role: buffer of the images.
    """

    dot: str
    of_pixels: bool
    plane: int
    role: str


def correlate(
    name: str,
    problem: ConvProblem,
    config: Config | conv_pairs.Config,
    part: Correlation,
    packed: Packing,
    pairs: Pairs | None = None,
) -> Launch:
    """Return the launch of a correlation.

    Args:
        name: of the kernel.
        problem: forward or backward-data.
        config: how work-items share the results.
        part: the correlation.
        packed: its weights.
        pairs: how its images lie if they are pairs; else they lie as the problem says.
    """
    read, written = operands(problem)[1:]
    columns = ceil_div(part.cols.results, config.item_x)
    grid = (packed.tiles * part.groups, part.batch // config.images * part.rows.results * columns)

    in_pixels = problem.layout == "nhwc"
    images = pairs.role if pairs else WIDENED if is_widened(problem) else read

    @LazyText
    def text() -> str:
        codes = pieces(part.cols, config.item_x)
        own = store_channels(problem, config.vec) if in_pixels else transpose_text(config.vec)
        return render(
            "conv_register",
            kernel=name,
            preamble=dtype_preamble(problem.dtype),
            own=own,
            sizes=_sizes(problem, part, packed, pairs is not None) | {"COLUMNS": columns},
            pairs=pairs,
            widened=images == WIDENED,
            pieces=codes,
            counts=stored_counts((piece.results for piece in codes), config.vec),
            **epilogue(problem, "out"),
            in_pixels=in_pixels,
            store_step=part.cols.store_step,
            **{**asdict(config), "vec": config.vec},
        )

    return Launch(
        text=text,
        kernel=name,
        global_size=(*(grid if config.channels_fastest else grid[::-1]), 1),
        local_size=(1, 1, 1),
        args=(
            *buffer(images),
            *buffer(PACKED),
            *terms(problem),
            *buffer(written),
        ),
    )


def _sizes(problem: ConvProblem, part: Correlation, packed: Packing, pairs: bool) -> dict[str, int]:
    rows, cols, taps = part.rows, part.cols, problem.kernel_h * problem.kernel_w
    depth = ceil_div(part.depth, 2) if pairs else part.depth
    if problem.layout == "nhwc" or pairs:
        into, tap, of_block = 1, depth, depth * taps
    elif problem.direction == "fwd":
        into, tap, of_block = taps, 1, part.depth * taps
    else:
        into, tap, of_block = packed.tiles * taps, 1, taps
    return {
        "GROUPS": part.groups, "CHANNELS": part.channels, "DEPTH": depth,
        "RESULTS_H": rows.results, "TAPS_H": rows.taps, "KERNEL_W": part.kernel_w,
        "READ_H": rows.read, "READ_W": cols.read,
        "WRITTEN_H": rows.written, "WRITTEN_W": cols.written,
        "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "TAP_STEP_W": cols.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
        "FIRST_H": rows.first, "FIRST_W": cols.first, "STORE_STEP_H": rows.store_step,
        "KERNEL_FIRST_H": rows.kernel_first, "KERNEL_FIRST_W": cols.kernel_first,
        # distances in the packed weights, in blocks
        "PACKED_GROUP": packed.tiles * depth * taps,
        "PACKED_BLOCK": of_block, "PACKED_IN": into,
        "PACKED_H": tap * part.kernel_w * rows.kernel_step, "PACKED_W": tap * cols.kernel_step,
    }  # fmt: skip
