"""Sorting along one dimension, and topk.

Work-items sort short runs by insertion, or long ones by their digits on processors (`radix_rows`).
Then runs are merged in pairs, a launch for every doubling of their length, each work-item making an
equal share of the result (Odeh et al. 2012, "Merge path"). Every sort is stable. A NaN counts as
the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.kernels.memory_formats import as_rows, from_rows
from ocl_backend.kernels.row_blocks import BLOCK
from ocl_backend.ops.reduce import positions
from ocl_backend.ops.reduce.reductions import max_dim
from ocl_backend.ops.sort import line_selection, radix_rows, sort_groups
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

RUN = 16
"""Items sorted by insertion, whose time grows with their square."""

SHARE = {"cpu": 2048, "gpu": 16}
"""Items of a merged row that one work-item makes."""

MOST_SELECTED, LEAST_SHARE = 128, 8
"""topk selects up to MOST_SELECTED of at least LEAST_SHARE times as many items; else it sorts."""

ALONE = 8192
"""Items of which one work-item of a processor selects: it takes less time than further launches."""

RUNS = """\
const long first = part * length;
for (long i = first; i < min(first + length, size); ++i) {
    const T key = LOAD_x(x_at + i);
    long place = i;
    for (; place > first; --place) {
        const T other = LOAD_keys(keys_at + place - 1);
        if (!before(key, other))
            break;
        STORE_keys(keys_at + place, other);
        STORE_order(order_at + place, LOAD_order(order_at + place - 1));
    }
    STORE_keys(keys_at + place, key);
    STORE_order(order_at + place, i);
}
"""

MERGE = """\
const long begin = part * share;
const long left = begin / (2 * length) * 2 * length;
const long middle = min(left + length, size), right = min(middle + length, size);
const long skipped = begin - left;
// of the first `skipped` merged items, i come from the left run: the one split that is in order
long i = max(0L, skipped - (right - middle)), most = min(skipped, middle - left);
while (i < most) {
    const long probe = (i + most) / 2;
    if (before(LOAD_x(x_at + middle + skipped - 1 - probe), LOAD_x(x_at + left + probe)))
        most = probe;
    else
        i = probe + 1;
}
long a = left + i, b = middle + skipped - i;
for (long k = begin; k < min(begin + share, right); ++k) {
    const bool from_right =
        a >= middle || (b < right && before(LOAD_x(x_at + b), LOAD_x(x_at + a)));
    const long from = from_right ? b++ : a++;
    STORE_keys(keys_at + k, LOAD_x(x_at + from));
    STORE_order(order_at + k, LOAD_given(given_at + from));
}
"""

SELECT = """\
const long first = part * share;
const long last = part + 1 == parts ? size : first + share;
const long keys_first = keys_at + part * kept, order_first = order_at + part * kept;
long count = 0;
for (long i = first; i < last; ++i) {
    const T key = LOAD_x(x_at + i);
    if (count == kept && !before(key, LOAD_keys(keys_first + kept - 1)))
        continue;
    long place = count < kept ? count++ : kept - 1;
    for (; place > 0; --place) {
        const T other = LOAD_keys(keys_first + place - 1);
        if (!before(key, other))
            break;
        STORE_keys(keys_first + place, other);
        STORE_order(order_first + place, LOAD_order(order_first + place - 1));
    }
    STORE_keys(keys_first + place, key);
    STORE_order(order_first + place, i);
}
"""

BEFORE = """\
bool before(const %(value)s a, const %(value)s b)
{
    return %(order)s;
}
"""

RISING = "a < b || (a == a && b != b)"
FALLING = "a > b || (a != a && b == b)"


@cache
def _kernel(name: str, dtype: torch.dtype, descending: bool) -> Kernel:
    """Return the kernel `runs`, `merge` or `select`; a work-item does one part of a row."""
    value = dtype_of(dtype).value
    body, numbers = {
        "runs": (RUNS, ("length", "size")),
        "merge": (MERGE, ("length", "size", "share")),
        "select": (SELECT, ("share", "size", "parts", "kept")),
    }[name]
    given = [Operand("given", torch.int64, "address", "long")] if name == "merge" else []
    return Kernel(
        f"sort_{name}",
        value,
        (
            Operand("part", role="position"),
            Operand("x", dtype, "address"),
            *given,
            Operand("keys", dtype, "address"),
            Operand("order", torch.int64, "address", "long"),
            *(Scalar(number, "long") for number in numbers),
        ),
        body,
        BEFORE % {"value": value, "order": FALLING if descending else RISING},
        scalar_only=True,
        work=64,
    )


def _launch(
    name: str, descending: bool, parts: int, tensors: list[Tensor], numbers: list[int]
) -> None:
    """Run a kernel on rows: `tensors` are x, perhaps its order, and the keys and order to write."""
    x = tensors[0]
    names = ("x", "given", "keys", "order") if len(tensors) == 4 else ("x", "keys", "order")
    walked = {name: (tensor.stride(0), 0) for name, tensor in zip(names, tensors, strict=True)}
    kernel = _kernel(name, x.dtype, descending)
    launch(kernel, (len(x), parts), [*tensors, *numbers], {"part": (0, 1), **walked})


def sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the items along `dim` in order, and their positions as int64."""
    axis = axis_of(dim, x.dim())
    if x.dim() == 0 or not x.numel():
        return x.clone(), torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    keys, order = _sorted(as_rows(x, axis), descending)
    return from_rows(keys, x, axis), from_rows(order, x, axis)


