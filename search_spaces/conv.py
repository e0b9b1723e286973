"""What is worth trying for the convolution families, and why, with configs to begin with.

It says nothing about what is valid; that is each family's `why_not`. Winograd and implicit GEMM
have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

from oclgen.families import FAMILIES
from oclgen.families.conv import conv_register, conv_register_weights
from oclgen.families.conv.conv_as_gemm import lowered
from oclgen.families.conv.correlation import Correlation, correlations, strung_windows
from oclgen.families.depthwise import (
    depthwise,
    depthwise_pixels,
    depthwise_pixels_weights,
    depthwise_weights,
)
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces import conv_gemm, conv_narrow, gemm, gemm_async, gemm_pairs
from search_spaces.conv_gemm import waste

Value = int | bool | str
Values = Mapping[str, tuple[Value, ...]]
ValuesOf = Callable[[Any, Limits], Values]
SeedsOf = Callable[[Any, Limits], list[Any]]
BOTH = (False, True)

REGISTERS = 28
"""Vectors of accumulators that leave room for operands in a file of 32."""
VECS = (1, 2, 3, 4)
SEEDS = 8
"""Start points per family: more would leave a short search nothing to find."""
GROUPS_PER_UNIT = 8
"""Work-groups that hide each other's latency on a compute unit of a GPU."""


def register_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    part = _largest(problem)
    return {
        # images share weights, which pays where a row has few results
        "images": _shared(problem),
        "item_x": _even_cuts(part.cols.results),
        "vec": _vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        "taps_outer": BOTH,
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }


def register_seeds(problem: ConvProblem, limits: Limits) -> list[conv_register.Config]:
    """Return start points for `conv_register`, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    part = _largest(problem)
    shapes = [
        (
            _cost(n * x, vecs) * waste(part.cols.results, x) * _lanes(part, vec, vecs),
            n,
            x,
            vec,
            vecs,
        )
        for n, x, vec, vecs in product(
            _shared(problem), _even_cuts(part.cols.results), _vectors(part.channels, limits), VECS
        )
        if n * x * vecs <= REGISTERS
    ]
    return [
        conv_register.Config(n, x, vec, vecs, 1, taps_outer, channels_fastest)
        for _, n, x, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for taps_outer, channels_fastest in ((False, False), (True, True))
    ]


def register_weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register_weights`."""
    if limits.kind == "gpu":
        return {}
    part = strung_windows(problem)
    return {
        "item_c": _inputs(part),
        "vec": _vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        # more planes balance the units and keep packed y in the second cache
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= part.batch * part.rows.results),
        "outputs_fastest": BOTH,
    }


def register_weights_seeds(
    problem: ConvProblem, limits: Limits
) -> list[conv_register_weights.Config]:
    """Return start points for `conv_register_weights`, ranked as those of `conv_register`."""
    if limits.kind == "gpu":
        return []
    part = strung_windows(problem)
    taps = part.cols.taps
    shapes = [
        (_cost(c * taps, vecs) * waste(part.depth, c) * _lanes(part, vec, vecs), c, vec, vecs)
        for c, vec, vecs in product(_inputs(part), _vectors(part.channels, limits), VECS)
        if c * vecs * taps <= REGISTERS
    ]
    return [
        conv_register_weights.Config(c, vec, vecs, 1, split, False)
        for _, c, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for split in (1, min(problem.batch, 8))
    ]


