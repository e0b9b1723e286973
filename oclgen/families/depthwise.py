"""Depthwise convolution, forward and backward-data: groups equal the input channels.

The gradient of its weights is `depthwise_weights`'.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeGuard

from oclgen.correlation import Axis, Correlation, correlations, operands
from oclgen.limits import Limits
from oclgen.plan import Launch, Plan, buffer, ceil_div, round_up
from oclgen.problem import ConvProblem, Problem, in_planes
from oclgen.render import VECTOR_WIDTHS, activation_preamble, dtype_preamble, render

NAME = "depthwise"

MAX_WINDOW = 8192
"""Floats of private memory for the window: what a CPU's first cache holds."""
MAX_GUARDED = 256
"""The same on a GPU, where it must stay in registers."""
MAX_TEXT = 2000
"""Multiply-adds written out, past which compilers take seconds."""


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters of the kernel; the legend stands at the head of its template."""

    patch_h: int
    patch_w: int
    vec: int
    guarded: bool
    local_size: int

    def why_not(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers why this config cannot serve `problem` on such a device, or None."""
        if self.vec not in VECTOR_WIDTHS:
            return f"vec={self.vec} is no OpenCL vector width; use one of {VECTOR_WIDTHS}"
        if self.local_size > min(limits.max_work_group, limits.max_work_items[0]):
            return f"local_size={self.local_size}; the device allows {limits.max_work_group}"
        return self._patch_why_not(problem)

    def _patch_why_not(self, problem: ConvProblem) -> str | None:
        allowed = MAX_GUARDED if self.guarded else MAX_WINDOW
        for part in correlations(problem):
            rows, cols = window(part.rows, self.patch_h), window(part.cols, self.lanes)
            if (size := rows.elements * cols.elements) > allowed:
                return (
                    f"patch_h={self.patch_h} patch_w={self.patch_w} reads a window of {size} "
                    f"elements; at most {allowed} stay close with guarded={self.guarded}"
                )
            written = self.lanes // self.vec * part.cols.taps
            written *= self.patch_h * part.rows.taps if self.guarded else 1
            if written > MAX_TEXT:
                return f"{written} multiply-adds would be written out; at most {MAX_TEXT} are"
        return None

    @property
    def lanes(self) -> int:
        """Results along a row, with the idle lanes of the last vector."""
        return round_up(self.patch_w, self.vec)


DEFAULT = Config(patch_h=1, patch_w=4, vec=4, guarded=True, local_size=32)


class Window(NamedTuple):
    """What neighbouring results read along one axis: elements, from the lowest tap's offset on."""

    elements: int
    lowest_tap: int


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
    """Return one launch per correlation."""
    return Plan(tuple(_launch(problem, config, part) for part in correlations(problem)))


def window(axis: Axis, results: int) -> Window:
    """Return what `results` neighbouring results read along `axis`."""
    reach = (max(axis.taps, 1) - 1) * axis.tap_step
    return Window((results - 1) * axis.step + abs(reach) + 1, min(reach, 0))


def blocks(cols: Axis, patch_w: int, vec: int) -> list[Block]:
    """Return the texts that a row's blocks of `patch_w` results need, the commonest last."""
    texts: dict[tuple[tuple[tuple[int, int], ...], ...], list[int]] = {}
    extent = window(cols, patch_w)
    for column in range(ceil_div(cols.results, patch_w)):
        first = column * patch_w * cols.step + cols.origin + extent.lowest_tap
        low, high = max(0, -first), min(extent.elements, cols.read - first)
        count = min(patch_w, cols.results - column * patch_w)
        texts.setdefault((_copies(low, high, cols.step), _stores(cols, count, vec)), []).append(
            column
        )
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


def _stores(cols: Axis, count: int, vec: int) -> tuple[tuple[int, int], ...]:
    widest = vec if cols.store_step == 1 else 1
    return tuple(
        piece
        for first in range(0, count, vec)
        for piece in pieces(first, min(first + vec, count), widest)
    )


def _launch(problem: ConvProblem, config: Config, part: Correlation) -> Launch:
    weights, read, written = operands(problem)
    columns = ceil_div(part.cols.results, config.patch_w)
    bands = ceil_div(part.rows.results, config.patch_h)
    items = columns * bands * part.groups * part.channels * part.batch
    cols = window(part.cols, config.lanes)
    reach = -(-cols.elements // part.cols.step)
    offsets = [tap * part.cols.tap_step - cols.lowest_tap for tap in range(part.cols.taps)]
    source = render(
        NAME,
        preamble=dtype_preamble(problem.dtype),
        activation=activation_preamble(problem.activation),
        sizes=_sizes(part) | _window_sizes(part, config) | {"COLUMNS": columns, "BANDS": bands},
        blocks=() if config.guarded else blocks(part.cols, config.patch_w, config.vec),
        taps=[at % part.cols.step * reach + at // part.cols.step for at in offsets],
        step_w=part.cols.step,
        store_step=part.cols.store_step,
        bias=problem.bias,
        **asdict(config),
    )
    return Launch(
        source=source,
        kernel=NAME,
        global_size=(round_up(items, config.local_size), 1, 1),
        local_size=(config.local_size, 1, 1),
        args=(
            *buffer(read),
            *buffer(weights),
            *(buffer("bias") if problem.bias else ()),
            *buffer(written),
        ),
    )


def _sizes(part: Correlation) -> dict[str, int]:
    rows, cols = part.rows, part.cols
    return {
        "BATCH": part.batch, "GROUPS": part.groups, "CHANNELS": part.channels,
        "DEPTH": part.depth, "RESULTS_H": rows.results, "RESULTS_W": cols.results,
        "READ_H": rows.read, "READ_W": cols.read,
        "WRITTEN_H": rows.written, "WRITTEN_W": cols.written,
        "STEP_H": rows.step, "STEP_W": cols.step, "TAPS_H": rows.taps,
        "TAP_STEP_H": rows.tap_step, "KERNEL_W": part.kernel_w,
        "KERNEL_FIRST_H": rows.kernel_first, "KERNEL_FIRST_W": cols.kernel_first,
        "KERNEL_STEP_H": rows.kernel_step, "KERNEL_STEP_W": cols.kernel_step,
        "WEIGHT_OUT": part.weight_out, "WEIGHT_IN": part.weight_in,
        "WEIGHT_GROUP": part.weight_group, "FIRST_H": rows.first, "FIRST_W": cols.first,
        "STORE_STEP_H": rows.store_step,
    }  # fmt: skip


def _window_sizes(part: Correlation, config: Config) -> dict[str, int]:
    rows, cols = window(part.rows, config.patch_h), window(part.cols, config.lanes)
    return {
        "WINDOW_H": rows.elements,
        "WINDOW_W": ceil_div(cols.elements, part.cols.step),
        "WINDOW_ELEMENTS": window(part.cols, config.patch_w).elements,
        "WINDOW_FIRST_H": part.rows.origin + rows.lowest_tap,
        "WINDOW_FIRST_W": part.cols.origin + cols.lowest_tap,
        "LOWEST_TAP_H": rows.lowest_tap,
    }
