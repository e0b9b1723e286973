"""Depthwise convolution, forward and backward-data: groups equal the input channels.

The gradient of its weights is `depthwise_weights`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import NamedTuple, TypeGuard

from oclgen.families.conv.correlation import Axis, correlations, operands
from oclgen.families.gemm.gemm_parts import aligned_preamble
from oclgen.families.parts.epilogue import epilogue, terms
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Local, Vector
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem, in_planes
from oclgen.render import STORED, VECTOR_WIDTHS, dtype_preamble, render

NAME = "depthwise"

MAX_WINDOW = 8192
"""Floats of private memory for the window, or the results: what a CPU's first cache holds."""
MAX_GUARDED = 256
"""The same on a GPU, where it must stay in registers."""
MAX_TEXT = 2000
"""Multiply-adds written out, past which compilers take seconds."""


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; the legend stands at the head of its template."""

    patch_h: Item
    patch_w: Item
    vec: Vector
    guarded: bool
    local_size: Local

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        return self._patch_why_not(problem)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        return Needs((Frame(NAME, (self.local_size, 1, 1)),))

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


class Window(NamedTuple):
    """What neighbouring results read along one axis: elements, from that of index `first` on."""

    elements: int
    first: int


class Phases(NamedTuple):
    """One row of axes and one of columns whose pairs are all correlations of a problem.

    Each is one axis, or one per residue of the stride; these differ in taps and in what is stored.
    """

    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]


class Block(NamedTuple):
    """Text for some blocks of columns (None: all others): (start, width) of copies and stores."""

    columns: tuple[int, ...] | None
    copies: tuple[tuple[int, int], ...]
    stores: tuple[tuple[int, int], ...]


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        in_planes(problem)
        and problem.groups == problem.in_channels > 1
        and problem.direction != "bwd_weights"
    )


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return one launch, which computes all correlations."""
    return Plan((_launch(problem, config),))


@lru_cache(maxsize=64)
def phases(problem: ConvProblem) -> Phases:
    """Return the axes of the problem's correlations."""
    parts = correlations(problem)
    return Phases(
        tuple(dict.fromkeys(part.rows for part in parts)),
        tuple(dict.fromkeys(part.cols for part in parts)),
    )


def window(axes: Sequence[Axis], results: int) -> Window:
    """Return what the first `results` results of all `axes` read; these differ in taps alone."""
    places = [
        axis.origin + tap * axis.tap_step for axis in axes for tap in (0, max(axis.taps, 1) - 1)
    ]
    first = min(places)
    return Window((results - 1) * axes[0].step + max(places) - first + 1, first)


def blocks(axes: Sequence[Axis], patch_w: int, vec: int) -> list[Block]:
    """Return the texts that a row's blocks of `patch_w` results need, the commonest last."""
    texts: dict[tuple[tuple[tuple[int, int], ...], ...], list[int]] = {}
    extent, cols = window(axes, patch_w), axes[0]
    width = patch_w * cols.store_step
    for column in range(ceil_div(cols.results, patch_w)):
        first = column * patch_w * cols.step + extent.first
        low, high = max(0, -first), min(extent.elements, cols.read - first)
        stores = _stores(min(width, cols.written - column * width), vec)
        texts.setdefault((_copies(low, high, cols.step), stores), []).append(column)
    ranked = sorted(texts.items(), key=lambda entry: len(entry[1]))
    return [
        Block(None if at == len(ranked) - 1 else tuple(columns), *text)
        for at, (text, columns) in enumerate(ranked)
    ]


def pieces(start: int, end: int, widest: int) -> tuple[tuple[int, int], ...]:
    """Cut [start, end) into (start, width) of vectors of at most `widest`."""
    cut: list[tuple[int, int]] = []
    for width in (w for w in reversed(VECTOR_WIDTHS) if w <= widest):
        while end - start >= width:
            cut.append((start, width))
            start += width
    return tuple(cut)


def _copies(low: int, high: int, step: int) -> tuple[tuple[int, int], ...]:
    if step > 2:
        return pieces(low, high, 1)
    even = min(round_up(low, step), high)  # even and odd columns are parted pair by pair
    return (*pieces(low, even, 1), *pieces(even, high, 16))


def _stores(count: int, vec: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        piece
        for first in range(0, count, vec)
        for piece in pieces(first, min(first + vec, count), vec)
    )


def _launch(problem: ConvProblem, config: Config) -> Launch:
    weights, read, written = operands(problem)
    rows, cols = phases(problem)
    columns = ceil_div(cols[0].results, config.patch_w)
    bands = ceil_div(rows[0].results, config.patch_h)

    @LazyText
    def text() -> str:
        return render(
            NAME,
            preamble=f"{dtype_preamble(problem.dtype)}\n{aligned_preamble(problem.dtype)}",
            sizes=_sizes(problem, config) | {"COLUMNS": columns, "BANDS": bands},
            blocks=() if config.guarded else blocks(cols, config.patch_w, config.vec),
            rows=[taps_of(axis, window(rows, config.patch_h)) for axis in rows],
            cols=[taps_of(axis, window(cols, config.lanes)) for axis in cols],
            step_w=cols[0].step,
            store_h=rows[0].store_step,
            store_w=cols[0].store_step,
            written_w=cols[0].written,
            elem_bytes=2 if STORED[problem.dtype] != "float" else 4,
            **epilogue(problem, "out"),
            **asdict(config),
        )

    items = columns * bands * problem.buffers[written][0] * problem.buffers[written][1]
    return Launch(
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


def taps_of(axis: Axis, extent: Window) -> list[tuple[int, int]]:
    """Return for each tap its place in the kernel, and in the window of result 0."""
    return [
        (
            axis.kernel_first + tap * axis.kernel_step,
            axis.origin + tap * axis.tap_step - extent.first,
        )
        for tap in range(axis.taps)
    ]


def _sizes(problem: ConvProblem, config: Config) -> dict[str, int]:
    part, (all_rows, all_cols) = correlations(problem)[0], phases(problem)
    rows, cols = window(all_rows, config.patch_h), window(all_cols, config.lanes)
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
    }  # fmt: skip
