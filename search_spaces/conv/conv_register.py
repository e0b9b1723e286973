"""What is worth trying for `conv_register`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from itertools import product

from oclgen.families.conv import conv_register
from oclgen.families.conv.correlation import Correlation
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.blocking import waste
from search_spaces.conv.lanes import REGISTERS, SEEDS, VECS, cost, lanes, vectors
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register`; none on GPUs."""
    if limits.kind == "gpu":
        return {}
    part = _largest(problem)
    return {
        # images share weights, which pays where a row has few results
        "images": _shared(problem),
        "item_x": _even_cuts(part.cols.results),
        "vec": vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        "taps_outer": BOTH,
        # weights that outgrow the second cache want positions fastest, large images channels
        "channels_fastest": BOTH,
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[conv_register.Config]:
    """Return start points for `conv_register`, best guess first; some may not be valid."""
    if limits.kind == "gpu":
        return []
    part = _largest(problem)
    shapes = [
        (
            cost(n * x, vecs) * waste(part.cols.results, x) * lanes(part, vec, vecs),
            n,
            x,
            vec,
            vecs,
        )
        for n, x, vec, vecs in product(
            _shared(problem), _even_cuts(part.cols.results), vectors(part.channels, limits), VECS
        )
        if n * x * vecs <= REGISTERS
    ]
    return [
        conv_register.Config(n, x, vec, vecs, 1, taps_outer, channels_fastest)
        for _, n, x, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for taps_outer, channels_fastest in ((False, False), (True, True))
    ]


def _largest(problem: ConvProblem) -> Correlation:
    """Return the correlation with the most work."""
    return max(conv_register.parts_of(problem), key=lambda part: part.results * part.reduction)


def _shared(problem: ConvProblem) -> tuple[int, ...]:
    """Return how many images may share loaded weights."""
    return tuple(n for n in (1, 2, 4) if problem.batch % n == 0)


def _even_cuts(width: int) -> tuple[int, ...]:
    """Return block sizes from 4 to 28 that cut a row most evenly: the longest of the best ones."""
    sizes = sorted(
        range(min(4, width), min(REGISTERS, width) + 1), key=lambda x: (waste(width, x), -x)
    )
    return tuple(sorted(sizes[:6]))
