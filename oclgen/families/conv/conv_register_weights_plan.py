"""What `conv_register_weights` and `conv_pairs_weights` share: slices, sums, sizes, the launch.

How the gradient of y is packed, and what is guessed, is the families' own.
"""

from __future__ import annotations

from typing import Protocol

from oclgen.families.conv.correlation import Correlation, Run, runs_of, strung_windows
from oclgen.families.gemm.gemm_pairs import PAIR
from oclgen.families.parts.lane_packing import LANE_STEPS
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.planes import PLANES, WEIGHTS_ITEMS, Sum, sum_planes, sum_weights
from oclgen.families.parts.strided_weights import strided_weights
from oclgen.families.parts.widening import WIDENED
from oclgen.limits import Limits
from oclgen.parameters import values_of
from oclgen.plan import Launch, LazyText, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem
from oclgen.render import dtype_preamble, render

MAX_KERNEL_W = 16
"""Taps along a row, each of which has an accumulator of its own."""
ITEMS_PER_UNIT = 4
"""Work-items that a core wants to share the work evenly; with fewer the rows are split."""
MAX_SPLIT = 32
"""Planes that are still worth their sum."""
GROWING = ("ROWS", "ROWS_PER_PLANE")
"""Sizes that grow with the batch: arguments, where it is free."""


class Sharing(Protocol):
    """Parameters by which work-items of both families share weights and rows."""

    @property
    def item_c(self) -> int:
        """Input channels of a work-item."""

    @property
    def vec(self) -> int:
        """Lanes of a vector of output channels."""

    @property
    def vecs(self) -> int:
        """Vectors of output channels of a work-item."""

    @property
    def split(self) -> int:
        """Planes of slices of rows."""

    @property
    def outputs_fastest(self) -> bool:
        """Whether neighbouring work-items have neighbouring blocks of output channels."""


def why_no_sums(problem: ConvProblem, config: Sharing, most: int) -> str | None:
    """Say with numbers why the work-items of a config cannot have the sums that it asks for.

    Args:
        problem: the gradient.
        config: what shares it out.
        most: vectors of sums that stay in a core's registers.
    """
    vectors = config.item_c * config.vecs * problem.kernel_w
    if vectors > most:
        return (
            f"item_c={config.item_c} vecs={config.vecs} with {problem.kernel_w} taps needs "
            f"{vectors} vectors of accumulators; at most {most} stay in registers"
        )
    depth = problem.in_channels // problem.groups
    if config.item_c > depth:
        return f"item_c={config.item_c} is more than the {depth} input channels of a group"
    rows = problem.batch * strung_windows(problem).rows.results
    if not 1 <= config.split <= rows:
        return f"split={config.split}, but there are only {rows} rows to be split"
    return None


def splits(problem: ConvProblem, limits: Limits, item_c: int, block: int) -> tuple[int, int]:
    """Return the planes that give each core its work-items, and what else may be better.

    Args:
        problem: the gradient.
        limits: of the device: its compute units.
        item_c: input channels of a work-item.
        block: output channels of a work-item.
    """
    part = strung_windows(problem)
    items = part.groups * ceil_div(part.channels, block) * ceil_div(part.depth, item_c)
    wanted = ceil_div(ITEMS_PER_UNIT * limits.compute_units, items * part.rows.taps)
    rows = part.batch * part.rows.results
    fill = min(1 << (wanted - 1).bit_length(), 1 << (rows.bit_length() - 1), MAX_SPLIT)
    return fill, min(problem.batch, 8) if fill == 1 else 1


