"""What is worth trying for `depthwise`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.conv.correlation import correlations
from oclgen.families.depthwise import depthwise
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.values import BOTH, Value, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise`."""
    return patch_values(max(part.cols.results for part in correlations(problem)), limits)


def seeds(problem: ConvProblem, limits: Limits) -> list[depthwise.Config]:
    """Return start points for `depthwise`, best guess first; some may not be valid."""
    width = max(part.cols.results for part in correlations(problem))
    return [depthwise.Config(*patch) for patch in patches(width, limits)]


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
