"""What the texts of `depthwise` depend on, for each of its kernels: sizes, taps and patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oclgen.families.conv.correlation import correlations
from oclgen.families.depthwise.depthwise_text import Row
from oclgen.families.depthwise.patches import (
    blocks,
    has_long_text,
    has_words,
    last_vector,
    packed_taps,
    phases,
    taps_of,
    window,
)
from oclgen.families.depthwise.strips import strips
from oclgen.families.gemm.gemm_parts import aligned_preamble
from oclgen.families.parts.growing import parted
from oclgen.families.parts.packing import Packing
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from oclgen.render import STORED, dtype_preamble

if TYPE_CHECKING:
    from oclgen.families.depthwise.depthwise import Config

PLANES, PIXELS, ROWS = "depthwise", "depthwise_pixels", "depthwise_rows"
"""Kernels, and templates: of planes, and two of channels_last."""
GROWING = ("BATCH",)
"""The size that is an argument where the batch is free."""


def packing_of(problem: ConvProblem, config: Config) -> list[Packing]:
    """Return how weights are packed; none: they are read as they lie, or from local memory."""
    return [packed_taps(problem, config.vec_c)] if config.in_rows(problem) else []


def patches_of(problem: ConvProblem, config: Config) -> tuple[int, int]:
    """Return how many patches lie in a column and in a row of results."""
    rows, cols = phases(problem)
    bands = ceil_div(rows[0].results, config.patch_h)
    return bands, ceil_div(cols[0].results, config.patch_w)


def _planes(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for images in planes depends on."""
    rows, cols = phases(problem)
    return {
        "preamble": f"{dtype_preamble(problem.dtype)}\n{aligned_preamble(problem.dtype)}",
        "sizes": parted(problem, _plane_sizes(problem, config), GROWING).text,
        "blocks": () if config.guarded else blocks(cols, config.patch_w, config.vec),
        "rows": [taps_of(axis, window(rows, config.patch_h)) for axis in rows],
        "cols": [taps_of(axis, window(cols, config.lanes)) for axis in cols],
        "vec": config.vec,
        "guarded": config.guarded,
        "step_w": cols[0].step,
        "written_w": cols[0].written,
        "elem_bytes": 2 if STORED[problem.dtype] != "float" else 4,
        "results": Row(config.patch_w, config.vec, cols[0].store_step, problem.residual),
    }


def _plane_sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    part, (all_rows, all_cols) = correlations(problem)[0], phases(problem)
    rows, cols = window(all_rows, config.patch_h), window(all_cols, config.lanes)
    bands, columns = patches_of(problem, config)
    return {
        "BATCH": part.batch, "GROUPS": part.groups, "CHANNELS": part.channels,
        "DEPTH": part.depth, "READ_H": part.rows.read, "READ_W": part.cols.read,
        "WRITTEN_H": part.rows.written, "WRITTEN_W": part.cols.written,
        "STEP_H": part.rows.step, "STEP_W": part.cols.step, "KERNEL_W": part.kernel_w,
        "WEIGHT_OUT": part.weight_out, "WEIGHT_IN": part.weight_in,
        "WEIGHT_GROUP": part.weight_group,
        "WINDOW_H": rows.elements,
        "WINDOW_W": ceil_div(cols.elements, part.cols.step),
        "WINDOW_ELEMENTS": window(all_cols, config.patch_w).elements,
        "WINDOW_FIRST_H": rows.first, "WINDOW_FIRST_W": cols.first,
        "COLUMNS": columns, "BANDS": bands,
    }  # fmt: skip


def _rows(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for vectors of channels depends on."""
    rows, cols = phases(problem)
    down, across = window(rows, 1), window(cols, config.patch_w)
    sizes = _pixel_sizes(problem, config) | {"WINDOW_FIRST_H": down.first}
    return {
        "preamble": dtype_preamble(problem.dtype),
        "sizes": parted(problem, sizes, GROWING).text,
        "rows": [taps_of(axis, down) for axis in rows],
        "cols": [taps_of(axis, across) for axis in cols],
        "vec": config.vec_c,
        "words": has_words(problem, config.vec_c),
        "packed": packing_of(problem, config)[0].tile,
        "last": last_vector(problem.in_channels, config.vec_c),
        "strips": strips(cols, config.patch_w),
        "kernel_w": problem.kernel_w,
        "looped": has_long_text(problem),
        "step_w": cols[0].step,
    }


def _pixels(problem: ConvProblem, config: Config) -> dict[str, Any]:
    """Return what the text for images in channels_last depends on."""
    rows, cols = phases(problem)
    down, across = window(rows, config.patch_h), window(cols, config.patch_w)
    sizes = _pixel_sizes(problem, config) | {
        "WINDOW_H": down.elements, "WINDOW_W": across.elements, "WINDOW_FIRST_H": down.first,
    }  # fmt: skip
    return {
        "preamble": dtype_preamble(problem.dtype),
        "sizes": parted(problem, sizes, GROWING).text,
        "rows": [taps_of(axis, down) for axis in rows],
        "cols": [taps_of(axis, across) for axis in cols],
        "vec": config.vec_c,
        "last": last_vector(problem.in_channels, config.vec_c),
        "local_c": config.local_c,
        "rounds": config.rounds,
        "kernel_w": problem.kernel_w,
        "looped": config.is_looped(problem),
        "step_w": cols[0].step,
    }


def _pixel_sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    rows, cols = phases(problem)
    bands, columns = patches_of(problem, config)
    return {
        "BATCH": problem.batch, "CHANNELS": problem.in_channels, "COLUMNS": columns,
        "BANDS": bands, "TAPS": problem.kernel_h * problem.kernel_w,
        "READ_H": rows[0].read, "READ_W": cols[0].read,
        "WRITTEN_H": rows[0].written, "WRITTEN_W": cols[0].written,
        "STEP_H": rows[0].step, "STEP_W": cols[0].step,
        "WINDOW_FIRST_W": window(cols, config.patch_w).first,
    }  # fmt: skip


TEXTS = {PLANES: _planes, PIXELS: _pixels, ROWS: _rows}
"""What the text of a kernel depends on, by its name."""
