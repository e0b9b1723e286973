"""Scans of dense rows on processors, eight items at once.

Within a vector each doubling reaches twice as far back (Hillis and Steele 1986, "Data parallel
algorithms"), and one addition carries on what came before. Where rows are few, work-items share
them: the totals of stretches are scanned first, so that x is read twice and the result written
once (Merrill and Garland 2016, "Single-pass parallel prefix scan", section 2: reduce-then-scan).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.ops.reduce.scan_rows import STORED, Scan
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

ROWS = 4
"""Rows of each core from which on each row has one work-item."""
HELPERS = """\
TYPE combine(const TYPE a, const TYPE b)
{
    return COMBINE;
}
TYPE8 combine_8(const TYPE8 a, const TYPE8 b)
{
    return COMBINE;
}
"""
STRETCH = """\
const long last = min(first + stretch, size);
const T n = NEUTRAL;
long k = first;
"""
TOTAL = """\
TYPE8 sums = (TYPE8)(n);
for (; k + 8 <= last; k += 8)
    sums = combine_8(sums, LOADS_self(self_at + k));
T acc = combine(combine(combine(sums.s0, sums.s1), combine(sums.s2, sums.s3)),
                combine(combine(sums.s4, sums.s5), combine(sums.s6, sums.s7)));
for (; k < last; ++k)
    acc = combine(acc, LOAD_self(self_at + k));
STORE_total(total_at, acc);
"""
SCAN = """\
T acc = CARRIED;
for (; k + 8 <= last; k += 8) {
    TYPE8 v = LOADS_self(self_at + k);
    v = combine_8((TYPE8)(n, v.s012, v.s3456), v);
    v = combine_8((TYPE8)(n, n, v.s01, v.s2345), v);
    v = combine_8((TYPE8)(n, n, n, n, v.s0123), v);
    STORES_out(out_at + k, combine_8((TYPE8)(acc), v));
    acc = combine(acc, v.s7);
}
for (; k < last; ++k) {
    acc = combine(acc, LOAD_self(self_at + k));
    STORE_out(out_at + k, acc);
}
"""
EXTREMES = """\
T best = LOAD_self(self_at);
long place = 0;
for (long k = 0; k < size; k += 8) {
    const long last = min(k + 8, size);
    if (k + 8 <= size) {
        const TYPE8 v = LOADS_self(self_at + k);
        if (!any((v != v) | (v BETTER best))) {
            STORES_out(out_at + k, (TYPE8)(best));
            STORES_places(places_at + k, (long8)(place));
            continue;
        }
    }
    for (long i = k; i < last; ++i) {
        const T x = LOAD_self(self_at + i);
        if (x != x || (best == best && x BETTER best)) {
            best = x;
            place = i;
        }
        STORE_out(out_at + i, best);
        STORE_places(places_at + i, place);
    }
}
"""
CARRIED = "first ? LOAD_total(total_at - 1) : n"


def serves(x: Tensor) -> bool:
    """Say whether these kernels scan along the last dimension of x, which has items."""
    limits = devices()[x.get_device()].limits
    return limits.kind == "cpu" and x.dim() > 0 and x.stride(-1) == 1


def scan(rule: Scan, x: Tensor, out: Tensor) -> None:
    """Write the inclusive scan of x along its last dimension to `out`, dense, of its shape."""
    size = x.shape[-1]
    limits = devices()[x.get_device()].limits
    is_shared = x.numel() // size < ROWS * limits.compute_units
    stretch = CHUNK if is_shared else size
    shape = (*x.shape[:-1], ceil_div(size, stretch))
    walked = {
        "first": (*(0,) * (x.dim() - 1), stretch),
        "self": (*x.stride()[:-1], 0),
        "out": (*out.stride()[:-1], 0),
    }
    if shape[-1] == 1:
        kernel = _kernel(rule, "scan", x.dtype, out.dtype, None)
        launch(kernel, shape, (x, out, stretch, size), walked)
        return
    kept = STORED.get(dtype_of(out.dtype).value, out.dtype)
    total = torch.empty(shape, dtype=kept, device=x.device)
    walked["total"] = total.stride()
    kernel = _kernel(rule, "total", x.dtype, None, kept)
    launch(kernel, shape, (x, total, stretch, size), walked)
    before = torch.empty_like(total)
    scan(rule, total, before)
    kernel = _kernel(rule, "carry", x.dtype, out.dtype, kept)
    launch(kernel, shape, (x, out, before, stretch, size), walked)


def extremes(rule: Scan, x: Tensor, out: Tensor, places: Tensor) -> None:
    """Write the extremes so far along the last dimension of x, and their places.

    Eight items of which none is better take a comparison, whatever comes before them.

    Args:
        rule: what is `better`.
        x: of items that `serves`.
        out: of its shape and dtype, dense.
        places: the same, int64.
    """
    shape = (*x.shape[:-1], 1)
    walked = {
        name: (*tensor.stride()[:-1], 0)
        for name, tensor in (("self", x), ("out", out), ("places", places))
    }
    launch(_extremes(rule, x.dtype), shape, (x, out, places, x.shape[-1]), walked)


@cache
def _extremes(rule: Scan, dtype: torch.dtype) -> Kernel:
    value = dtype_of(dtype).value
    parameters = (
        Operand("self", dtype, "address", items=8),
        Operand("out", dtype, "address", items=8),
        Operand("places", torch.int64, "address", "long", items=8),
        Scalar("size", "long"),
    )
    text = EXTREMES.replace("TYPE", value).replace("BETTER", rule.better)
    return Kernel("scan_extremes", value, parameters, text, scalar_only=True, work=CHUNK)


@cache
def _kernel(
    rule: Scan, name: str, dtype: torch.dtype, out: torch.dtype | None, total: torch.dtype | None
) -> Kernel:
    """Return the kernel of a stretch's `total`, of its `scan`, or of one that may `carry`."""
    result = out or total
    assert result is not None
    value = dtype_of(result).value
    text = STRETCH + (TOTAL if name == "total" else SCAN)
    text = text.replace("CARRIED", CARRIED if name == "carry" else "n")
    helpers = HELPERS.replace("COMBINE", rule.combine)
    parameters: list[Operand | Scalar] = [
        Operand("first", role="position"),
        Operand("self", dtype, "address", items=8),
        *([] if out is None else [Operand("out", out, "address", items=8)]),
        *([] if total is None else [Operand("total", total, "address")]),
        Scalar("stretch", "long"),
        Scalar("size", "long"),
    ]
    return Kernel(
        f"scan_{name}", value, tuple(parameters),
        text.replace("NEUTRAL", rule.neutral).replace("TYPE", value),
        helpers.replace("TYPE", value), scalar_only=True, work=CHUNK,
    )  # fmt: skip