def inputs(part: Correlation, limits: Limits) -> tuple[int, ...]:
    """Return numbers of input channels whose taps have accumulators in registers."""
    most = min(max(limits.vector_sums // part.cols.taps, 1), part.depth)
    return tuple(c for c in (*range(1, 9), 10, 12, 14) if c <= most)


def sum_of(problem: ConvProblem, split: int) -> Sum:
    """Return the sum of the planes that slices of rows leave, as `launch_of` writes them.

    Args:
        problem: the gradient.
        split: planes.
    """
    if problem.layout == "nchw":
        return sum_planes(problem, split)
    depth, taps = problem.in_channels // problem.groups, problem.kernel_h * problem.kernel_w
    return sum_weights(problem, split, depth, min(max(WEIGHTS_ITEMS // taps, 1), depth))


def pixels_of_y(problem: ConvProblem) -> tuple[dict[str, int], str]:
    """Return strides of y in channels_last by the names of `LANE_STEPS`, rows of y being taps.

    The text of the place of a group's matrix by its number follows.
    """
    part = strung_windows(problem)
    rows, cols, channels = part.rows.results, part.cols.results, part.groups * part.channels
    steps = dict(zip(LANE_STEPS, (1, channels, cols * channels, 0), strict=True))
    of_image = f"matrix / {part.groups} * {rows * cols * channels}L"
    return steps, f"{of_image} + matrix % {part.groups} * {part.channels}"


def sizes_of(windows: Correlation, split: int) -> dict[str, int]:
    """Return names and values of the text's sizes.

    Args:
        windows: of the gradient.
        split: planes of slices of rows.
    """
    rows, cols = windows.rows, windows.cols
    every_row = windows.batch * rows.results
    return {
        "GROUPS": windows.groups, "CHANNELS": windows.channels, "DEPTH": windows.depth,
        "ROWS": every_row, "ROWS_PER_PLANE": ceil_div(every_row, split),
        "RESULTS_H": rows.results, "RESULTS_W": cols.results,
        "READ_H": rows.read, "READ_W": cols.read, "TAPS_H": rows.taps, "TAPS_W": cols.taps,
        "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "TAP_STEP_W": cols.tap_step,
        "ORIGIN_H": rows.origin, "ORIGIN_W": cols.origin,
    }  # fmt: skip


def launch_of(
    name: str,
    problem: ConvProblem,
    config: Sharing,
    packed: Packing,
    sizes: dict[str, int],
    x: str = "x",
    dot: str | None = None,
    in_place: bool = False,
) -> Launch:
    """Return the launch that sums over positions.

    Args:
        name: of the kernel.
        problem: the gradient.
        config: how work-items share it.
        packed: y.
        sizes: names and values of the text's sizes.
        x: buffer of the images.
        dot: text of the instruction, if positions are pairs of neighbours.
        in_place: y is read as it lies, and `packed` says how many blocks it has.
    """
    windows = strung_windows(problem)
    inputs = ceil_div(windows.depth, config.item_c) * windows.rows.taps
    grid = (packed.tiles * windows.groups, inputs)
    given = GROWING if problem.free else ()
    in_pixels = problem.layout == "nhwc"
    weights = strided_weights(problem) if in_pixels else buffer("w")

    @LazyText
    def text() -> str:
        return render(
            "conv_register_weights",
            kernel=name,
            pairs=dot,
            preamble=dtype_preamble(problem.dtype),
            sizes={name: value for name, value in sizes.items() if name not in given},
            given=given,
            taps=windows.cols.taps,
            runs=_runs_of_pairs(windows) if dot else runs_along(windows),
            alone=dot is not None and windows.cols.results % PAIR,
            in_pixels=in_pixels,
            in_place=in_place,
            edge=windows.depth % config.item_c != 0,
            widened=x == WIDENED,
            **{**values_of(config), "vec": config.vec},
        )

    return Launch(
        text=text,
        kernel=name,
        global_size=(*(grid if config.outputs_fastest else grid[::-1]), config.split),
        local_size=(1, 1, 1),
        args=(
            *buffer("y" if in_place else PACKED),
            *buffer(x),
            *(buffer(PLANES) if config.split > 1 else weights),
            *(Scalar(sizes[name]) for name in given),
        ),
    )


def runs_along(windows: Correlation) -> tuple[Run, ...]:
    """Return the neighbouring positions of a row that reach the same taps."""
    return runs_of([tuple(windows.cols.reach(q)) for q in range(windows.cols.results)])


def _runs_of_pairs(windows: Correlation) -> tuple[Run, ...]:
    """Return the pairs of a row, which all reach every tap, and apart from them half a pair."""
    pairs, half = divmod(windows.cols.results, PAIR)
    spans = (range(pairs), range(pairs, pairs + half))
    return tuple(Run(span, (*range(windows.cols.taps),)) for span in spans if span)
