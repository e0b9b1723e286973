"""What is worth trying for `depthwise`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from oclgen.families.conv.correlation import correlations
from oclgen.families.depthwise.guessed import row_patches
from oclgen.families.depthwise.patches import channel_vectors
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Value, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise`."""
    if problem.layout == "nhwc":
        on_cpu = limits.kind == "cpu"
        if on_cpu:
            patches = row_patches(problem, limits, channel_vectors(problem, limits)[0])
            return {**row_values(problem, limits, patches), "local_c": (1,), "rounds": (1,)}
        return {
            **pixel_values(problem, limits),
            "local_c": (1, 16, 32, 64),
            "rounds": (1, 2, 4, 8, 16),
        }
    return patch_values(max(part.cols.results for part in correlations(problem)), limits)


def row_values(
    problem: ConvProblem, limits: Limits, patches: Iterable[tuple[int, int]]
) -> dict[str, tuple[Value, ...]]:
    """Return the values of the parameters that vectors of channels have, on a processor.

    Args:
        problem: in channels_last.
        limits: of the device.
        patches: guessed rows and columns, which are tried beside the usual ones.
    """
    highs, wides = zip(*patches, strict=True)
    shared = pixel_values(problem, limits)
    return {
        **shared,
        "patch_h": tuple(sorted({*shared["patch_h"], 14, 28, *highs})),
        "patch_w": tuple(sorted({*shared["patch_w"], 14, *wides})),
    }


def pixel_values(problem: ConvProblem, limits: Limits) -> dict[str, tuple[Value, ...]]:
    """Return the values of the parameters that images in channels_last have."""
    return {
        "patch_h": (1, 2, 4, 7),
        "patch_w": (1, 2, 4, 7, 8),
        "vec_c": channel_vectors(problem, limits),
        "local_size": (1, 4, 16) if limits.kind == "cpu" else (32, 64, 128, 256),
    }


def patch_values(width: int, limits: Limits) -> dict[str, tuple[Value, ...]]:
    """Return the values of the parameters that `depthwise_weights` shares, by a row's results."""
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