def depthwise_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise`."""
    return _patch_values(max(part.cols.results for part in correlations(problem)), limits)


def depthwise_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise.Config]:
    """Return start points for `depthwise`, best guess first; some may not be valid."""
    width = max(part.cols.results for part in correlations(problem))
    return [depthwise.Config(*patch) for patch in _patches(width, limits)]


def depthwise_pixels_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_pixels`."""
    on_cpu, width = limits.kind == "cpu", limits.native_float_width
    return {
        "patch_h": (1, 2, 4, 7),
        "patch_w": (1, 2, 4, 7, 8),
        # neighbouring work-items of a GPU read neighbouring channels as it is
        "vec": _dividing(problem.in_channels, (width, width // 2, 1) if on_cpu else (1, 2, 4)),
        "local_size": (1, 4, 16) if on_cpu else (32, 64, 128, 256),
    }


def depthwise_pixels_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_pixels.Config]:
    """Return start points for `depthwise_pixels`, best guess first; some may not be valid."""
    vec = depthwise_pixels_values(problem, limits)["vec"][0]
    local = 4 if limits.kind == "cpu" else 128
    patches = ((2, 4), (1, 4), (4, 4), (2, 2), (1, 8))
    return [depthwise_pixels.Config(h, w, int(vec), local) for h, w in patches]


def depthwise_pixels_weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_pixels_weights`."""
    shared = {
        **depthwise_pixels_values(problem, limits),
        "patch_h": (1, 2, 4, 8),
        "patch_w": (1, 2, 4),
        "split": (1, 2, 4, 8, 16, 32, 64, 128),
    }
    del shared["local_size"]
    if limits.kind == "cpu":
        return {**shared, "local_c": (1,), "local_k": (1,)}
    return {**shared, "local_c": (16, 32, 64), "local_k": (1, 2, 4, 8, 16)}


def depthwise_pixels_weights_seeds(
    problem: ConvProblem, limits: Limits
) -> list[depthwise_pixels_weights.Config]:
    """Return start points for `depthwise_pixels_weights`, best guess first; some may be invalid."""
    kind = depthwise_pixels_weights.Config
    vec = int(depthwise_pixels_values(problem, limits)["vec"][0])
    patches = ((1, 4), (2, 4), (1, 2), (4, 4))
    if limits.kind == "cpu":
        return [kind(h, w, vec, 1, 1, split) for h, w in patches for split in (8, 2)]
    # enough planes for every unit
    groups = ceil_div(problem.in_channels, 32 * vec)
    split = 1 << (ceil_div(GROUPS_PER_UNIT * limits.compute_units, groups) - 1).bit_length()
    return [
        kind(h, w, vec, 32, local_k, min(split, most))
        for h, w in patches
        for local_k, most in ((8, 128), (4, 64))
    ]


def _dividing(channels: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the widths of vectors that divide the channels; 1 always does."""
    return tuple(dict.fromkeys(w for w in widths if w and channels % w == 0)) or (1,)


def depthwise_weights_values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_weights`."""
    if limits.kind == "cpu":
        return {**_patch_values(problem.out_w, limits), "local_k": (1,), "split": (1, 2, 4, 8)}
    return {
        "patch_h": (1, 2, 4, 7, 8, 14),
        "patch_w": (1, 2, 4),
        "vec": (1, 2, 4),
        "guarded": (True,),
        "local_size": (32, 64, 128, 256),
        "local_k": (1, 32, 64, 128, 256),
        "split": (1, 2, 4, 8, 16, 32, 64),
    }


def depthwise_weights_seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_weights.Config]:
    """Return start points for `depthwise_weights`, best guess first; some may not be valid."""
    if limits.kind == "cpu":
        return [
            depthwise_weights.Config(*patch, local_k=1, split=1)
            for patch in _patches(problem.out_w, limits)
        ]
    # neighbours along a row read neighbours, and enough planes for every unit
    split = 1 << (ceil_div(GROUPS_PER_UNIT * limits.compute_units, problem.groups) - 1).bit_length()
    return [
        depthwise_weights.Config(patch_h, patch_w, patch_w, True, local, local, min(split, most))
        for patch_h, patch_w, local in ((8, 1, 128), (4, 1, 64), (14, 1, 64), (4, 2, 128))
        for most in (64, 8)
    ]


def as_gemm(family: str, values: ValuesOf, seeds: SeedsOf) -> tuple[ValuesOf, SeedsOf]:
    """Return the values and seeds of a 1x1 convolution's `family` from those of its product's."""

    def lowered_values(problem: ConvProblem, limits: Limits) -> Values:
        return values(lowered(problem), limits)

    def lowered_seeds(problem: ConvProblem, limits: Limits) -> list[Any]:
        kind = FAMILIES[family].Config
        return [kind(**asdict(seed)) for seed in seeds(lowered(problem), limits)]

    return lowered_values, lowered_seeds


