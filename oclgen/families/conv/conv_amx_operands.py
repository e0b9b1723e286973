"""What `conv_amx` reads: pixels with zeros around the image, and weights as pairs of channels.

Slices of volumes have zeros before and behind them, too. Channels are those of a slice here, and
the taps along the depth are one more axis of the weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from oclgen.families.conv import conv_register_plan
from oclgen.families.conv.correlation import Axis, Correlation, operands
from oclgen.families.gemm.gemm_amx_blocks import SIDE, STEP
from oclgen.families.parts.lane_packing import pack_groups, pack_weights
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.plan import Launch, LazyText, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Volume
from oclgen.render import render

IMAGES = "packed_images"
"""Role of the workspace of images with zeros around them."""
PAIR, ITEM_BYTES = 2, 2
MOST_PADDING = 0.3
"""Part of its channels that a pixel may grow by so that no step reads two cache lines."""
ROW_BYTES = 32768
"""Bytes of packed rows of a work-item, which stay in the nearest cache while it fills them."""
FLAT = Volume(1, 1)
"""Images of two dimensions as volumes: one slice, and one tap along the depth."""


def is_mirrored(problem: ConvProblem) -> bool:
    """Say whether a row of taps is packed from the last to the first.

    The gradient of images meets them so. Then neighbours of the image and of the packed weights
    go the same way, and are summed as one run.
    """
    return problem.direction == "bwd_data"


@lru_cache(maxsize=64)
def parts_of(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations that a problem is computed as, by packed weights."""
    parts = conv_register_plan.parts_of(problem)
    if not is_mirrored(problem):
        return parts
    return tuple(replace(one, cols=one.cols.backwards(problem.kernel_w)) for one in parts)


class Halo(NamedTuple):
    """An axis of the packed image: zeros before what is read, and elements in all."""

    pad: int
    size: int


def packed_weights(problem: ConvProblem, volume: Volume, block: int) -> Packing:
    """Return how the weights are packed: for each group, and `block` channels of its result.

    Args:
        problem: of a slice, its groups merged.
        volume: whose slice it is.
        block: channels of the result per work-item.
    """
    part = parts_of(problem)[0]
    taps = volume.taps * problem.kernel_h * problem.kernel_w
    return Packing(
        PACKED, buffer("w"), problem.dtype, True, part.groups, part.channels,
        ceil_div(part.depth, PAIR) * taps, block,
    )  # fmt: skip


def pack_of_weights(problem: ConvProblem, together: int, packed: Packing) -> Launch:
    """Return the launch that packs the weights of a problem.

    Args:
        problem: as it is asked for.
        together: its groups that are packed as one.
        packed: of `packed_weights`.
    """
    part, mirrored = parts_of(problem.of_slice)[0], is_mirrored(problem)
    if together > 1:
        return pack_groups(problem, packed, part.channels, part.depth, together, mirrored)
    return pack_weights(
        problem, packed, part.channels, part.depth, SIDE, pairs=True, mirrored=mirrored
    )


def packed_images(problem: ConvProblem, volume: Volume) -> list[Packing]:
    """Return how the images of a slice's problem are packed; none if they are read as they lie."""
    if in_place(problem, volume):
        return []
    part, (rows, cols) = parts_of(problem)[0], halos(problem)
    slices = part.batch // volume.windows * volume.reach
    # the last tile of a row reads on past it: of the last row, into pixels that are no image's
    pixels = slices * part.groups * rows.size * cols.size + SIDE * _widest_step(problem)
    read = buffer(operands(problem)[1])
    return [
        Packing(
            IMAGES, read, problem.dtype, True, 1, pixels, pixel_of(part), 1, elem_bytes=ITEM_BYTES
        )
    ]


def in_place(problem: ConvProblem, volume: Volume) -> bool:
    """Whether tiles are read from the image as it lies: no tile reaches beyond it."""
    return (
        problem.layout == "nhwc"
        and volume.pad == 0
        and parts_of(problem)[0].depth % PAIR == 0
        and all(
            part.inside and part.cols.results % results_of(part.cols) == 0
            for part in parts_of(problem)
        )
    )


def pixel_of(part: Correlation) -> int:
    """Return the items of a packed pixel: whole steps where these are little more, else pairs."""
    steps = round_up(part.depth, STEP)
    return steps if steps <= (1 + MOST_PADDING) * part.depth else round_up(part.depth, PAIR)


def _widest_step(problem: ConvProblem) -> int:
    return max(part.cols.step for part in parts_of(problem))


@lru_cache(maxsize=64)
def halos(problem: ConvProblem) -> tuple[Halo, Halo]:
    """Return the axes of packed images, which serve all correlations of a problem."""
    parts = parts_of(problem)
    return _halo([part.rows for part in parts]), _halo([part.cols for part in parts])


def _halo(axes: list[Axis]) -> Halo:
    lowest, highest = 0, axes[0].read - 1
    for axis in axes:
        reach = (max(axis.taps, 1) - 1) * axis.tap_step
        lowest = min(lowest, axis.origin + min(reach, 0))
        highest = max(highest, (axis.results - 1) * axis.step + axis.origin + max(reach, 0))
    return Halo(-lowest, highest + 1 - lowest)


def columns_of(cols: Axis) -> int:
    """Return the tiles of a row of results."""
    return ceil_div(cols.results, SIDE)


def results_of(cols: Axis) -> int:
    """Return the results of a tile: tiles share a row evenly, and rows of a tile cost time."""
    return ceil_div(cols.results, columns_of(cols))


def pack_of_images(problem: ConvProblem, volume: Volume) -> Launch:
    """Return the launch that packs the images of a slice's problem."""
    part, (rows, cols) = parts_of(problem)[0], halos(problem)
    at_once = max(ceil_div(ROW_BYTES, ITEM_BYTES * cols.size * pixel_of(part)), 1)
    sizes = {
        "GROUPS": part.groups, "DEPTH": part.depth, "PIXEL": pixel_of(part), "ROWS": at_once,
        "HEIGHT": part.rows.read, "WIDTH": part.cols.read, "PAD_H": rows.pad, "PAD_W": cols.pad,
        "PACKED_H": rows.size, "PACKED_W": cols.size,
        "SLICES": volume.size, "PAD_D": volume.pad, "PACKED_D": volume.reach,
    }  # fmt: skip
    slices = part.batch // volume.windows * volume.reach

    @LazyText
    def text() -> str:
        return render(
            "conv_amx_images",
            sizes=sizes,
            in_pixels=problem.layout == "nhwc",
            depth=part.depth,
            pixel=pixel_of(part),
            whole=part.rows.read * part.cols.read >= SIDE,
        )

    return Launch(
        text=text,
        kernel="conv_amx_images",
        global_size=(ceil_div(rows.size, at_once), slices * part.groups, 1),
        local_size=(1, 1, 1),
        args=(*buffer(operands(problem)[1]), *buffer(IMAGES)),
    )
