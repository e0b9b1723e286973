"""What is worth trying for `depthwise`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from dataclasses import replace

from oclgen.families.conv.correlation import correlations
from oclgen.families.depthwise import depthwise
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Value, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise`."""
    if problem.layout == "nhwc":
        return pixel_values(problem, limits)
    return patch_values(max(part.cols.results for part in correlations(problem)), limits)


def seeds(problem: ConvProblem, limits: Limits) -> list[depthwise.Config]:
    """Return start points for `depthwise`, best guess first; some may not be valid."""
    if problem.layout == "nhwc":
        vec, local = widest(problem, limits), 4 if limits.kind == "cpu" else 128
        return [
            replace(depthwise.DEFAULT, patch_h=h, patch_w=w, local_size=local, vec_c=vec)
            for h, w in ((2, 4), (1, 4), (4, 4), (2, 2), (1, 8))
        ]
    width = max(part.cols.results for part in correlations(problem))
    return [depthwise.Config(*patch) for patch in patches(width, limits)]


def pixel_values(problem: ConvProblem, limits: Limits) -> dict[str, tuple[Value, ...]]:
    """Return the values of the parameters that images in channels_last have."""
    on_cpu, width = limits.kind == "cpu", limits.native_float_width
    # neighbouring work-items of a GPU read neighbouring channels as it is
    widths = (width, width // 2, 1) if on_cpu else (1, 2, 4)
    return {
        "patch_h": (1, 2, 4, 7),
        "patch_w": (1, 2, 4, 7, 8),
        "vec_c": _dividing(problem.in_channels, widths),
        "local_size": (1, 4, 16) if on_cpu else (32, 64, 128, 256),
    }


def widest(problem: ConvProblem, limits: Limits) -> int:
    """Return how many channels are the best guess of a vector."""
    return int(pixel_values(problem, limits)["vec_c"][0])


def _dividing(channels: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the widths of vectors that divide the channels; 1 always does."""
    return tuple(dict.fromkeys(w for w in widths if w and channels % w == 0)) or (1,)


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


def patches(width: int, limits: Limits) -> list[tuple[int, int, int, bool, int]]:
    """Return (patch_h, patch_w, vec, guarded, local_size) to begin with."""
    if limits.kind == "cpu":
        lanes = limits.native_float_width
        return [(h, min(width, 128), lanes, False, local) for h in (4, 7, 14) for local in (1, 4)]
    return [(h, w, 1, True, 128) for h, w in ((4, 4), (2, 4), (4, 2), (1, 4), (7, 7))]
