"""What the texts of `depthwise_weights` depend on, for each of its kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oclgen.families.conv.correlation import Correlation, windows
from oclgen.families.depthwise.patches import blocks, has_words, taps_of, window
from oclgen.families.depthwise.strips import strips
from oclgen.families.parts.growing import parted
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem

if TYPE_CHECKING:
    from oclgen.families.depthwise.depthwise_weights import Config

KERNEL_OF_PLANES = "depthwise_weights"
PIXELS, ROWS = "depthwise_pixels_weights", "depthwise_rows_weights"
"""Kernels, and templates: of planes, and two of channels_last."""
GROWING = ("PATCHES", "PATCHES_PER_PLANE")
"""Sizes that grow with the batch: arguments, where it is free."""


def patches_of(problem: ConvProblem, config: Config) -> int:
    """Return how many patches of y a channel has in all images."""
    bands = ceil_div(problem.out_h, config.patch_h)
    return problem.batch * bands * ceil_div(problem.out_w, config.patch_w)


def met(problem: ConvProblem, config: Config) -> Correlation:
    """Return the forward correlation of the taps of a work-item, the first ones."""
    part = windows(problem)
    return replace(part, rows=replace(part.rows, taps=config.rows_of(problem)))


def _planes(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for images in planes depends on."""
    part = met(problem, config)
    step = part.cols.step
    reach = ceil_div(window((part.cols,), config.lanes).elements, step)
    offsets = [tap * part.cols.tap_step for tap in range(part.cols.taps)]
    return {
        "sizes": parted(problem, _plane_sizes(problem, config), GROWING).text,
        "blocks": () if config.guarded else blocks((part.cols,), config.patch_w, config.vec),
        "taps": [at % step * reach + at // step for at in offsets],
        "taps_h": part.rows.taps,
        "all_taps": problem.kernel_h * problem.kernel_w,
        "step_w": step,
        "ends_h": part.rows.results % config.patch_h > 0,
        "ends_w": part.cols.results % config.patch_w > 0 or config.patch_w % config.vec > 0,
        "vec": config.vec,
        "guarded": config.guarded,
        "local_size": config.local_size,
        "local_k": config.local_k,
    }


def _plane_sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    part, count = met(problem, config), patches_of(problem, config)
    rows, cols = part.rows, part.cols
    return {
        "GROUPS": part.groups, "CHANNELS": part.channels,
        "RESULTS_H": rows.results, "RESULTS_W": cols.results,
        "READ_H": rows.read, "READ_W": cols.read, "STEP_H": rows.step, "STEP_W": cols.step,
        "TAP_STEP_H": rows.tap_step, "COLUMNS": ceil_div(cols.results, config.patch_w),
        "BANDS": ceil_div(rows.results, config.patch_h),
        "PATCHES": count, "PATCHES_PER_PLANE": ceil_div(count, config.split),
        "WINDOW_H": window((rows,), config.patch_h).elements,
        "WINDOW_W": ceil_div(window((cols,), config.lanes).elements, cols.step),
        "WINDOW_ELEMENTS": window((cols,), config.patch_w).elements,
        "WINDOW_FIRST_H": rows.origin, "WINDOW_FIRST_W": cols.origin,
    }  # fmt: skip


def _rows(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for vectors of channels depends on."""
    cols = windows(problem).cols
    return {
        "sizes": parted(problem, _pixel_sizes(problem, config), GROWING).text,
        "vec": config.vec_c,
        "words": has_words(problem, config.vec_c),
        "shared": -problem.in_channels % config.vec_c,
        "strips": strips((cols,), config.patch_w),
        "cols": taps_of(cols, window((cols,), config.patch_w)),
        "step_w": cols.step,
        "all_rows": problem.kernel_h,
    }


def _pixels(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for images in channels_last depends on."""
    local_c, local_k, _ = config.local_sizes(problem)
    return {
        "sizes": parted(problem, _pixel_sizes(problem, config), GROWING).text,
        "vec": config.vec_c,
        "shared": -problem.in_channels % config.vec_c,
        "whole": problem.out_h % config.patch_h == problem.out_w % config.patch_w == 0,
        "local_c": local_c,
        "local_k": local_k,
        "all_rows": problem.kernel_h,
    }


def _pixel_sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    part, count = met(problem, config), patches_of(problem, config)
    sizes = {
        "CHANNELS": problem.in_channels, "PATCHES": count,
        "PATCHES_PER_PLANE": ceil_div(count, config.split),
        "COLUMNS": ceil_div(problem.out_w, config.patch_w),
        "BANDS": ceil_div(problem.out_h, config.patch_h),
    }  # fmt: skip
    axes = (("H", part.rows, config.patch_h), ("W", part.cols, config.patch_w))
    for letter, axis, results in axes:
        sizes |= {
            f"{name}_{letter}": value
            for name, value in (
                ("RESULTS", axis.results), ("READ", axis.read), ("STEP", axis.step),
                ("TAPS", axis.taps), ("TAP_STEP", axis.tap_step), ("ORIGIN", axis.origin),
                ("WINDOW", window((axis,), results).elements),
            )
        }  # fmt: skip
    return sizes


TEXTS = {KERNEL_OF_PLANES: _planes, PIXELS: _pixels, ROWS: _rows}
"""What the text of a kernel depends on, by its name."""
