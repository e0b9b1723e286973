"""What is worth trying for `depthwise_weights`, and why.

It says neither what is valid nor where to begin: that is the family's, `why_not` and `guesses`.
"""

from __future__ import annotations

from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.depthwise.depthwise import patch_values, pixel_values
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_weights`."""
    if problem.layout == "nhwc":
        return _pixel_values(problem, limits)
    if limits.kind == "cpu":
        return {**patch_values(problem.out_w, limits), "local_k": (1,), "split": (1, 2, 4, 8)}
    return {
        "patch_h": (1, 2, 4, 7, 8, 14),
        "patch_w": (1, 2, 4),
        "vec": (1, 2, 4),
        "guarded": (True,),
        "local_size": (32, 64, 128, 256),
        "local_k": (1, 32, 64, 128, 256),
        "split": (1, 2, 4, 8, 16, 32, 64),
    }


def _pixel_values(problem: ConvProblem, limits: Limits) -> Values:
    shared = {
        **pixel_values(problem, limits),
        "patch_h": (1, 2, 4, 8),
        "patch_w": (1, 2, 4),
        "split": (1, 2, 4, 8, 16, 32, 64, 128),
    }
    if limits.kind == "cpu":
        return {**shared, "local_size": (1,), "local_c": (1,)}
    return {**shared, "local_size": (32, 64, 128, 256, 512), "local_c": (16, 32, 64)}
