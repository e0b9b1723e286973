"""Patches of a depthwise convolution: the windows that they read, and blocks of equal columns.

The families of depthwise convolutions share it; it knows no parameter of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeGuard

from oclgen.families.conv.correlation import Axis, correlations
from oclgen.families.parts.expressions import chunks
from oclgen.families.parts.lane_packing import lanes
from oclgen.families.parts.packing import Packing
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.problem import ConvProblem, Problem, in_planes
from oclgen.registers import covered
from oclgen.render import VECTOR_WIDTHS

MAX_WINDOW = 8192
"""Floats of private memory for the window, or the results: what a CPU's first cache holds."""
MAX_GUARDED = 256
"""The same on a GPU, where it must stay in registers."""
MAX_TEXT = 2000
"""Multiply-adds written out, past which compilers take seconds."""
WRITTEN_TAPS = 49
"""Taps that are written out for each result of a patch: of more, a loop over their rows is faster.
Written out, 2x6 results of 9x9 are 972 multiply-adds, half of which load an operand from memory,
among 5,700 instructions; in loops, an element and the taps of a row are loaded once for all sums.
A loop took 0.45 to 0.7 of the time of the same patch (AVX-512)."""

LEAST_WORDS, MOST_WORDS = 16, 32
"""Channels in bf16 that a work-item has as words of two: 8 words at least, 16 at most. A strided
3x3 layer of 512 channels took 0.57 of the time of vectors of 16 channels, which leave half of each
line of a cache for later (one core of a Zen 5)."""
ROW_LANES = 8
"""Channels of a vector from which on a work-item sums rows and copies no window; GPUs have shorter
vectors."""
NARROWEST = 4
"""Lanes of a vector below which work-items along channels are as fast: of 3 channels, vectors of 2
took 1.0 to 2.1 times as long."""


class Lanes(Protocol):
    """What of a family's parameters says how lanes and edges are."""

    @property
    def vec(self) -> int:
        """Lanes of a vector along the row of a plane."""

    @property
    def vec_c(self) -> int:
        """Lanes of a vector of channels, in channels_last."""

    @property
    def guarded(self) -> bool:
        """Whether edges are tested for at run time."""


class Window(NamedTuple):
    """What neighbouring results read along one axis: elements, from that of index `first` on."""

    elements: int
    first: int


class Phases(NamedTuple):
    """One row of axes and one of columns whose pairs are all correlations of a problem.

    Each is one axis, or one per residue of the stride; these differ in taps and in what is stored.
    """

    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]


class Block(NamedTuple):
    """Text for some blocks of columns (None: all others): (start, width) of copies and stores."""

    columns: tuple[int, ...] | None
    copies: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]