SPACES: dict[str, tuple[ValuesOf, SeedsOf]] = {
    "conv_register": (register_values, register_seeds),
    "conv_register_weights": (register_weights_values, register_weights_seeds),
    "conv_gemm": (conv_gemm.values, conv_gemm.seeds),
    "conv_async": (conv_gemm.async_values, conv_gemm.async_seeds),
    "conv_narrow_weights": (conv_narrow.values, conv_narrow.seeds),
    "depthwise": (depthwise_values, depthwise_seeds),
    "depthwise_pixels": (depthwise_pixels_values, depthwise_pixels_seeds),
    "depthwise_pixels_weights": (depthwise_pixels_weights_values, depthwise_pixels_weights_seeds),
    "depthwise_weights": (depthwise_weights_values, depthwise_weights_seeds),
    "conv_as_gemm_pairs": as_gemm("conv_as_gemm_pairs", gemm_pairs.values, gemm_pairs.seeds),
    "conv_as_gemm_register": as_gemm(
        "conv_as_gemm_register", gemm.register_values, gemm.register_seeds
    ),
    "conv_as_gemm_staged": as_gemm("conv_as_gemm_staged", gemm.staged_values, gemm.staged_seeds),
    "conv_as_gemm_async": as_gemm("conv_as_gemm_async", gemm_async.values, gemm_async.seeds),
    "conv_as_gemm_mma": as_gemm("conv_as_gemm_mma", gemm.mma_values, gemm.mma_seeds),
}
"""Values and seeds of every family here."""


def _largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(conv_register.parts_of(problem), key=lambda part: part.results * part.reduction)


def _cost(broadcasts: int, vecs: int) -> float:
    """Return an estimate of the time per multiply-add: one, plus what the loads add.

    Vectors come from the second cache and count four times a broadcast from the first.
    """
    return 1 + (2 * vecs + broadcasts / 2) / (broadcasts * vecs)


def _lanes(part: Correlation, vec: int, vecs: int) -> float:
    """Return the time per channel, which idle lanes of the last vectors lengthen."""
    return waste(part.channels, vec * vecs) / vec


def _shared(problem: ConvProblem) -> tuple[int, ...]:
    """Return how many images may share loaded weights."""
    return tuple(n for n in (1, 2, 4) if problem.batch % n == 0)


def _inputs(part: Correlation) -> tuple[int, ...]:
    """Return numbers of input channels whose taps have accumulators in registers."""
    most = min(max(REGISTERS // part.cols.taps, 1), part.depth)
    return tuple(c for c in (*range(1, 9), 10, 12, 14) if c <= most)


def _even_cuts(width: int) -> tuple[int, ...]:
    """Return block sizes from 4 to 28 that cut a row most evenly: the longest of the best ones."""
    sizes = sorted(
        range(min(4, width), min(REGISTERS, width) + 1), key=lambda x: (waste(width, x), -x)
    )
    return tuple(sorted(sizes[:6]))


def _vectors(channels: int, limits: Limits) -> tuple[int, ...]:
    """Return the device's vector width and its half, or less where there are fewer channels."""
    width = limits.native_float_width
    while width > 1 and width >= 2 * channels:
        width //= 2
    return (width, width // 2) if width > 4 else (width,)


def _patch_values(width: int, limits: Limits) -> dict[str, tuple[Value, ...]]:
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        return {
            "patch_h": (1, 2, 4, 7, 8, 14),
            # whole rows have static edges; halves keep the window of wide rows in the first cache
            "patch_w": tuple({min(width, 128), min(ceil_div(width, 2), 64)}),
            "vec": tuple({lanes, max(lanes // 2, 1)}),
            "guarded": (False,),
            # a work-group costs some 0.2 us to start: small planes share it
            "local_size": (1, 4, 16),
        }
    return {
        "patch_h": (1, 2, 4, 7, 8),
        "patch_w": (1, 2, 4, 7, 8),
        "vec": (1, 2, 4),
        "guarded": BOTH,
        "local_size": (32, 64, 128, 256),
    }


def _patches(width: int, limits: Limits) -> list[tuple[int, int, int, bool, int]]:
    """Return (patch_h, patch_w, vec, guarded, local_size) to begin with."""
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        return [(h, min(width, 128), lanes, False, local) for h in (4, 7, 14) for local in (1, 4)]
    return [(h, w, 1, True, 128) for h, w in ((4, 4), (2, 4), (4, 2), (1, 4), (7, 7))]
