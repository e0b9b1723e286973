"""Depthwise convolution, forward and backward-data: groups equal the input channels.

In planes, lanes lie along a row. In channels_last they are channels: of vectors on processors
(`depthwise_rows`), of work-items on GPUs (`depthwise_pixels`). `depthwise_weights` computes the
gradient of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TypeGuard

from oclgen.families.conv.correlation import operands
from oclgen.families.depthwise.depthwise_kernels import (
    GROWING,
    PIXELS,
    PLANES,
    ROWS,
    TEXTS,
    packing_of,
    patches_of,
)
from oclgen.families.depthwise.guessed import (
    adapted_height,
    gpu_patches,
    held,
    pixel_patches,
    plane_guesses,
    row_patches,
)
from oclgen.families.depthwise.patches import (
    MAX_GUARDED,
    MAX_TEXT,
    MAX_WINDOW,
    ROW_LANES,
    channel_vectors,
    has_long_text,
    is_depthwise,
    layout_conflict,
    phases,
    pixel_lanes,
    window,
)
from oclgen.families.depthwise.strips import written
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.families.parts.growing import parted
from oclgen.families.parts.lane_packing import pack_lanes
from oclgen.families.parts.packing import PACKED, sizes_of
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Channels, Item, Local, Parts, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, render

NAME = "depthwise"
OF_PIXELS = ("vec_c", "local_c", "rounds")
"""Parameters that images in channels_last alone have."""
LOCAL_SIZES, GROUPS_PER_CORE = (16, 4), 4
"""Work-items of a group on a processor, and groups of a core below which one has the fewer."""
GROUPS_PER_UNIT = 16
"""Work-groups of a GPU's unit below which a work-item computes fewer patches."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernels; their templates begin with the legend.

    Those that a layout does not use keep their default.
    """

    FREE = frozenset({"batch"})

    patch_h: Item
    patch_w: Item
    vec: Vector
    guarded: bool
    local_size: Local
    vec_c: Channels = 1
    local_c: Local = 16
    rounds: Parts = 1

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := layout_conflict(problem, self, DEFAULT, of_pixels=OF_PIXELS):
            return reason
        if self.in_rows(problem):
            return self._blocks_why_not(problem) or self._rows_why_not(problem)
        if problem.layout == "nhwc":
            return self._blocks_why_not(problem) or self._pixels_why_not(problem, limits)
        return self._patch_why_not(problem)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(self.kernel(problem), self.local_sizes(problem), self.local_bytes(problem))
        return Needs((frame,), sizes_of(packing_of(problem, self)))

    def adapted(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with no more rows of a patch in planes than registers have sums."""
        if problem.layout == "nhwc":
            return self
        return replace(self, patch_h=adapted_height(problem, self.patch_h, self.patch_w, self.vec))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the taps of a patch, whose window lies in private memory."""
        rows, cols = phases(problem)
        used = covered((rows[0].results, self.patch_h), (cols[0].results, self.patch_w))
        taps = problem.kernel_h * problem.kernel_w
        if self.in_rows(problem):
            sums, taps = len(cols) * self.patch_w, problem.kernel_w
            read = window(cols, self.patch_w).elements
            used = covered((problem.in_channels, self.vec_c))
            return Registers(self.vec_c, sums, 2, self.patch_w * taps, read + taps, 0, used)
        if problem.layout == "nhwc":
            sums = len(rows) * self.patch_h * len(cols) * self.patch_w
            read = window(rows, self.patch_h).elements * window(cols, self.patch_w).elements
            width, lanes = pixel_lanes(problem, self.vec_c, self.local_c)
            return Registers(
                width, sums, 2, sums * taps, read + taps, 0, used * lanes,
                of_items=self.vec_c == 1,
            )  # fmt: skip
        sums = len(rows) * self.patch_h * len(cols) * self.lanes // self.vec
        used *= self.patch_w / self.lanes
        return Registers(self.vec, sums, 2, sums * taps, sums * taps, taps, used)

    def kernel(self, problem: ConvProblem) -> str:
        """Return the name of the kernel, and of its template."""
        if problem.layout == "nchw":
            return PLANES
        return ROWS if self.in_rows(problem) else PIXELS

    def in_rows(self, problem: ConvProblem) -> bool:
        """Say whether a work-item sums rows of results, of packed weights, and copies nothing."""
        return problem.layout == "nhwc" and self.vec_c >= ROW_LANES and self.local_c == 1

    def in_blocks(self, problem: ConvProblem) -> bool:
        """Say whether a work-group has a block of channels."""
        return problem.layout == "nhwc" and self.local_c > 1

    def is_looped(self, problem: ConvProblem) -> bool:
        """Say whether rows of results and of taps are loops, not written out."""
        return not self.in_blocks(problem) and has_long_text(problem)

    def local_sizes(self, problem: ConvProblem) -> tuple[int, int, int]:
        """Return the work-items of a group; of blocks of channels, along channels and patches."""
        if self.in_blocks(problem):
            return self.local_c, self.local_size // self.local_c, 1
        return self.local_size, 1, 1

    def local_bytes(self, problem: ConvProblem) -> int:
        """Return the bytes of local memory: weights of a block of channels."""
        taps = problem.kernel_h * problem.kernel_w
        return 4 * taps * (self.local_c + 1) * self.vec_c if self.in_blocks(problem) else 0

    def _blocks_why_not(self, problem: ConvProblem) -> str | None:
        if self.local_c == 1 and self.rounds > 1:
            return f"rounds={self.rounds} needs blocks of channels; with local_c=1 use 1"
        if self.local_size % self.local_c:
            return f"local_c={self.local_c} does not divide local_size={self.local_size}"
        if self.local_c > 1 and self.vec_c not in VECTOR_WIDTHS:
            return f"vec_c={self.vec_c} is no OpenCL vector width, which blocks of channels need"
        if self.local_c > 1 and problem.in_channels % self.vec_c:
            return (
                f"vec_c={self.vec_c} does not divide {problem.in_channels} channels, which blocks "
                f"of local_c={self.local_c} need; use local_c=1"
            )
        return None

    def _rows_why_not(self, problem: ConvProblem) -> str | None:
        if (count := written(problem, self.patch_w)) > MAX_TEXT:
            return f"{count} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    def _pixels_why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        allowed = MAX_WINDOW if limits.kind == "cpu" else MAX_GUARDED
        if (size := held(problem, self.patch_h, self.patch_w, self.vec_c)) > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} vec_c={self.vec_c} has {size} "
                f"elements of a window or results; at most {allowed} stay close"
            )
        rows = 1 if self.is_looped(problem) else self.patch_h
        written = rows * self.patch_w * problem.kernel_h * problem.kernel_w
        if written > MAX_TEXT:
            return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    def _patch_why_not(self, problem: ConvProblem) -> str | None:
        allowed = MAX_GUARDED if self.guarded else MAX_WINDOW
        rows, cols = phases(problem)
        size = window(rows, self.patch_h).elements * window(cols, self.lanes).elements
        if size > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} reads a window of {size} "
                f"elements; at most {allowed} stay close with guarded={self.guarded}"
            )
        if (count := len(rows) * self.patch_h * len(cols) * self.lanes) > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} has {count} results in all "
                f"phases; at most {allowed} stay close with guarded={self.guarded}"
            )
        written = self.lanes // self.vec * sum(axis.taps for axis in cols)
        taps_h = sum(axis.taps for axis in rows)
        written *= self.patch_h * taps_h if self.guarded else len(rows)
        if written > MAX_TEXT:
            return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    @property
    def lanes(self) -> int:
        """Results along a row, with the idle lanes of the last vector."""
        return round_up(self.patch_w, self.vec)


DEFAULT = Config(patch_h=1, patch_w=4, vec=4, guarded=True, local_size=32)
TRAITS = Traits(rank=120)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return is_depthwise(problem) and problem.direction != "bwd_weights"


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    if problem.layout == "nhwc":
        if limits.kind == "cpu":
            return _pixels_on_cpu(problem, limits)
        return [_in_blocks(problem, limits, *patch) for patch in gpu_patches(problem)]
    return [Config(*patch) for patch in plane_guesses(problem, limits)]


def _pixels_on_cpu(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for a processor and images in channels_last.

    Of few channels the compiler makes a vector of the work-items along them: there a work-group has
    a block of channels.
    """
    vec = channel_vectors(problem, limits)[0]

    def of(h: int, w: int) -> Config:
        if vec == 1:
            return replace(DEFAULT, patch_h=h, patch_w=w, local_size=64, local_c=16)
        return _vectors_on_cpu(problem, limits, h, w, vec)

    if vec >= ROW_LANES:
        patches = row_patches(problem, limits, vec)
    else:
        patches = pixel_patches(problem, lambda *hw: of(*hw).why_not(problem, limits) is None)
    return [of(*patch) for patch in patches]


