"""What is worth trying for `conv_register_weights`, and why, with configs to begin with.

It says nothing about what is valid; that is the family's `why_not`.
"""

from __future__ import annotations

from itertools import product

from oclgen.families.conv import conv_register_weights
from oclgen.families.conv.correlation import Correlation, strung_windows
from oclgen.limits import Limits
from oclgen.problem import ConvProblem
from search_spaces.blocking import waste
from search_spaces.conv.lanes import REGISTERS, SEEDS, VECS, cost, lanes, vectors
from search_spaces.values import BOTH, Values


def values(problem: ConvProblem, limits: Limits) -> Values:
    """Return the values worth trying for each parameter of `conv_register_weights`."""
    if limits.kind == "gpu":
        return {}
    part = strung_windows(problem)
    return {
        "item_c": _inputs(part),
        "vec": vectors(part.channels, limits),
        "vecs": VECS,
        "unroll": (1, 2),
        # more planes balance the units and keep packed y in the second cache
        "split": tuple(s for s in (1, 2, 4, 8, 16, 32) if s <= part.batch * part.rows.results),
        "outputs_fastest": BOTH,
    }


def seeds(problem: ConvProblem, limits: Limits) -> list[conv_register_weights.Config]:
    """Return start points for `conv_register_weights`, ranked as those of `conv_register`."""
    if limits.kind == "gpu":
        return []
    part = strung_windows(problem)
    taps = part.cols.taps
    shapes = [
        (cost(c * taps, vecs) * waste(part.depth, c) * lanes(part, vec, vecs), c, vec, vecs)
        for c, vec, vecs in product(_inputs(part), vectors(part.channels, limits), VECS)
        if c * vecs * taps <= REGISTERS
    ]
    return [
        conv_register_weights.Config(c, vec, vecs, 1, split, False)
        for _, c, vec, vecs in sorted(shapes)[: SEEDS // 2]
        for split in (1, min(problem.batch, 8))
    ]


def _inputs(part: Correlation) -> tuple[int, ...]:
    """Return numbers of input channels whose taps have accumulators in registers."""
    most = min(max(REGISTERS // part.cols.taps, 1), part.depth)
    return tuple(c for c in (*range(1, 9), 10, 12, 14) if c <= most)