def _sorted(rows: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Return the sorted rows, and where their items were."""
    size, limits = rows.shape[1], devices()[rows.get_device()].limits
    if sort_groups.serves(limits, size):
        return sort_groups.sorted_rows(rows, descending)
    keys = torch.empty_like(rows)
    order = torch.empty(rows.shape, dtype=torch.int64, device=rows.device)
    if radix_rows.serves(rows.get_device(), size):
        length = radix_rows.stretch(rows.get_device(), len(rows), size)
        radix_rows.sort_stretches(rows, keys, order, length, descending)
    else:
        length = RUN
        _launch("runs", descending, -(-size // RUN), [rows, keys, order], [RUN, size])
    spare = (torch.empty_like(keys), torch.empty_like(order)) if size > length else (keys, order)
    most = SHARE["cpu" if limits.kind == "cpu" else "gpu"]
    while length < size:
        share = min(2 * length, most)
        tensors = [keys, order, *spare]
        _launch("merge", descending, -(-size // share), tensors, [length, size, share])
        (keys, order), spare = spare, (keys, order)
        length *= 2
    return keys, order


def topk(
    x: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002 (the schema's name)
) -> tuple[Tensor, Tensor]:
    """Return the k largest or smallest items along `dim` in order, and their positions.

    Of equal items the first are taken.

    Raises:
        RuntimeError: there are fewer than k.
    """
    size = x.shape[dim] if x.dim() else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    if x.dim() == 0 or not x.numel() or k == 0:
        values, indices = sort(x, dim=dim, descending=largest)
        return (values, indices) if x.dim() == 0 else (
            values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()
        )  # fmt: skip
    axis = dim % x.dim()
    if k == 1 and largest and positions.serve(x, axis):
        return max_dim(x, axis, keepdim=True)
    if line_selection.serves(x, axis, k):
        return line_selection.first(x, axis, k, largest)
    keys, order = _selected(as_rows(x, axis), k, largest)
    return from_rows(keys, x, axis), from_rows(order, x, axis)


def _selected(rows: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the first k of the sorted rows: each share's first k, until few enough to sort."""
    size = rows.shape[1]
    limits = devices()[rows.get_device()].limits
    if sort_groups.serves(limits, size) and (size <= BLOCK or k <= BLOCK // LEAST_SHARE):
        return sort_groups.first(rows, k, largest)
    if k > MOST_SELECTED or size < LEAST_SHARE * k or size <= 4 * RUN:
        keys, order = _sorted(rows, largest)
        return keys[:, :k].contiguous(), order[:, :k].contiguous()
    enough = ceil_div(vectors.busy_items(limits), len(rows))
    alone = ALONE if limits.kind == "cpu" else 1
    share = min(max(LEAST_SHARE * k, alone, size // enough), size)
    parts = size // share
    keys = rows.new_empty((len(rows), parts * k))
    order = torch.empty(keys.shape, dtype=torch.int64, device=rows.device)
    _launch("select", largest, parts, [rows, keys, order], [share, size, parts, k])
    if parts == 1:
        return keys, order
    return _sooner(keys, order, k, largest)


def _sooner(keys: Tensor, order: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the first k of rows that have been selected, whose items were at `order`."""
    if keys.shape[1] == k:
        return keys, order.contiguous()
    keys, found = _selected(keys, k, largest)
    return keys, order.gather(1, found)


OPERATORS: dict[str, Callable[..., Any]] = {
    "sort.stable": sort,
    "sort.values_stable": into(sort, "values", "indices", casts=False),
    "topk": topk,
    "topk.values": into(topk, "values", "indices", casts=False),
}
"""Implementations by aten name."""
