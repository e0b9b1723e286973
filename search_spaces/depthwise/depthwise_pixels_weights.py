"""What is worth trying for `depthwise_pixels_weights`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.depthwise import depthwise_pixels_weights
from oclgen.limits import Limits
from oclgen.plan import ceil_div
from oclgen.problem import ConvProblem
from search_spaces.depthwise import depthwise_pixels as pixels
from search_spaces.depthwise.depthwise_weights import GROUPS_PER_UNIT
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_pixels_weights`."""
    shared = {
        **pixels.values(problem, limits),
        "patch_h": (1, 2, 4, 8),
        "patch_w": (1, 2, 4),
        "split": (1, 2, 4, 8, 16, 32, 64, 128),
    }
    del shared["local_size"]
    if limits.kind == "cpu":
        return {**shared, "local_c": (1,), "local_k": (1,)}
    return {**shared, "local_c": (16, 32, 64), "local_k": (1, 2, 4, 8, 16)}


def seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_pixels_weights.Config]:
    """Return start points for `depthwise_pixels_weights`, best guess first; some may be invalid."""
    kind = depthwise_pixels_weights.Config
    vec = int(pixels.values(problem, limits)["vec"][0])
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
