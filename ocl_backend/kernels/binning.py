"""Counts of items by bins, and sums of their weights.

On processors, each work-item fills bins of its own for a stretch of the items, and the stretches'
bins are added up: no item waits for another one, and sums of weights have one order. So do the
work-groups of a GPU (`bin_groups`), whose work-items share tables. Elsewhere each item's bin is an
index of `index_add_`, whose additions are atomic or, if so asked, have one order.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.bin_groups import binned_by_groups
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.kernels.owners import ALONE, are_possible
from ocl_backend.kernels.vectors import in_type
from oclgen.limits import Limits
from oclgen.opencl.device import devices

Scale = Literal["equal", "edges", "own"]

EQUAL = "min((long)((x - low) * bins / (high - low)), bins - 1)"
BINS: dict[Scale, str] = {"equal": EQUAL, "edges": EQUAL, "own": "(long)x"}
"""C of the bin of an item x: of equal ones between `low` and `high`, or of the number x itself."""

FIND = "long found = x >= low && x <= high ? %s : bins;\n"

STEP = """\
if (found < bins) {
    while (found > 0 && x < LOAD_edges(edges_at + found))
        --found;
    while (found < bins - 1 && x >= LOAD_edges(edges_at + found + 1))
        ++found;
}
"""
"""What the edges say, which are rounded: the bin before or behind is right, hardly ever another."""

LISTED = 256
"""Items whose bins are found before one is filled: a loop over vectors finds them."""

FILL = f"""\
int bin[{LISTED}];
const long end = min((part + 1) * share, count);
for (long begin = part * share; begin < end; begin += {LISTED}) {{
    const int many = (int)min(end - begin, {LISTED}L);
    for (int k = 0; k < many; ++k) {{
        const T x = LOAD_x(x_at + begin + k);
        FIND
        bin[k] = (int)found;
    }}
    for (int k = 0; k < many; ++k)
        total_data[total_at + bin[k]] += WEIGHT;
}}
"""

MOST_BINS = 1 << 30
"""Bins are numbered by an int."""


def binned(
    x: Tensor,
    bins: int,
    scale: Scale,
    low: float,
    high: float,
    weight: Tensor | None = None,
    edges: Tensor | None = None,
) -> Tensor:
    """Return how many items are in each bin, int64 [bins], or their weights' sums in those' dtype.

    Args:
        x: items of any shape, floats or integers; those outside of [low, high], and NaN, count
            nowhere.
        bins: how many.
        scale: what an item's bin is. Integers between equal bins are scaled in int64. By "edges",
            items belong between these, which are those of equal bins except for rounding.
        low: the smallest item that counts.
        high: the largest.
        weight: of each item, [x.numel()], of 4 or 8 bytes; None counts.
        edges: of the bins, [bins + 1], in x's dtype; of the scale "edges" alone.
    """
    of_edges = [] if edges is None else [edges.contiguous()]
    dtype = torch.int64 if weight is None else weight.dtype
    items = x.reshape(-1).contiguous()
    limits = devices()[x.get_device()].limits
    parts = _parts(items.numel(), bins, limits)
    if not parts:
        value, find = _register(x.dtype), _find(scale)
        tables = [items, *of_edges, *([] if weight is None else [weight.contiguous()])]
        found = binned_by_groups(tables, bool(of_edges), value, find, bins, low, high, limits)
        if found is not None:
            return found
        places = torch.empty_like(items, dtype=torch.int64)
        numbered: list[Tensor | float] = [items, *of_edges, bins, low, high, places]
        launch(_place_kernel(x.dtype, scale), places.shape, numbered, {"edges": (0,)})
        terms = torch.ones_like(places) if weight is None else weight
        return torch.zeros(bins + 1, dtype=dtype, device=x.device).index_add_(0, places, terms)[:-1]
    total = torch.zeros(parts, bins + 1, dtype=dtype, device=x.device)
    share = -(-items.numel() // parts)
    given = [items, *of_edges, *([] if weight is None else [weight.contiguous()]), total]
    walked = {"part": (1,), "x": (0,), "edges": (0,), "weight": (0,), "total": (bins + 1,)}
    kernel = _fill_kernel(x.dtype, scale, None if weight is None else weight.dtype)
    launch(kernel, (parts,), [*given, bins, low, high, items.numel(), share], walked)
    return (total.sum(0) if parts > 1 else total[0])[:-1]


def ends(x: Tensor) -> list[float]:
    """Return the smallest and the largest item of x, which are waited for once."""
    found: list[float] = torch.stack(torch.aminmax(x)).tolist()
    return found


def _parts(items: int, bins: int, limits: Limits) -> int:
    """Return the work-items that have bins of their own; 0: bins are shared.

    A work-item has at least as many items as bins, since these are zeroed and added up.
    """
    if not are_possible(limits) or bins >= MOST_BINS:
        return 0
    parts = max(1, min(4 * limits.compute_units, items // max(bins, CHUNK)))
    return parts if ALONE * parts >= min(limits.compute_units, -(-items // CHUNK)) else 0


def _numbers(value: str) -> tuple[Operand | Scalar, ...]:
    return (Scalar("bins", "long"), Scalar("low", value), Scalar("high", value))


def _edges(scale: Scale, x: torch.dtype) -> tuple[Operand, ...]:
    return (Operand("edges", x, "address"),) if scale == "edges" else ()


def _find(scale: Scale) -> str:
    return FIND % BINS[scale] + (STEP if scale == "edges" else "")


def _register(x: torch.dtype) -> str:
    return dtype_of(x).value if x.is_floating_point else "long"


@cache
def _place_kernel(x: torch.dtype, scale: Scale) -> Kernel:
    value = _register(x)
    out = Operand("out", torch.int64, "output", value="long", result="found")
    operands = (Operand("x", x), *_edges(scale, x), *_numbers(value), out)
    return Kernel("bin_places", value, operands, _find(scale), scalar_only=True)


@cache
def _fill_kernel(x: torch.dtype, scale: Scale, weight: torch.dtype | None) -> Kernel:
    value = _register(x)
    total = torch.int64 if weight is None else weight
    term = "1" if weight is None else "LOAD_weight(weight_at + begin + k)"
    kept: list[Operand | Scalar]
    kept = [] if weight is None else [Operand("weight", weight, "address", dtype_of(weight).value)]
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("part", role="position"),
        Operand("x", x, "address"),
        *_edges(scale, x),
        *kept,
        Operand("total", total, "address"),
        *_numbers(value),
        Scalar("count", "long"),
        Scalar("share", "long"),
    )
    body = in_type(FILL.replace("FIND", _find(scale)).replace("WEIGHT", term), value)
    return Kernel("bins", value, parameters, body, scalar_only=True, work=CHUNK)
