"""Forward and backward-data convolution as one form: a correlation with numbers filled in.

It knows sizes and strides only; the families choose the kernel that computes a correlation.

The gradient of a strided convolution with regard to its input falls apart into stride_h x stride_w
phases (sub-pixel convolution, Shi et al. 2016): input positions of one phase are reached by the
same subset of kernel taps and read the output's gradient with stride one, so no phase tests
divisibility and none needs atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from oclgen.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis: result `q` reads `q * step + tap * tap_step + origin` for each tap.

    Result `q` of `results` is stored at `first + q * store_step` of an axis of `written` elements;
    the axis read has `read` elements and zeros around them. Tap `tap` of `taps` (which may be none)
    is tap `kernel_first + tap * kernel_step` of the stored kernel.
    """

    results: int
    read: int
    written: int
    taps: int
    step: int
    tap_step: int
    origin: int
    store_step: int = 1
    first: int = 0
    kernel_first: int = 0
    kernel_step: int = 1

    @property
    def copies(self) -> bool:
        """Whether result `q` reads element `q` alone, of as many as there are results."""
        return (
            self.results == self.read == self.written
            and (self.taps, self.step, self.origin) == (1, 1, 0)
            and (self.kernel_first, self.first, self.store_step) == (0, 0, 1)
        )

    @property
    def inside(self) -> bool:
        """Whether no tap of any result reads beyond the axis."""
        if not self.taps:
            return True
        places = [
            q * self.step + tap * self.tap_step + self.origin
            for q in (0, self.results - 1)
            for tap in (0, self.taps - 1)
        ]
        return min(places) >= 0 and max(places) < self.read

    @property
    def whole(self) -> bool:
        """Whether result `q` is stored at `q`, and nothing else is stored on the axis."""
        return (self.results, self.first, self.store_step) == (self.written, 0, 1)

    @property
    def full(self) -> range:
        """The results of which every tap falls inside what is read: neighbours."""
        first, last = self.origin, self.origin + (max(self.taps, 1) - 1) * self.tap_step
        low, high = min(first, last), max(first, last)
        begin, end = -(low // self.step), (self.read - 1 - high) // self.step + 1
        return range(self.results)[max(begin, 0) : max(end, 0)]

    def backwards(self, kernel: int) -> Axis:
        """Return the axis with taps from the last to the first, as a mirrored kernel stores them.

        Args:
            kernel: taps of the stored kernel.
        """
        last = max(self.taps, 1) - 1
        return replace(
            self,
            tap_step=-self.tap_step,
            origin=self.origin + last * self.tap_step,
            kernel_first=kernel - 1 - self.kernel_first - last * self.kernel_step,
        )

    def reach(self, q: int) -> range:
        """Return the taps of result `q` that fall inside what is read; never a gap between."""
        place = q * self.step + self.origin  # of tap 0
        if self.tap_step < 0:  # counted from the other end
            place = self.read - 1 - place
        step = abs(self.tap_step)
        begin, end = max(-(place // step), 0), (self.read - 1 - place) // step + 1
        return range(begin, max(begin, min(end, self.taps)))


@dataclass(frozen=True, slots=True)
class Correlation:
    """One correlation per group: `channels` results from `depth` channels, over rows and columns.

    `weight_out`, `weight_in` and `weight_group` are element strides in w of a result's channel,
    of a channel that is summed over, and of a group.
    """

    batch: int
    groups: int
    channels: int
    depth: int
    rows: Axis
    cols: Axis
    kernel_w: int
    weight_out: int
    weight_in: int
    weight_group: int

    @property
    def reduction(self) -> int:
        """Products summed for one result."""
        return self.depth * self.rows.taps * self.cols.taps

    @property
    def inside(self) -> bool:
        """Whether nothing is read but what is stored: no padding."""
        return self.rows.inside and self.cols.inside

    @property
    def results(self) -> int:
        """Results per image and channel."""
        return self.rows.results * self.cols.results

    def axis_sizes(self) -> dict[str, int]:
        """Return what templates call the numbers of both axes."""
        return {
            f"{name}_{letter}": value
            for letter, axis in (("H", self.rows), ("W", self.cols))
            for name, value in (
                ("RESULTS", axis.results), ("READ", axis.read), ("WRITTEN", axis.written),
                # a phase without taps has no steps, but its text must not divide by zero
                ("STEP", axis.step), ("TAPS", max(axis.taps, 1)), ("TAP_STEP", axis.tap_step),
                ("ORIGIN", axis.origin), ("STORE_STEP", axis.store_step), ("FIRST", axis.first),
                ("KERNEL_FIRST", axis.kernel_first), ("KERNEL_STEP", axis.kernel_step),
            )
        }  # fmt: skip

    def strung(self) -> Correlation:
        """Return this with rows strung together to one, where one tap reads them without gaps."""
        rows, cols = self.rows, self.cols
        if not (rows.copies and cols.copies):
            return self
        one = replace(rows, results=1, read=1, written=1)
        every = replace(cols, results=self.results, read=self.results, written=self.results)
        return replace(self, rows=one, cols=every)


def reads_in_place(part: Correlation) -> bool:
    """Say whether result q reads element q alone, wherever it is stored."""
    return all(
        axis.results == axis.read and (axis.taps, axis.step, axis.origin) == (1, 1, 0)
        for axis in (part.rows, part.cols)
    )


class Run(NamedTuple):
    """Neighbours along an axis (`span`) that all reach the same of something else."""

    span: range
    reached: tuple[int, ...]


def runs_of(reached: Sequence[tuple[int, ...]]) -> tuple[Run, ...]:
    """Return the runs of equal entries, less those that reach nothing."""
    runs: list[Run] = []
    for at, entry in enumerate(reached):
        if runs and runs[-1].reached == entry:
            runs[-1] = Run(range(runs[-1].span.start, at + 1), entry)
        else:
            runs.append(Run(range(at, at + 1), entry))
    return tuple(run for run in runs if run.reached)


@lru_cache(maxsize=64)
def correlations(problem: ConvProblem) -> tuple[Correlation, ...]:
    """Return the correlations that together write every element of `problem`'s output once.

    Raises:
        ValueError: the direction is `bwd_weights`, which is no correlation with a small kernel.
    """
    if problem.direction == "fwd":
        return (_forward(problem),)
    if problem.direction == "bwd_data":
        return tuple(
            _backward(problem, rows, cols)
            for rows in _phases(*_height(problem))
            for cols in _phases(*_width(problem))
        )
    raise ValueError("bwd_weights is no correlation; plan it on its own")


@lru_cache(maxsize=64)
def windows(problem: ConvProblem) -> Correlation:
    """Return the forward correlation of a problem of any direction: what a filter meets where."""
    return _forward(problem)


@lru_cache(maxsize=64)
def strung_windows(problem: ConvProblem) -> Correlation:
    """Return `windows` with rows strung together where that is possible."""
    return _forward(problem).strung()


def operands(problem: ConvProblem) -> tuple[str, str, str]:
    """Return the roles of the implicit product C = A B: (A, B, C) for the direction."""
    return {"fwd": ("w", "x", "y"), "bwd_data": ("w", "y", "x"), "bwd_weights": ("y", "x", "w")}[
        problem.direction
    ]


def output_elements(problem: ConvProblem) -> int:
    """Return the number of elements of the buffer that is written."""
    return prod(problem.buffers[problem.output])


def _height(p: ConvProblem) -> tuple[int, int, int, int, int, int]:
    return p.height, p.out_h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h


def _width(p: ConvProblem) -> tuple[int, int, int, int, int, int]:
    return p.width, p.out_w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w


def _forward(p: ConvProblem) -> Correlation:
    def axis(size: int, out: int, kernel: int, stride: int, pad: int, dilation: int) -> Axis:
        return Axis(out, size, out, kernel, stride, dilation, -pad)

    depth, channels, taps = _per_group(p)
    return Correlation(
        batch=p.batch,
        groups=p.groups,
        channels=channels,
        depth=depth,
        rows=axis(*_height(p)),
        cols=axis(*_width(p)),
        kernel_w=p.kernel_w,
        weight_out=depth * taps,
        weight_in=taps,
        weight_group=channels * depth * taps,
    )


def _backward(p: ConvProblem, rows: Axis, cols: Axis) -> Correlation:
    channels, depth, taps = _per_group(p)
    return Correlation(
        batch=p.batch,
        groups=p.groups,
        channels=channels,
        depth=depth,
        rows=rows,
        cols=cols,
        kernel_w=p.kernel_w,
        weight_out=taps,
        weight_in=channels * taps,
        weight_group=channels * depth * taps,
    )


def _per_group(p: ConvProblem) -> tuple[int, int, int]:
    """Return (input channels, output channels, kernel taps) of one group."""
    return p.in_channels // p.groups, p.out_channels // p.groups, p.kernel_h * p.kernel_w


def _phases(
    size: int, out: int, kernel: int, stride: int, pad: int, dilation: int
) -> tuple[Axis, ...]:
    """Return one axis per residue of the input position modulo the stride."""
    every = stride // gcd(stride, dilation)
    axes = []
    for first in range(min(stride, size)):
        taps = [r for r in range(kernel) if (first + pad - r * dilation) % stride == 0]
        lowest = taps[0] if taps else 0
        axes.append(
            Axis(
                results=-(-(size - first) // stride),
                read=out,
                written=size,
                taps=len(taps),
                step=1,
                tap_step=-(every * dilation // stride),
                origin=(first + pad - lowest * dilation) // stride,
                store_step=stride,
                first=first,
                kernel_first=lowest,
                kernel_step=every,
            )
        )
    return tuple(axes)
