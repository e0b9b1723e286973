"""Scans of lines on processors, a line in each lane of a vector.

A lane needs no other one, so that lines may be short, and their items may lie apart.
"""

from __future__ import annotations

from functools import cache

from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import line_lanes
from ocl_backend.kernels.line_lanes import LineKernel
from ocl_backend.ops.reduce.scan_rows import Scan

SHORT = 16
"""Items of a dense row, at most, whose neighbours lie in other lanes."""

SUMS = """\
V acc[MANY];
EACH(v)
    acc[v] = NEUTRAL;
for (long k = 0; k < size; ++k)
    EACH(v) {
        const V a = acc[v], b = LOAD_x(k, v);
        acc[v] = COMBINE;
        STORE_out(k, v, acc[v]);
    }
"""
EXTREMES = """\
V best[MANY];
I where[MANY];
EACH(v) {
    best[v] = LOAD_x(0, v);
    where[v] = 0;
}
for (long k = 0; k < size; ++k)
    EACH(v) {
        const V x = LOAD_x(k, v);
        const I goes = (x != x) | ((best[v] == best[v]) & (x BETTER best[v]));
        best[v] = select(best[v], x, goes);
        where[v] = select(where[v], (I)(k), goes);
        STORE_out(k, v, best[v]);
        STORE_places(k, v, where[v]);
    }
"""


def serves(rule: Scan, x: Tensor, axis: int, out: Tensor) -> bool:
    """Say whether lines of x along `axis` are scanned so.

    `scan_vectors` serves dense rows of more than `SHORT` items, except for costly rules: it
    combines vectors of eight items four times.
    """
    is_costly = "exp(" in rule.combine
    if 1 == x.stride(axis) == out.stride(axis) and x.shape[axis] > SHORT and not is_costly:
        return False
    return line_lanes.serve(x, axis, dtype_of(out.dtype).value)


def scan(rule: Scan, axis: int, x: Tensor, out: Tensor, places: Tensor | None = None) -> None:
    """Write the inclusive scan of x along `axis`.

    Args:
        rule: how.
        axis: along which; `serves` holds.
        x: of any strides.
        out: of x's shape, of any strides.
        places: the same, int64, for the places of a scan that is `better`.
    """
    tensors = (x, out) if places is None else (x, out, places)
    line_lanes.run(_kernel(rule, dtype_of(out.dtype).value), axis, tensors)


@cache
def _kernel(rule: Scan, value: str) -> LineKernel:
    operands: tuple[tuple[str, bool], ...] = (("x", False), ("out", True))
    if rule.better:
        operands, body = (*operands, ("places", True)), EXTREMES.replace("BETTER", rule.better)
        return LineKernel("extremes_of_lines", operands, body, value=value)
    body = SUMS.replace("NEUTRAL", rule.neutral).replace("COMBINE", rule.combine)
    return LineKernel("scan_lines", operands, body, limited=True, value=value)
