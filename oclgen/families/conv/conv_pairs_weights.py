"""Gradient of weights in bf16 on processors that multiply pairs of bf16: lanes are output channels.

It is `conv_register_weights` with two neighbouring positions of a row at a time, in either layout;
processors without AVX512-BF16, and other dtypes, stay with that one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import ClassVar, TypeGuard

from oclgen.families.conv.conv_register_weights_plan import (
    MAX_KERNEL_W,
    inputs,
    launch_of,
    pixels_of_y,
    splits,
    sum_of,
    why_no_sums,
)
from oclgen.families.conv.conv_register_weights_plan import sizes_of as sizes_of_rows
from oclgen.families.conv.correlation import Correlation, strung_windows
from oclgen.families.conv.lanes import MOST_GUESSES, VECS, cost
from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_pairs import INSTRUCTION, LANES, MAX_VECTORS, PAIR
from oclgen.families.parts.blocking import waste
from oclgen.families.parts.lane_packing import LANE_STEPS, pack_matrices, transpose_text
from oclgen.families.parts.packing import PACKED, Packing
from oclgen.families.parts.planes import planes_space
from oclgen.family import BaseConfig, Traits
from oclgen.limits import Limits
from oclgen.parameters import Item, Parts, Unroll
from oclgen.plan import Frame, Launch, LazyText, Needs, Plan, Scalar, buffer, ceil_div
from oclgen.problem import ConvProblem, Problem
from oclgen.registers import Registers, covered, outer_product
from oclgen.render import VECTOR_WIDTHS, render

NAME = "conv_pairs_weights"

WORDS = "packed_words"
"""Role of the workspace of images as words of neighbours."""
WORDS_PER_ITEM = 1024
"""Words that a work-item packs: enough to hide what starting it costs on a CPU."""
SPAN = 128
"""The least words of a row that it packs: of several channels it writes as many streams."""
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Config(BaseConfig):
    """Parameters of the kernel; `conv_register_weights`' template begins with the legend."""

    FREE = frozenset({"batch"})
    vec: ClassVar[int] = LANES

    item_c: Item
    vecs: Item
    unroll: Unroll
    split: Parts
    outputs_fastest: bool

    def conflict(self, problem: ConvProblem, limits: Limits) -> str | None:
        """Say with numbers what the family itself has against this, or None."""
        return limits.why_no(INSTRUCTION) or why_no_sums(problem, self, MAX_VECTORS)

    def needs(self, problem: ConvProblem) -> Needs:
        """Return what the plan asks of a device."""
        packed = (PACKED, _packing(problem, self).bytes)
        words = (WORDS, WORD_BYTES * prod(_words(problem)) * problem.in_channels * problem.batch)
        spaces = (packed, words, *planes_space(problem, self.split))
        return Needs((Frame(NAME, (1, 1, 1)),), spaces)

    def in_registers(self, problem: ConvProblem) -> Registers:
        """Return the outer product of gradients of channels and of elements under the taps."""
        part = strung_windows(problem)
        used = covered((part.channels, LANES * self.vecs), (part.depth, self.item_c))
        loop = outer_product(LANES, self.vecs, self.item_c * part.cols.taps, used)
        return replace(loop, multiply_adds=PAIR * loop.multiply_adds)


DEFAULT = Config(item_c=1, vecs=1, unroll=1, split=1, outputs_fastest=False)
TRAITS = Traits(rank=175, instructions=frozenset({INSTRUCTION}), rate=PAIR)


def serves(problem: Problem) -> TypeGuard[ConvProblem]:
    """Say whether the family can compute the problem at all."""
    return (
        isinstance(problem, ConvProblem)
        and problem.dtype == "bf16"
        and problem.direction == "bwd_weights"
        and problem.kernel_w <= MAX_KERNEL_W
    )


