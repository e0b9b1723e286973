"""Gradient of a depthwise convolution's weights: groups equal the input channels.

In planes, lanes lie along a row. In channels_last they are channels: of vectors on processors
(`depthwise_rows_weights`), of work-items on GPUs (`depthwise_pixels_weights`). `depthwise` computes
the forward and backward-data directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from oclgen.families.conv.correlation import windows
from oclgen.families.depthwise.depthwise_weights_kernels import (
    GROWING,
    KERNEL_OF_PLANES,
    PIXELS,
    ROWS,
    TEXTS,
    met,
    patches_of,
)
from oclgen.families.depthwise.guessed import adapted_height, plane_guesses, weight_patches
from oclgen.families.depthwise.patches import (
    MAX_GUARDED,
    MAX_TEXT,
    MAX_WINDOW,
    ROW_LANES,
    channel_vectors,
    is_depthwise,
    layout_conflict,
    pixel_lanes,
    window,
)
from oclgen.families.depthwise.strips import strips
from oclgen.families.parts.growing import parted
from oclgen.families.parts.planes import PLANES, planes_space, sum_planes
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Channels, Item, Local, Parts, Vector
from oclgen.plan import (
    Frame,
    Launch,
    LazyText,
    Needs,
    Plan,
    Scalar,
    buffer,
    ceil_div,
    even_part,
    round_up,
)
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered
from oclgen.render import VECTOR_WIDTHS, dtype_preamble, render

NAME = "depthwise_weights"

OF_PLANES, OF_PIXELS = ("vec", "guarded", "local_k"), ("vec_c", "local_c")
"""Parameters that one layout alone uses."""
MAX_TAPS = 64
"""Taps of a work-item, each of which has an accumulator of its own."""
ALL_ROWS = 64
"""`tap_rows` of a work-item with all taps: kernels have no more rows."""
LANES = 16
"""Work-items along channels of which a processor's compiler makes vectors."""
GROUPS_PER_UNIT = 8
"""Work-groups that hide each other's latency on a unit of a GPU."""
GROUPS_PER_CORE = 4
"""Work-groups that keep a core of a processor busy."""


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
    local_k: Local
    split: Parts
    vec_c: Channels = 1
    local_c: Local = 16
    tap_rows: Item = ALL_ROWS

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if reason := layout_conflict(problem, self, DEFAULT, OF_PLANES, OF_PIXELS):
            return reason
        if reason := self._sharing_why_not(problem) or self._taps_why_not(problem):
            return reason
        if not 1 <= self.split <= (count := patches_of(problem, self)):
            return f"split={self.split}, but there are only {count} patches to be split"
        if self.in_rows(problem):
            return self._rows_why_not(problem)
        if problem.layout == "nhwc":
            return self._pixels_why_not(problem, limits)
        return self._patch_why_not(problem)

    def _sharing_why_not(self, problem: ConvProblem) -> str | None:
        size, name = self.local_size, "local_k" if problem.layout == "nchw" else "local_c"
        share = getattr(self, name)
        count = share if problem.layout == "nchw" else self.sharing
        if size % share or count.bit_count() != 1:
            return f"{name}={share} must divide local_size={size}, and {count} be a power of 2"
        return None

    def rows_of(self, problem: ConvProblem) -> int:
        """Return the rows of taps that a work-item has."""
        return min(self.tap_rows, problem.kernel_h)

    def _taps_why_not(self, problem: ConvProblem) -> str | None:
        if (taps := self.rows_of(problem) * problem.kernel_w) > MAX_TAPS:
            return (
                f"tap_rows={self.tap_rows} of {problem.kernel_h}x{problem.kernel_w} are {taps} "
                f"taps; at most {MAX_TAPS} stay close"
            )
        return None

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        frame = Frame(self.kernel(problem), self.local_sizes(problem), self.local_bytes(problem))
        return Needs((frame,), planes_space(problem, self.split))

    def adapted(self, problem: ConvProblem, limits: Limits) -> Config:
        """Return this config with no more rows of a patch in planes than registers have sums."""
        if problem.layout == "nhwc":
            return self
        return replace(self, patch_h=adapted_height(problem, self.patch_h, self.patch_w, self.vec))

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the taps of a patch, each with sums of its own."""
        part, taps = met(problem, self), self.rows_of(problem) * problem.kernel_w
        used = covered((part.rows.results, self.patch_h), (part.cols.results, self.patch_w))
        if self.in_rows(problem):
            sums, read = part.cols.taps, window((part.cols,), self.patch_w).elements
            lanes = covered((problem.in_channels, self.vec_c))
            results = self.patch_w
            return Registers(
                self.vec_c, sums, results + 1, results * sums, read + results, 0, lanes
            )
        if problem.layout == "nhwc":
            rows, cols = window((part.rows,), self.patch_h), window((part.cols,), self.patch_w)
            results = self.patch_h * self.patch_w
            read = rows.elements * cols.elements
            width, lanes = pixel_lanes(problem, self.vec_c, self.local_c)
            return Registers(
                width, taps, 2, results * taps, read + results, 0, used * lanes,
                of_items=self.vec_c == 1,
            )  # fmt: skip
        results = self.patch_h * self.lanes // self.vec
        used *= self.patch_w / self.lanes
        return Registers(self.vec, taps, 2, results * taps, results * (taps + 1), 0, used)

    def kernel(self, problem: ConvProblem) -> str:
        """Return the name of the kernel, and of its template."""
        if problem.layout == "nchw":
            return KERNEL_OF_PLANES
        return ROWS if self.in_rows(problem) else PIXELS

    def in_rows(self, problem: ConvProblem) -> bool:
        """Say whether a work-item, alone in its group, sums rows of pixels and copies nothing."""
        is_alone = self.local_size == self.local_c == 1
        return problem.layout == "nhwc" and self.vec_c >= ROW_LANES and is_alone

    def local_sizes(self, problem: ConvProblem) -> tuple[int, int, int]:
        """Return the work-items of a group; in channels_last, along channels and patches."""
        if problem.layout == "nchw":
            return self.local_size, 1, 1
        return self.local_c, self.sharing, 1

    def local_bytes(self, problem: ConvProblem) -> int:
        """Return the bytes of local memory.

        Each work-item has sums of all taps there where several share a plane; in channels_last, a
        vector of sums.
        """
        if problem.layout == "nhwc":
            return 0 if self.in_rows(problem) else 4 * self.vec_c * self.local_size
        taps = self.rows_of(problem) * problem.kernel_w
        return 4 * self.local_size * taps if self.local_k > 1 else 0

    def _rows_why_not(self, problem: ConvProblem) -> str | None:
        cols = windows(problem).cols
        count = len(strips((cols,), self.patch_w)) * self.patch_w * cols.taps
        if count > MAX_TEXT:
            return f"{count} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    def _patch_why_not(self, problem: ConvProblem) -> str | None:
        part = met(problem, self)
        rows, cols = window((part.rows,), self.patch_h), window((part.cols,), self.lanes)
        size = rows.elements * cols.elements + self.patch_h * self.lanes
        allowed = MAX_GUARDED if self.guarded else MAX_WINDOW
        if size > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} copies {size} elements; at most "
                f"{allowed} stay close with guarded={self.guarded}"
            )
        return None

    def _pixels_why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        if self.vec_c not in VECTOR_WIDTHS:
            return f"vec_c={self.vec_c} needs a work-item alone; use local_size=1, local_c=1"
        part, taps = met(problem, self), self.rows_of(problem) * problem.kernel_w
        rows, cols = window((part.rows,), self.patch_h), window((part.cols,), self.patch_w)
        results = self.patch_h * self.patch_w
        size = (rows.elements * cols.elements + results + taps) * self.vec_c
        allowed = MAX_WINDOW if limits.kind == "cpu" else MAX_GUARDED
        if size > allowed:
            return (
                f"patch_h={self.patch_h} patch_w={self.patch_w} vec_c={self.vec_c} keeps {size} "
                f"elements; at most {allowed} stay close"
            )
        if results * taps > MAX_TEXT:
            return f"{results * taps} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    @property
    def sharing(self) -> int:
        """Work-items of a group that share the patches of a vector of channels."""
        return self.local_size // self.local_c

    @property
    def lanes(self) -> int:
        """Elements of y along a row, with the idle lanes of the last vector."""
        return round_up(self.patch_w, self.vec)


DEFAULT = Config(
    patch_h=4, patch_w=1, vec=1, guarded=True, local_size=64, local_k=64, split=1, tap_rows=3
)
TRAITS = Traits(rank=130)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        is_depthwise(problem)
        and problem.direction == "bwd_weights"
        and min(DEFAULT.tap_rows, problem.kernel_h) * problem.kernel_w <= MAX_TAPS
        and problem.kernel_h <= ALL_ROWS
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid."""
    found = (_pixel_guesses if problem.layout == "nhwc" else _plane_guesses)(problem, limits)
    rows = even_part(problem.kernel_h, max(MAX_TAPS // problem.kernel_w, 1))
    rows = rows if rows < problem.kernel_h else ALL_ROWS
    return [_within_patches(problem, replace(config, tap_rows=rows)) for config in found]


def _plane_guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    if limits.kind == "cpu":
        return [Config(*patch, local_k=1, split=1) for patch in plane_guesses(problem, limits)]
    # neighbours along a row read neighbours
    split = _fill(limits, problem.groups)
    return [
        Config(patch_h, patch_w, patch_w, True, local, local, min(split, most))
        for patch_h, patch_w, local in ((8, 1, 128), (4, 1, 64), (14, 1, 64), (4, 2, 128))
        for most in (64, 8)
    ]


def _pixel_guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    vec = channel_vectors(problem, limits)[0]
    shapes: tuple[tuple[int, int], ...]
    if limits.kind == "cpu" and vec == 1:  # the compiler makes a vector of the work-items
        shapes, tried = ((2, 4), (1, 4), (4, 4)), [(LANES, split) for split in (8, 2)]
    elif limits.kind == "cpu":
        vectors = ceil_div(problem.in_channels, vec)
        least = _ceil_power(ceil_div(GROUPS_PER_CORE * limits.compute_units, vectors))
        return [
            replace(
                DEFAULT, patch_h=h, patch_w=w, local_size=1, split=max(slices, least), vec_c=vec,
                local_c=1,
            )
            for h, w, slices in weight_patches(problem)
        ]  # fmt: skip
    else:
        shapes = ((2, 4), (1, 4), (1, 2), (4, 4))
        split = _fill(limits, ceil_div(problem.in_channels, 32 * vec))
        tried = [(32 * 4, min(split, 64)), (32 * 8, min(split, 128))]
    return [
        replace(
            DEFAULT, patch_h=h, patch_w=w, local_size=size, split=split, vec_c=vec,
            local_c=min(size, 32),
        )
        for h, w in shapes
        for size, split in tried
    ]  # fmt: skip


def _within_patches(problem: ConvProblem, config: Config) -> Config:
    """Return the config with no more planes than there are patches to be split."""
    most = 1 << (patches_of(problem, config).bit_length() - 1)
    return replace(config, split=most) if config.split > most else config


def _fill(limits: Limits, groups: int) -> int:
    """Return the power of two by which to split for every unit to have enough work-groups."""
    return _ceil_power(ceil_div(GROUPS_PER_UNIT * limits.compute_units, groups))


def _ceil_power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launch that sums over patches, and the sum of the planes if there are any."""
    return sum_planes(problem, config.split).behind(_launch(problem, config))


def _launch(problem: ConvProblem, config: Config) -> Launch:
    pixels, local = problem.layout == "nhwc", config.local_sizes(problem)
    parts, count = ceil_div(problem.kernel_h, config.rows_of(problem)), patches_of(problem, config)
    counts = {"PATCHES": count, "PATCHES_PER_PLANE": ceil_div(count, config.split)}
    given = parted(problem, counts, GROWING).given

    @LazyText
    def text() -> str:
        return render(
            config.kernel(problem),
            preamble=dtype_preamble(problem.dtype),
            patch_h=config.patch_h,
            patch_w=config.patch_w,
            split=config.split,
            parts=parts,
            given=tuple(given),
            **TEXTS[config.kernel(problem)](problem, config),
        )

    if pixels:
        across = round_up(ceil_div(problem.in_channels, config.vec_c), local[0])
        global_size = (across, config.sharing, config.split * parts)
    else:
        items = problem.out_channels * config.split * parts * config.local_k
        global_size = (round_up(items, config.local_size), 1, 1)
    return Launch(
        text=text,
        kernel=config.kernel(problem),
        global_size=global_size,
        local_size=local,
        args=(
            *buffer("y"),
            *buffer("x"),
            *buffer(PLANES if config.split > 1 else "w"),
            *map(Scalar, given.values()),
        ),
        local_bytes=config.local_bytes(problem),
    )
