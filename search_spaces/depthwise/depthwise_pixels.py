"""What is worth trying for `depthwise_pixels`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from oclgen.families.depthwise import depthwise_pixels
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.values import Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `depthwise_pixels`."""
    on_cpu, width = limits.kind == "cpu", limits.native_float_width
    return {
        "patch_h": (1, 2, 4, 7),
        "patch_w": (1, 2, 4, 7, 8),
        # neighbouring work-items of a GPU read neighbouring channels as it is
        "vec": _dividing(problem.in_channels, (width, width // 2, 1) if on_cpu else (1, 2, 4)),
        "local_size": (1, 4, 16) if on_cpu else (32, 64, 128, 256),
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[depthwise_pixels.Config]:
    """Return start points for `depthwise_pixels`, best guess first; some may not be valid."""
    vec = values(problem, limits)["vec"][0]
    local = 4 if limits.kind == "cpu" else 128
    patches = ((2, 4), (1, 4), (4, 4), (2, 2), (1, 8))
    return [depthwise_pixels.Config(h, w, int(vec), local) for h, w in patches]


def _dividing(channels: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the widths of vectors that divide the channels; 1 always does."""
    return tuple(dict.fromkeys(w for w in widths if w and channels % w == 0)) or (1,)
