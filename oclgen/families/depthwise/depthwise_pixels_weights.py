"""Gradient of a depthwise convolution's weights in channels_last: lanes are channels.

The forward and backward-data directions are `depthwise_pixels`'; planes are `depthwise_weights`'.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeGuard

from oclgen.families.conv.correlation import windows
from oclgen.families.depthwise.depthwise import MAX_GUARDED, MAX_TEXT, MAX_WINDOW, window
from oclgen.families.depthwise.depthwise_pixels import is_depthwise, vec_conflict
from oclgen.families.depthwise.depthwise_weights import MAX_TAPS
from oclgen.families.parts.planes import PLANES, planes_space, summed
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Parts, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.render import dtype_preamble, render

NAME = "depthwise_pixels_weights"


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    patch_h: Item
    patch_w: Item
    vec: Vector
    local_c: Local
    local_k: Local
    split: Parts

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := vec_conflict(problem, self.vec):
            return reason
        if not 1 <= self.split <= (count := patches(problem, self)):
            return f"split={self.split}, but there are only {count} patches to be split"
        return self._patch_why_not(problem, limits)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(NAME, (self.local_c, self.local_k, 1), self.local_bytes)
        return Needs((frame,), planes_space(problem, self.split))

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory: a vector of sums for each work-item."""
        return 4 * self.vec * self.local_c * self.local_k

    def _patch_why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        part, taps = windows(problem), problem.kernel_h * problem.kernel_w
        rows, cols = window((part.rows,), self.patch_h), window((part.cols,), self.patch_w)
        results = self.patch_h * self.patch_w
        size = (rows.elements * cols.elements + results + taps) * self.vec
        allowed = MAX_WINDOW if limits.kind == "cpu" else MAX_GUARDED
        if size > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} vec={self.vec} keeps {size} "
                f"elements; at most {allowed} stay close"
            )
        if results * taps > MAX_TEXT:
            return f"{results * taps} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None


DEFAULT = Config(patch_h=1, patch_w=2, vec=1, local_c=16, local_k=4, split=1)
TRAITS = Traits(rank=150)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        is_depthwise(problem)
        and problem.direction == "bwd_weights"
        and problem.kernel_h * problem.kernel_w <= MAX_TAPS
    )


def patches(problem: ConvProblem, config: Config) -> int:
    """Return how many patches of y there are in all images."""
    bands = ceil_div(problem.out_h, config.patch_h)
    return problem.batch * bands * ceil_div(problem.out_w, config.patch_w)


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launch that sums over patches, and the sum of the planes if there are any."""
    return summed(_launch(problem, config), problem, config.split)


def _launch(problem: ConvProblem, config: Config) -> Launch:

    @LazyText
    def text() -> str:
        return render(
            NAME,
            preamble=dtype_preamble(problem.dtype),
            sizes=_sizes(problem, config),
            **asdict(config),
        )

    across = round_up(problem.in_channels // config.vec, config.local_c)
    return Launch(
        text=text,
        kernel=NAME,
        global_size=(across, config.local_k, config.split),
        local_size=(config.local_c, config.local_k, 1),
        args=(*buffer("y"), *buffer("x"), *buffer(PLANES if config.split > 1 else "w")),
        local_bytes=config.local_bytes,
    )


def _sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    part, count = windows(problem), patches(problem, config)
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