def _vectors_on_cpu(
    problem: ConvProblem, limits: Limits, patch_h: int, patch_w: int, vec: int
) -> Config:
    """Return the config of vectors of channels: 16 work-items a group, or 4 for small images.

    A work-group costs as much to start as a small patch; 16 took 0.8 to 0.95 of the time of 4.
    """
    config = replace(
        DEFAULT, patch_h=patch_h, patch_w=patch_w, vec_c=vec, local_c=1, local_size=LOCAL_SIZES[0]
    )
    vectors = problem.batch * ceil_div(problem.in_channels, vec)
    items = vectors * prod(patches_of(problem, config))
    if items < LOCAL_SIZES[0] * GROUPS_PER_CORE * limits.compute_units:
        return replace(config, local_size=LOCAL_SIZES[1])
    return config


def _in_blocks(
    problem: ConvProblem, limits: Limits, patch_h: int, patch_w: int, vec: int
) -> Config:
    """Return the config for a GPU whose work-groups have blocks of channels."""
    vectors = problem.in_channels // vec
    local_c = min((32, 16, 64), key=lambda size: round_up(vectors, size))
    config = replace(
        DEFAULT, patch_h=patch_h, patch_w=patch_w, local_size=128, vec_c=vec, local_c=local_c
    )
    groups = prod(_blocks(problem, config))
    rounds = groups // (GROUPS_PER_UNIT * limits.compute_units)
    return replace(config, rounds=1 << min(max(rounds, 1).bit_length() - 1, 4))


