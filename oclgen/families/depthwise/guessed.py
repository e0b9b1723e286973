"""Patches of depthwise convolutions that are guessed: how large ones pay, by counts.

The families of depthwise convolutions share it; it knows no parameter of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import prod

from oclgen.families.conv.correlation import Axis, windows
from oclgen.families.depthwise.patches import (
    Phases,
    has_long_text,
    has_words,
    phases,
    window,
)
from oclgen.families.parts.caches import LINE, are_held
from oclgen.limits import Limits
from oclgen.plan import ceil_div, even_part
from oclgen.problem import DTYPES, ConvProblem

HEIGHTS, WIDTHS, MOST_RESULTS = range(2, 9), range(4, 9), 49
"""Rows and columns of a patch that are guessed for a processor, and results of a phase at most."""
LOOPED_WIDTHS, MOST_LOOPED = range(4, 13), 96
"""The same where rows of taps are a loop. Many taps pay for a window whose pixels share few sets of
the cache: of 9x9 and 512 channels, 8x9 took 0.55 of the time of 4x4."""
ROW_SUMS = {True: 16, False: 8}
"""Vectors of sums of a row of results, by whether a processor has 32 registers or 16."""
MOST_ROWS, ENOUGH = 56, 16
"""Rows of results of a work-item at most, and work-items that a core has at least."""
WEIGHT_ROWS, WEIGHT_PIXELS = (4, 2), 8
"""Rows and columns of y in a patch of a gradient of weights: a row stays in registers."""
SUMS = 8
"""Sums of a row below which a loop's multiply-adds wait for each other: two begin in each cycle,
and each takes four."""
START, COPY, RESULT = 16, 3, 4
"""What a processor spends on a patch, on an element of its window and on a result, in multiply-adds
of vectors: an element is tested, loaded and stored, a result is tested and stored."""
ROWS, MOST_VECTORS = range(2, 15), 32
"""Rows of a patch in planes that are guessed for a processor, and vectors of results at most."""
FEW_TAPS, FEW_ROWS = 3, 8
"""Taps up to which a patch in planes has few rows, and their most."""
GPU_PATCHES = ((2, 4), (1, 4), (4, 4), (2, 2), (1, 8), (1, 2))
"""Rows and columns of a patch that are guessed for a GPU and channels_last."""
MANY_TAPS = 25
"""Taps up to which two channels of a window leave room for other work-items' registers."""
ROW, SQUARE_TAPS = 8, 9
"""Results of a row that are one patch of strided words, and the taps of 3x3."""
FEW_HELD = 80
"""Registers of a window, or of results, beside which a unit still has work-items to hide loads."""
GUESSED = 3
"""Patches that are guessed for a processor. Of six, the first one reached 0.94 of the best's speed
with AVX-512 and 0.91 with AVX2, the model's choice 0.91 and 0.85."""
SLICE_BYTES, MOST_SLICES = 2**21, 16
"""Bytes of the images of a slice of a gradient of weights, and slices at most. 1024 channels of
161x14, 37 MB in bf16, took 4.5 ms in 16 slices and 5.2 in one; 512 of 13x13, 11 MB, 0.24 in one and
0.28 in 16 (one core of a Zen 5)."""
SMALL = 16
"""Results of a patch that may be guessed however few sets of the cache its pixels share."""