def is_depthwise(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether each group has one input channel; in channels_last, one result, too."""
    if in_planes(problem):
        return problem.groups == problem.in_channels > 1
    return (
        isinstance(problem, ConvProblem)
        and problem.groups == problem.in_channels == problem.out_channels > 1
    )


def has_long_text(problem: ConvProblem) -> bool:
    """Say whether a kernel in channels_last loops over its rows of taps."""
    return problem.kernel_h * problem.kernel_w > WRITTEN_TAPS


def layout_conflict(
    problem: ConvProblem,
    config: Lanes,
    default: Lanes,
    of_planes: Sequence[str] = ("vec", "guarded"),
    of_pixels: Sequence[str] = ("vec_c",),
) -> str | None:
    """Say which parameter is of the other layout and has not its default, or None.

    Vectors lie along the row of a plane, `vec`, or along channels, `vec_c`.

    Args:
        problem: its layout decides which parameters count.
        config: what was asked for.
        default: the family's default, which a parameter of the other layout must keep.
        of_planes: parameters that only "nchw" has.
        of_pixels: parameters that only "nhwc" has.
    """
    for name in of_pixels if problem.layout == "nchw" else of_planes:
        value, wanted = getattr(config, name), getattr(default, name)
        if value != wanted:
            return f"{name}={value} is no parameter of images in {problem.layout}; use {wanted}"
    if problem.layout == "nhwc":
        widths = (*VECTOR_WIDTHS, MOST_WORDS) if problem.dtype == "bf16" else VECTOR_WIDTHS
        if config.vec_c in widths and config.vec_c <= problem.in_channels:
            if may_overlap(problem, config.vec_c):
                return None
            return (
                f"vec_c={config.vec_c} does not divide {problem.in_channels} channels, which "
                "vectors of fp16 must"
            )
        return (
            f"vec_c={config.vec_c} must be of {widths}, and no more than "
            f"{problem.in_channels} channels"
        )
    if config.vec not in VECTOR_WIDTHS:
        return f"vec={config.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
    return None


@lru_cache(maxsize=64)
def phases(problem: ConvProblem) -> Phases:
    """Return the axes of the problem's correlations."""
    parts = correlations(problem)
    return Phases(
        tuple(dict.fromkeys(part.rows for part in parts)),
        tuple(dict.fromkeys(part.cols for part in parts)),
    )


def window(axes: Sequence[Axis], results: int) -> Window:
    """Return what the first `results` results of all `axes` read; these differ in taps alone."""
    places = [
        axis.origin + tap * axis.tap_step for axis in axes for tap in (0, max(axis.taps, 1) - 1)
    ]
    first = min(places)
    return Window((results - 1) * axes[0].step + max(places) - first + 1, first)


def blocks(axes: Sequence[Axis], patch_w: int, vec: int) -> list[Block]:
    """Return the texts that a row's blocks of `patch_w` results need, the commonest last.

    Args:
        axes: columns of every phase; they differ in taps alone.
        patch_w: results of a block along a row.
        vec: lanes of the widest store.
    """
    texts: dict[tuple[tuple[tuple[int, int], ...], ...], list[int]] = {}
    extent, cols = window(axes, patch_w), axes[0]
    width = patch_w * cols.store_step
    for column in range(ceil_div(cols.results, patch_w)):
        first = column * patch_w * cols.step + extent.first
        low, high = max(0, -first), min(extent.elements, cols.read - first)
        stores = _stores(min(width, cols.written - column * width), vec)
        texts.setdefault((_copies(low, high, cols.step), stores), []).append(column)
    ranked = sorted(texts.items(), key=lambda entry: len(entry[1]))
    return [
        Block(None if at == len(ranked) - 1 else tuple(columns), *text)
        for at, (text, columns) in enumerate(ranked)
    ]


def pieces(start: int, end: int, widest: int) -> tuple[tuple[int, int], ...]:
    """Cut [start, end) into (start, width) of vectors of at most `widest`.

    Args:
        start: first place.
        end: after the last place.
        widest: largest of `VECTOR_WIDTHS` to use.

    Returns:
        Widest vectors first.
    """
    cut: list[tuple[int, int]] = []
    for width in (w for w in reversed(VECTOR_WIDTHS) if w <= widest):
        while end - start >= width:
            cut.append((start, width))
            start += width
    return tuple(cut)


def _copies(low: int, high: int, step: int) -> tuple[tuple[int, int], ...]:
    if step > 2:
        return pieces(low, high, 1)
    even = min(round_up(low, step), high)  # even and odd columns are parted pair by pair
    return (*pieces(low, even, 1), *pieces(even, high, 16))


def _stores(count: int, vec: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        piece
        for first in range(0, count, vec)
        for piece in pieces(first, min(first + vec, count), vec)
    )


def taps_of(axis: Axis, extent: Window) -> list[tuple[int, int]]:
    """Return for each tap its place in the kernel, and in the window of result 0."""
    return [
        (
            axis.kernel_first + tap * axis.kernel_step,
            axis.origin + tap * axis.tap_step - extent.first,
        )
        for tap in range(axis.taps)
    ]


def channel_vectors(problem: ConvProblem, limits: Limits) -> tuple[int, ...]:
    """Return widths of vectors of channels, the best guess first.

    On a processor the last vector may overlap the one before it: the widest is the best guess. Of
    12 to 578 channels that no vector divides, it took 0.14 to 0.9 of the time of work-items along
    channels.
    """
    if limits.kind == "cpu":
        of_a_word = 2 if problem.dtype == "bf16" else 1
        most = min(of_a_word * limits.native_float_width, problem.in_channels)
        wide = [
            width
            for width in (MOST_WORDS, *VECTOR_WIDTHS[::-1])
            if NARROWEST <= width <= most and may_overlap(problem, width)
        ]
        return (*wide[:2], 1)
    # neighbouring work-items of a GPU read neighbouring channels as it is
    return tuple(width for width in (1, 2, 4) if problem.in_channels % width == 0)


def may_overlap(problem: ConvProblem, width: int) -> bool:
    """Say whether vectors of channels divide them, or the last one may overlap the one before it.

    Vectors of fp16 may not: PoCL 3.1 loads them as if they were aligned, and the process ends.
    """
    return problem.in_channels % width == 0 or problem.dtype != "fp16"


def last_vector(channels: int, vec_c: int) -> list[tuple[int, int]]:
    """Return the stores of a last vector of channels that overlaps the one before it.

    It begins `vec_c` channels before their end, and stores those that the others leave.

    Args:
        channels: of an image.
        vec_c: channels of a vector, no more than those.

    Returns:
        (first lane, width) of each store; none where vectors divide the channels.
    """
    own = channels % vec_c
    return [(vec_c - own + start, width) for start, width in chunks(own)]


def pixel_lanes(problem: ConvProblem, vec_c: int, local_c: int) -> tuple[int, float]:
    """Return the lanes of a vector of channels on a processor, and the part of them that is used.

    Where a work-item has one channel, compilers make a vector of the work-items along channels.

    Args:
        problem: in channels_last.
        vec_c: channels of a work-item.
        local_c: work-items along channels, of a work-group.
    """
    if vec_c > 1:
        return vec_c, covered((problem.in_channels, vec_c))
    return local_c, covered((problem.in_channels, local_c))


def has_words(problem: ConvProblem, vec_c: int) -> bool:
    """Say whether channels are loaded as words of two: 16 lanes of words are a line of a cache."""
    return problem.dtype == "bf16" and vec_c >= LEAST_WORDS


def packed_taps(problem: ConvProblem, vec_c: int) -> Packing:
    """Return how weights are packed for vectors of channels, so that a tap's are neighbours.

    To gather the lanes of a tap takes as many loads as lanes: 3x3 layers of 27x27 and of 28x28 took
    0.3 to 0.5 of the time with packed weights. Where vectors divide the channels, taps of a vector
    lie side by side; else those of all channels, as the last vector overlaps the one before it.

    Args:
        problem: in channels_last.
        vec_c: channels of a vector.
    """
    channels, taps = problem.in_channels, problem.kernel_h * problem.kernel_w
    block = round_up(channels, vec_c) if last_vector(channels, vec_c) else vec_c
    return lanes("w", problem.dtype, 1, channels, taps, block)
