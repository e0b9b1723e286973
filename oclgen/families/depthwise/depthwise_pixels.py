"""Depthwise convolution in channels_last, forward and backward-data: lanes are channels.

Planes are `depthwise`'s; what has several results for a channel is left to the copying of images.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.conv.correlation import operands
from oclgen.families.depthwise.depthwise import (
    MAX_GUARDED,
    MAX_TEXT,
    MAX_WINDOW,
    phases,
    taps_of,
    window,
)
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "depthwise_pixels"


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    patch_h: Item
    patch_w: Item
    vec: Vector
    local_size: Local

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := vec_conflict(problem, self.vec):
            return reason
        allowed = MAX_WINDOW if limits.kind == "cpu" else MAX_GUARDED
        rows, cols = phases(problem)
        size = window(rows, self.patch_h).elements * window(cols, self.patch_w).elements
        results = len(rows) * self.patch_h * len(cols) * self.patch_w
        if (size := max(size, results) * self.vec) > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} vec={self.vec} has {size} elements "
                f"of a window or results; at most {allowed} stay close"
            )
        written = self.patch_h * self.patch_w * problem.kernel_h * problem.kernel_w
        if written > MAX_TEXT:
            return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (self.local_size, 1, 1)),))


DEFAULT = Config(patch_h=1, patch_w=4, vec=1, local_size=64)
TRAITS = Traits(rank=140)


def vec_conflict(problem: ConvProblem, vec: int) -> str | None:
    """Say why channels cannot lie in vectors of `vec`, or None."""
    if vec in VECTOR_WIDTHS and problem.in_channels % vec == 0:
        return None
    return f"vec={vec} must be of {VECTOR_WIDTHS} and divide {problem.in_channels} channels"


def is_depthwise(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether each channel of images in channels_last has one result of its own."""
    return (
        isinstance(problem, ConvProblem)
        and problem.layout == "nhwc"
        and problem.groups == problem.in_channels == problem.out_channels > 1
    )


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return is_depthwise(problem) and problem.direction != "bwd_weights"


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return one launch, which computes all correlations."""
    weights, read, written = operands(problem)
    rows, cols = phases(problem)
    columns = ceil_div(cols[0].results, config.patch_w)
    bands = ceil_div(rows[0].results, config.patch_h)
    across, down = window(cols, config.patch_w), window(rows, config.patch_h)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            preamble=dtype_preamble(problem.dtype),
            sizes={
                "BATCH": problem.batch, "CHANNELS": problem.in_channels, "COLUMNS": columns,
                "BANDS": bands, "TAPS": problem.kernel_h * problem.kernel_w,
                "READ_H": rows[0].read, "READ_W": cols[0].read,
                "WRITTEN_H": rows[0].written, "WRITTEN_W": cols[0].written,
                "STEP_H": rows[0].step, "STEP_W": cols[0].step,
                "WINDOW_H": down.elements, "WINDOW_W": across.elements,
                "WINDOW_FIRST_H": down.first, "WINDOW_FIRST_W": across.first,
            },
            rows=[taps_of(axis, down) for axis in rows],
            cols=[taps_of(axis, across) for axis in cols],
            store_h=rows[0].store_step,
            store_w=cols[0].store_step,
            kernel_w=problem.kernel_w,
            **epilogue(problem, "out"),
            **asdict(config),
        )  # fmt: skip

    items = problem.batch * bands * columns * problem.in_channels // config.vec
    launch = Launch(
        text=text,
        kernel=NAME,
        global_size=(round_up(items, config.local_size), 1, 1),
        local_size=(config.local_size, 1, 1),
        args=(
            *buffer(read),
            *buffer(weights),
            *terms(problem),
            *buffer(written),
        ),
    )
    return Plan((launch,))
