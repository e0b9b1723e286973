"""The first few items of sorted lines on processors: lines are lanes, and nothing is sorted.

A line's best items so far stand in order; an item that comes before the last of them moves those
behind it on (insertion, as in Knuth, "The Art of Computer Programming" 3, section 5.2.1).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.kernels import line_lanes
from ocl_backend.kernels.line_lanes import LineKernel

MOST = 128
"""Items that are kept: each new one is compared with all of them."""
LEAST_ROOM = 16
"""Items that a text has room for, at least; more are a power of two."""
BODY = """\
V best[ROOM];
I places[ROOM];
for (long k = 0; k < size; ++k) {
    const int taken = min(k, kept);
    V key = LOAD_x(k, 0);
    if (taken == kept && !any(BEFORE(key, best[kept - 1])))
        continue;
    I place = (I)(k), goes = 0;
    for (int s = 0; s < taken; ++s) {
        const V other = best[s];
        const I at = places[s];
        goes |= BEFORE(key, other);
        best[s] = select(other, key, goes);
        places[s] = select(at, place, goes);
        key = select(key, other, goes);
        place = select(place, at, goes);
    }
    if (taken < kept) {
        best[taken] = key;
        places[taken] = place;
    }
}
for (long k = 0; k < kept; ++k) {
    STORE_keys(k, 0, best[k]);
    STORE_order(k, 0, places[k]);
}
"""
BEFORE = {
    True: "(({a} > {b}) | (({a} != {a}) & ({b} == {b})))",
    False: "(({a} < {b}) | (({a} == {a}) & ({b} != {b})))",
}
"""Whether a comes before b in descending order, or in ascending: a NaN is the largest."""


def serves(x: Tensor, dim: int, kept: int) -> bool:
    """Say whether `first` selects `kept` items of each line of x along `dim`."""
    return kept <= MOST and line_lanes.serve(x, dim)


def first(x: Tensor, dim: int, kept: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the first `kept` items of sorted lines along `dim`, and their positions as int64.

    Of equal items the first are taken.
    """
    shape = [kept if d == dim else size for d, size in enumerate(x.shape)]
    keys = torch.empty(shape, dtype=x.dtype, device=x.device)
    order = torch.empty(shape, dtype=torch.int64, device=x.device)
    room = max(LEAST_ROOM, 1 << (kept - 1).bit_length())
    line_lanes.run(_kernel(room, descending), dim, (x, keys, order), kept)
    return keys, order


@cache
def _kernel(room: int, descending: bool) -> LineKernel:
    body = BODY.replace("ROOM", str(room))
    for other in ("best[kept - 1]", "other"):
        before = BEFORE[descending].format(a="key", b=other)
        body = body.replace(f"BEFORE(key, {other})", before)
    operands = (("x", False), ("keys", True), ("order", True))
    return LineKernel("select_lines", operands, body, ("kept",))