def pixel_patches(
    problem: ConvProblem, is_valid: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Return patches (rows, columns) for a processor and channels_last, best guess first.

    They are ranked by what all patches of an image cost, in multiply-adds: each starts, copies its
    window, and computes and stores its results, those that lie beyond the image, too. Of 12 drawn
    convolutions, six with each of AVX-512 and AVX2, the first one reached 0.95 of the speed of the
    best of 1 to 8 rows and 3 to 8 columns, 0.89 at worst.

    Args:
        problem: in channels_last.
        is_valid: whether the family computes such a patch.
    """
    rows, cols = phases(problem)
    of_a_result = problem.kernel_h * problem.kernel_w / (len(rows) * len(cols)) + RESULT
    is_looped = has_long_text(problem)
    least = SUMS if is_looped else 1

    def cost(patch: tuple[int, int]) -> float:
        high, wide = patch
        copied = window(rows, high).elements * window(cols, wide).elements
        results = len(rows) * high * max(len(cols) * wide, least)
        count = ceil_div(rows[0].results, high) * ceil_div(cols[0].results, wide)
        return count * (START + COPY * copied + of_a_result * results)

    widths, most = (LOOPED_WIDTHS, MOST_LOOPED) if is_looped else (WIDTHS, MOST_RESULTS)
    sizes = [(h, w) for h in HEIGHTS for w in widths if h * w <= most]
    held = (
        patch
        for patch in sorted(sizes, key=cost)
        if is_valid(*patch) and (is_looped or prod(patch) <= SMALL or _is_held(problem, *patch))
    )
    return list(islice(held, GUESSED))


def row_patches(problem: ConvProblem, limits: Limits, vec: int) -> list[tuple[int, int]]:
    """Return patches (rows, columns) for a processor that sums rows of results, best guess first.

    Columns are as many as have their sums in registers. Rows are as many as leave each core some
    work-groups: a work-item begins with its weights, and meets lines again that it has read. 56
    rows took 0.9 of the time of 14 (144 channels of 56x56).

    Args:
        problem: in channels_last.
        limits: of the device: its registers and cores count.
        vec: channels of a work-item.
    """
    rows, cols = phases(problem)
    sums = ROW_SUMS[limits.has_32_vectors] // (2 if has_words(problem, vec) else 1)
    most_w = max(sums // len(cols), 1)
    wide, narrow = (even_part(cols[0].results, most) for most in (most_w, max(most_w // 2, 1)))
    vectors = problem.batch * ceil_div(problem.in_channels, vec)
    enough = ceil_div(ENOUGH * limits.compute_units, vectors * ceil_div(cols[0].results, wide))
    most_h = min(MOST_ROWS, max(rows[0].results // enough, 1))
    high, low = (even_part(rows[0].results, most) for most in (most_h, max(most_h // 2, 1)))
    return list(dict.fromkeys(((high, wide), (high, narrow), (low, wide))))


def _is_held(problem: ConvProblem, patch_h: int, patch_w: int) -> bool:
    """Say whether a processor's nearest cache holds what such a patch reads, and what it writes.

    Pixels whose distance is a large power of two share few sets of the cache: of 1024 and 2048
    channels of 7x7, patches of 7x7 took 1.3 to 1.7 times as long as of 4x4. So do rows: of 64
    channels, 32 columns wide, 16 rows took 1.8 times as long as 4.
    """
    rows, cols = result_axes(problem)
    pixel = DTYPES[problem.dtype] * problem.in_channels
    areas = (
        (window(rows, patch_h).elements, window(cols, patch_w).elements, cols[0].read),
        (len(rows) * patch_h, len(cols) * patch_w, cols[0].written),
    )
    for high, wide, width in areas:
        lines = ((y * width + x) * pixel // LINE for y in range(high) for x in range(wide))
        if not are_held(lines):
            return False
    return True


def plane_guesses(problem: ConvProblem, limits: Limits) -> list[tuple[int, int, int, bool, int]]:
    """Return guesses of (patch_h, patch_w, vec, guarded, local_size) for images in planes.

    The best one comes first. Processors take whole rows, of as many rows as `plane_heights` says,
    and groups of 16 work-items: to start one costs as much as a patch, and those of one took up to
    twice as long.
    """
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        rows, cols = result_axes(problem)
        width = min(cols[0].results, 128)
        vectors = len(cols) * ceil_div(width, lanes)
        heights = plane_heights(problem, rows, vectors)[:3]
        # phases of half a vector: a narrower window took 0.77 to 1.1 of the time
        vec = lanes // 2 if len(cols) > 1 and 2 * width <= lanes else lanes
        return [(h, width, vec, False, local) for local in (16, 4) for h in heights]
    return [(h, w, 1, True, 128) for h, w in ((4, 4), (2, 4), (4, 2), (1, 4), (7, 7))]


def plane_heights(problem: ConvProblem, rows: tuple[Axis, ...], vectors: int) -> list[int]:
    """Return rows of a patch of whole rows for a processor, best guess first.

    More results than `MOST_VECTORS` stay in loops and in memory, which takes up to 2.6 times as
    long; so do many rows of few taps. What is left is ranked as in `pixel_patches`.

    Args:
        problem: its taps count.
        rows: axes of results along a column.
        vectors: of results of a row, of all phases along it.
    """
    taps = problem.kernel_h * problem.kernel_w
    most = FEW_ROWS if taps <= FEW_TAPS else ROWS[-1]
    allowed = [h for h in ROWS if h <= most and len(rows) * h * vectors <= MOST_VECTORS]

    def cost(height: int) -> float:
        of_a_row = (taps / len(rows) + RESULT) * len(rows)
        copied = window(rows, height).elements
        return ceil_div(rows[0].results, height) * (START + COPY * copied + of_a_row * height)

    return sorted(allowed or ROWS[:1], key=cost)


def adapted_height(problem: ConvProblem, patch_h: int, patch_w: int, vec: int) -> int:
    """Return the rows of a patch in planes that won for another problem, for this one.

    Wider rows have more vectors of results: a patch keeps `MOST_VECTORS` of them at most.

    Args:
        problem: in planes.
        patch_h: rows of the patch that won.
        patch_w: columns of it.
        vec: lanes of a vector.
    """
    rows, cols = result_axes(problem)
    vectors = len(cols) * ceil_div(min(patch_w, cols[0].results), vec)
    if len(rows) * patch_h * vectors <= MOST_VECTORS:
        return patch_h
    return plane_heights(problem, rows, vectors)[0]


def result_axes(problem: ConvProblem) -> Phases:
    """Return the axes of what patches lie on: of a gradient of weights, those of y."""
    if problem.direction != "bwd_weights":
        return phases(problem)
    part = windows(problem)
    return Phases((part.rows,), (part.cols,))


def weight_patches(problem: ConvProblem) -> list[tuple[int, int, int]]:
    """Return (rows, columns, slices) of a gradient of weights by rows of y, best guess first.

    A patch is met by each row of taps, so it is as high as the nearest cache holds. Slices cost a
    sum, and pay for images that no cache holds: all work-items read the pages of a slice before
    those of the next one.

    Args:
        problem: in channels_last.
    """
    wide = even_part(problem.out_w, WEIGHT_PIXELS)
    high = next((h for h in WEIGHT_ROWS if _is_held(problem, h, wide)), 1)
    slices = 1 << max(min(problem.bytes // SLICE_BYTES, MOST_SLICES), 1).bit_length() - 1
    return list(dict.fromkeys(((high, wide, slices), (1, wide, slices), (high, wide, 1))))


def held(problem: ConvProblem, patch_h: int, patch_w: int, vec: int) -> int:
    """Return the elements of a window or of results, whichever are more, that a work-item holds.

    Args:
        problem: in channels_last.
        patch_h: rows of a patch.
        patch_w: columns of it.
        vec: channels of a work-item.
    """
    rows, cols = phases(problem)
    size = window(rows, patch_h).elements * window(cols, patch_w).elements
    return max(size, len(rows) * patch_h * len(cols) * patch_w) * vec


def gpu_patches(problem: ConvProblem) -> list[tuple[int, int, int]]:
    """Return patches (rows, columns, channels) for a GPU and channels_last, best guess first.

    Two channels of 16 bits are a word, which a window of many taps has no registers for. Of many
    taps large patches share most of a window. A window of many registers, as strides make it,
    leaves too few work-items to hide loads, so of strided words one patch alone is guessed: a whole
    row of five to eight results, else 1x2, of more than 3x3 taps 2x2. It was the fastest of six in
    14 of 17 such layers, took 1.07 times as long as the fastest at worst, and 0.75 of the time of
    2x4 in the mean (H200, 3x3 and 5x5 of stride 2).
    """
    taps = problem.kernel_h * problem.kernel_w
    has_words = problem.in_channels % 2 == 0 and DTYPES[problem.dtype] == 2
    is_strided = problem.direction == "fwd" and problem.stride_h * problem.stride_w > 1
    if has_words and is_strided and 1 < taps <= MANY_TAPS:
        if ROW // 2 < problem.out_w <= ROW:
            return [(1, ROW, 2)]
        return [(1, 2, 2) if taps <= SQUARE_TAPS else (2, 2, 2)]

    def rank(patch: tuple[int, int, int]) -> int:
        high, wide, _ = patch
        return -high * wide if taps > MANY_TAPS else max(held(problem, *patch), FEW_HELD)

    widths = ((2, 1) if taps <= MANY_TAPS else (1, 2)) if has_words else (1,)
    return [
        patch
        for vec in widths
        for patch in sorted(((*size, vec) for size in GPU_PATCHES), key=rank)
    ]
