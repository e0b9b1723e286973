"""Gradient of a depthwise convolution's weights: groups equal the input channels.

The forward and backward-data directions are `depthwise`'s, whose windows and blocks it shares.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.conv.correlation import Correlation, windows
from oclgen.families.depthwise.depthwise import MAX_GUARDED, MAX_WINDOW, blocks, window
from oclgen.families.parts.planes import PLANES, planes_space, summed
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Parts, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem, in_planes
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "depthwise_weights"

MAX_TAPS = 64
"""Taps of a kernel, each of which has an accumulator of its own."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    patch_h: Item
    patch_w: Item
    vec: Vector
    guarded: bool
    local_size: Local
    local_k: Local
    split: Parts

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.local_k.bit_count() != 1 or self.local_size % self.local_k:
            return f"local_k={self.local_k} must be a power of 2 that divides {self.local_size}"
        part = windows(problem)
        rows, cols = window((part.rows,), self.patch_h), window((part.cols,), self.lanes)
        size = rows.elements * cols.elements + self.patch_h * self.lanes
        allowed = MAX_GUARDED if self.guarded else MAX_WINDOW
        if size > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} copies {size} elements; at most "
                f"{allowed} stay close with guarded={self.guarded}"
            )
        if not 1 <= self.split <= (count := patches(part, self)):
            return f"split={self.split}, but there are only {count} patches to be split"
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.local_size, 1, 1), self.local_bytes(problem))
        return Needs((frame,), planes_space(problem, self.split))

    def local_bytes(self, problem: ConvProblem) -> int:
        """Return the bytes of local memory: sums of all taps, where work-items share a plane."""
        taps = problem.kernel_h * problem.kernel_w
        return 4 * self.local_size * taps if self.local_k > 1 else 0

    @property
    def lanes(self) -> int:
        """Elements of y along a row, with the idle lanes of the last vector."""
        return round_up(self.patch_w, self.vec)


DEFAULT = Config(patch_h=4, patch_w=1, vec=1, guarded=True, local_size=64, local_k=64, split=1)
TRAITS = Traits(rank=130)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        in_planes(problem)
        and problem.groups == problem.in_channels > 1
        and problem.direction == "bwd_weights"
        and problem.kernel_h * problem.kernel_w <= MAX_TAPS
    )


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launch that sums over patches, and the sum of the planes if there are any."""
    return summed(_launch(problem, config, windows(problem)), problem, config.split)


def patches(part: Correlation, config: Config) -> int:
    """Return how many patches of y one channel has in all images."""
    bands = ceil_div(part.rows.results, config.patch_h)
    return part.batch * bands * ceil_div(part.cols.results, config.patch_w)


def _launch(problem: ConvProblem, config: Config, part: Correlation) -> Launch:
    step = part.cols.step
    reach = ceil_div(window((part.cols,), config.lanes).elements, step)
    offsets = [tap * part.cols.tap_step for tap in range(part.cols.taps)]
    items = problem.out_channels * config.split * config.local_k

    @LazyText
    def text() -> str:
        return render(
            NAME,
            preamble=dtype_preamble(problem.dtype),
            sizes=_sizes(part, config),
            blocks=() if config.guarded else blocks((part.cols,), config.patch_w, config.vec),
            taps=[at % step * reach + at // step for at in offsets],
            taps_h=part.rows.taps,
            step_w=step,
            **asdict(config),
        )

    return Launch(
        text=text,
        kernel=NAME,
        global_size=(round_up(items, config.local_size), 1, 1),
        local_size=(config.local_size, 1, 1),
        args=(*buffer("y"), *buffer("x"), *buffer(PLANES if config.split > 1 else "w")),
        local_bytes=config.local_bytes(problem),
    )


def _sizes(part: Correlation, config: Config) -> dict[str, int]:
    rows, cols, count = part.rows, part.cols, patches(part, config)
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
