"""What `conv_register` and `conv_pairs` share: cuts of rows, the rule of their sums, the launch.

How weights and images are packed, and what is guessed, is the families' own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

from oclgen.families.conv.conv_register_text import stored_counts
from oclgen.families.conv.correlation import Axis, Correlation, Run, correlations, operands, runs_of
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.caches import LINE
from oclgen.families.parts.epilogue import epilogue, store_channels, terms
from oclgen.families.parts.lane_packing import transpose_text
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.widening import WIDENED, is_widened
from oclgen.limits import Limits
from oclgen.parameters import values_of
from oclgen.plan import Launch, LazyText, buffer, ceil_div
from oclgen.problem import DTYPES, ConvProblem
from oclgen.render import dtype_preamble, render

MAX_KERNEL_W = 16
"""Taps along a row that may be written out; text grows with them."""
MOST_IMAGES = 8
"""Images that share weights: three vectors of a position in each are all sums in registers."""
MOST_WASTE = 1.125
"""Images that are computed over those that there are."""
ITEM_X = 8
"""Results of a row that a work-item of the defaults computes, also where the row has fewer."""
MAX_TEXT = 4000
"""Multiply-adds written out, past which compilers take seconds."""


class Sharing(Protocol):
    """Parameters by which work-items of both families share results."""

    @property
    def images(self) -> int:
        """Images of a work-item, which share loaded weights."""

    @property
    def item_x(self) -> int:
        """Results of a row that a work-item computes."""

    @property
    def vec(self) -> int:
        """Lanes of a vector of channels."""

    @property
    def vecs(self) -> int:
        """Vectors of channels of a work-item."""

    @property
    def taps_outer(self) -> bool:
        """Whether taps are the outer loop, and channels the inner one."""

    @property
    def channels_fastest(self) -> bool:
        """Whether neighbouring work-items have neighbouring blocks of channels."""


class Piece(NamedTuple):
    """Code for blocks of columns that reach the same taps; `blocks` None stands for the rest."""

    blocks: tuple[int, ...] | None
    results: int
    runs: tuple[Run, ...]


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


@lru_cache(maxsize=64)
def parts_of(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations, each with rows strung together where that is possible."""
    return tuple(part.strung() for part in correlations(problem))


def largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(parts_of(problem), key=lambda part: part.results * part.reduction)


def sharing(problem: ConvProblem) -> tuple[int, ...]:
    """Return how many images may share loaded weights: those by which few are computed twice."""
    if "batch" in problem.free:
        return (1,)
    sizes = range(1, min(MOST_IMAGES, problem.batch) + 1)
    return tuple(n for n in sizes if waste(problem.batch, n) <= MOST_WASTE)


def even_cuts(width: int, limits: Limits) -> tuple[int, ...]:
    """Return block sizes from 4 on that cut a row most evenly: the longest of the best ones."""
    most = min(limits.vector_sums, width)
    sizes = sorted(range(min(4, width), most + 1), key=lambda x: (waste(width, x), -x))
    return tuple(sorted(sizes[:6]))


def why_no_sums(problem: ConvProblem, config: Sharing, most: int) -> str | None:
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
    if config.images > 1 and "batch" in problem.free:
        return f"images={config.images} share weights only in a batch that does not vary"
    if config.images > problem.batch:
        return f"images={config.images} is more than the batch of {problem.batch}"
    parts = parts_of(problem)
    widest = max(part.cols.results for part in parts)
    if config.item_x > max(widest, ITEM_X):
        return f"item_x={config.item_x} is more than the {widest} results of a row"
    written = max(written_out(config, part.cols) for part in parts)
    if written > MAX_TEXT:
        return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are allowed"
    return None


def written_out(config: Sharing, cols: Axis) -> int:
    """Return the multiply-adds of vectors that a correlation's text has."""
    runs = (run for piece in pieces(cols, config.item_x) for run in piece.runs)
    return (
        config.images
        * config.vecs
        * sum(len(run.reached) * (len(run.span) if config.taps_outer else 1) for run in runs)
    )


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


def _runs(cols: Axis, first: int, count: int) -> tuple[Run, ...]:
    reach = [cols.reach(first + x) for x in range(count)]
    reached = [tuple(x for x in range(count) if tap in reach[x]) for tap in range(cols.taps)]
    return runs_of(reached)


def correlate(
    name: str,
    problem: ConvProblem,
    config: Sharing,
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
    grid = (
        packed.tiles * part.groups,
        ceil_div(part.batch, config.images) * part.rows.results * columns,
    )

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
            by_pixels=in_pixels and _stores_by_pixels(problem, config, part.cols),
            last_image=part.batch - config.images if part.batch % config.images else None,
            **{**values_of(config), "vec": config.vec},
        )

    return Launch(
        text=text,
        kernel=name,
        global_size=(*(grid if config.channels_fastest else grid[::-1]), 1),
        local_size=(1, 1, 1),
        args=(*buffer(images), *buffer(PACKED), *terms(problem), *buffer(written)),
    )


def _stores_by_pixels(problem: ConvProblem, config: Sharing, cols: Axis) -> bool:
    """Say whether a work-item stores all channels of a pixel before the next pixel's.

    A line of which a part is stored later may be written twice. Gradients of strided layers take
    0.31 to 0.98 of the time by it. Pixels without gaps take up to 1.7 times as long.
    """
    return cols.store_step > 1 and DTYPES[problem.dtype] * config.vec < LINE


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