def _blocks(problem: ConvProblem, config: Config) -> tuple[int, int]:
    """Return the work-groups along channels and patches, where groups have blocks of channels."""
    patches = problem.batch * prod(patches_of(problem, config))
    local_c, local_p, _ = config.local_sizes(problem)
    return (
        ceil_div(problem.in_channels // config.vec_c, local_c),
        ceil_div(patches, local_p * config.rounds),
    )


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return a launch that packs weights, where that pays, and one for all correlations."""
    packed = packing_of(problem, config)
    weights, read, written = operands(problem)
    pixels, kernel = problem.layout == "nhwc", config.kernel(problem)
    rows, cols = phases(problem)
    bands, columns = patches_of(problem, config)
    given = parted(problem, {"BATCH": problem.batch}, GROWING).given

    @LazyText
    def text() -> str:
        return render(
            kernel,
            patch_h=config.patch_h,
            patch_w=config.patch_w,
            local_size=config.local_size,
            store_h=rows[0].store_step,
            store_w=cols[0].store_step,
            given=tuple(given),
            **epilogue(problem, "out"),
            **TEXTS[kernel](problem, config),
        )

    local = config.local_sizes(problem)
    if config.in_blocks(problem):
        across, along = _blocks(problem, config)
        global_size = (across * local[0], along * local[1], 1)
    else:
        images = problem.batch * ceil_div(problem.in_channels, config.vec_c)
        if not pixels:
            images = prod(problem.buffers[written][:2])
        global_size = (round_up(images * bands * columns, config.local_size), 1, 1)
    launch = Launch(
        text=text,
        kernel=kernel,
        global_size=global_size,
        local_size=local,
        args=(
            *buffer(read),
            *buffer(PACKED if packed else weights),
            *terms(problem),
            *buffer(written),
            *map(Scalar, given.values()),
        ),
        local_bytes=config.local_bytes(problem),
    )
    return Plan(
        (*(pack_lanes(one, min(config.vec_c, VECTOR_WIDTHS[-1])) for one in packed), launch),
        sizes_of(packed),
    )