def guesses(problem: ConvProblem, limits: Limits) -> list[Config]:
    """Return configs for an untuned problem, best guess first; some may not be valid.

    They are ranked as those of `conv_register_weights`.
    """
    if INSTRUCTION not in limits.instructions:
        return []
    part = strung_windows(problem)
    taps = part.cols.taps
    shapes = [
        (cost(c * taps, vecs) * waste(part.depth, c) * waste(part.channels, LANES * vecs), c, vecs)
        for c, vecs in product(inputs(part, limits), VECS)
        if c * vecs * taps <= MAX_VECTORS
    ]
    return [
        Config(c, vecs, 1, split, False)
        for _, c, vecs in sorted(shapes)[: MOST_GUESSES // 2]
        for split in splits(problem, limits, c, LANES * vecs)
    ]


def plan(problem: ConvProblem, config: Config) -> Plan:
    """Return the launches that pack y and x, sum over positions, and add planes, if there are."""
    packed, part = _packing(problem, config), strung_windows(problem)
    sizes = {**sizes_of_rows(part, config.split), "RESULTS_W": _pairs(part), **_strides(problem)}
    product = launch_of(NAME, problem, config, packed, sizes, WORDS, gemm_pairs.dot())
    whole = sum_of(problem, config.split).behind(product)
    launches = (_pack_y(problem, packed), _pack_x(problem), *whole.launches)
    return Plan(launches, config.needs(problem).workspaces)


def _pairs(part: Correlation) -> int:
    """Return the pairs of a row's results; the last may have zero for its second."""
    return ceil_div(part.cols.results, PAIR)


def _words(problem: ConvProblem) -> tuple[int, int]:
    """Return the rows of a plane of x and the words of each, from the padding on."""
    part = strung_windows(problem)
    cols = part.cols
    last = (PAIR * _pairs(part) - PAIR) * cols.step + (cols.taps - 1) * cols.tap_step
    return part.rows.read, last + 1


def _strides(problem: ConvProblem) -> dict[str, int]:
    """Return the distances of words of x."""
    height, width = _words(problem)
    return {"X_ROW": width, "X_PLANE": height * width}


def _packing(problem: ConvProblem, config: Config) -> Packing:
    part = strung_windows(problem)
    return Packing(
        PACKED, buffer("y"), problem.dtype, problem.layout == "nchw", part.batch * part.groups,
        part.channels, part.rows.results * _pairs(part), LANES * config.vecs,
    )  # fmt: skip


def _pack_y(problem: ConvProblem, packed: Packing) -> Launch:
    """Return the launch that makes output channels lanes, of pairs of positions of each row."""
    part = strung_windows(problem)
    rows, cols = part.rows.results, part.cols.results
    if problem.layout == "nhwc":
        steps, at = pixels_of_y(problem)
    else:
        steps = dict(zip(LANE_STEPS, (rows * cols, 1, cols, 0), strict=True))
        at = f"matrix * {part.channels * rows * cols}L"
    return pack_matrices(packed, LANES, cols, 1, steps, at, pairs=True)


def _pack_x(problem: ConvProblem) -> Launch:
    part, (height, words) = strung_windows(problem), _words(problem)
    in_pixels, cols = problem.layout == "nhwc", part.cols
    channels = problem.in_channels if in_pixels else 1
    all_rows = part.batch * height * (1 if in_pixels else problem.in_channels)
    rows = 1 if in_pixels else max(WORDS_PER_ITEM // words, 1)
    span = min(max(WORDS_PER_ITEM // channels, SPAN), words)
    contiguous = min(channels, words) if in_pixels else words
    vec = max(width for width in VECTOR_WIDTHS if width <= contiguous)

    @LazyText
    def text() -> str:
        return render(
            "conv_neighbours",
            in_pixels=in_pixels,
            height=height,
            width=cols.read,
            words=words,
            origin=cols.origin,
            step=cols.step,
            channels=channels,
            rows=rows,
            span=span,
            vec=vec,
            transpose=transpose_text(vec) if in_pixels else "",
        )

    return Launch(
        text=text,
        kernel="conv_neighbours",
        global_size=(ceil_div(words, span), ceil_div(all_rows, rows), 1),
        local_size=(1, 1, 1),
        args=(*buffer("x"), *buffer(WORDS), Scalar(all_rows)),
    )
