"""What is worth trying for `winograd_blocked_weights`, and why.

The family's `why_not` says what is valid, and its `guesses` say where to begin.
"""

from __future__ import annotations

from oclgen.families.winograd.winograd_blocked_weights import guesses
from oclgen.families.winograd.winograd_products import best_tilings
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    found, tilings = guesses(problem, limits), best_tilings(problem)
    units = limits.compute_units
    return {
        "out_tile": tuple(dict.fromkeys(one.out_tile for one in tilings)),
        "taps": tuple(dict.fromkeys(one.taps for one in tilings)),
        "item_k": tuple(sorted({4, 6, 7, 8, 12, 14, *(one.item_k for one in found)})),
        "vec": tuple(dict.fromkeys((limits.native_float_width, *(one.vec for one in found)))),
        "vecs": (1, 2, 3),
        # small blocks leave room in the second cache, large ones transform a tile less often
        "loop_k": tuple(sorted({1, 2, 4, 8, 16, *(one.loop_k for one in found)})),
        "loop_c": tuple(sorted({1, 2, 4, *(one.loop_c for one in found)})),
        # few tiles leave room, too, many load and store sums less often
        "tile": (8, 16, 32, 64),
        # several work-items a core even out what other work takes from it
        "workers": tuple(dict.fromkeys((1, units, 2 * units))),
        "split": tuple(sorted({1, 2, 4, 8, 16, *(one.split for one in found)})),
    }
