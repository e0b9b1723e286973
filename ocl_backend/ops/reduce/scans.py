"""Cumulative sums, products, extremes and log-sum-exps along one dimension.

Work-items walk chunks one after the other; the chunks' totals are scanned in turn and combined
back in (Blelloch 1990, "Prefix sums and their applications").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import in_dtype_of_out, into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.dimensions import axis_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar, launch
from ocl_backend.ops.reduce import scan_lines, scan_vectors
from ocl_backend.ops.reduce.scan_rows import Scan, scan_rows, serves
from oclgen.opencl.device import devices

COMBINE = {
    "cumsum": "a + b",
    "cumprod": "a * b",
    "logcumsumexp": "a != a || b != b ? a + b : a == b && isinf(a) ? a"
    " : fmax(a, b) + log1p(exp(fmin(a, b) - fmax(a, b)))",
}
NEUTRAL = {"cumsum": "0", "cumprod": "1", "logcumsumexp": "-INFINITY"}

SCAN = """\
T acc = %(neutral)s;
const long first = chunk * chunk_size;
for (long k = first; k < min(first + chunk_size, size); ++k) {
    acc = combine(acc, LOAD_self(self_at + k * self_step));
    STORE_out(out_at + k * out_step, acc);
}
STORE_total(total_at, acc);
"""

COMPLETE = """\
const long chunk = k / chunk_size;
const T out = chunk ? combine(LOAD_total(total_at + (chunk - 1) * total_step), self) : self;
"""


def scan(name: str, x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Return the inclusive scan of x along `dim` in `dtype`."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    axis = axis_of(dim, x.dim())
    if not x.dim() or not x.numel():
        return out.copy_(x)
    size = x.shape[axis]
    if _is_scanned(Scan(COMBINE[name], NEUTRAL[name]), axis, x, out):
        return out
    chunk = _chunk(x, axis)
    shape = list(x.shape)
    shape[axis] = -(-size // chunk)
    total = torch.empty(shape, dtype=dtype, device=x.device)
    value = dtype_of(dtype).value
    helper = f"{value} combine({value} a, {value} b)\n{{\n    return {COMBINE[name]};\n}}"
    kernel = Kernel(
        name,
        value,
        (
            Operand("chunk", role="position"),
            Operand("self", x.dtype, "address"),
            Operand("out", dtype, "address"),
            Operand("total", dtype, "address"),
            *(Scalar(label, "long") for label in ("chunk_size", "size", "self_step", "out_step")),
        ),
        SCAN % {"neutral": NEUTRAL[name]},
        helper,
        scalar_only=True,
    )
    launch(
        kernel,
        shape,
        (x, out, total, chunk, size, x.stride(axis), out.stride(axis)),
        {
            "chunk": _only(axis, x.dim()),
            "self": _without(axis, x),
            "out": _without(axis, out),
            "total": total.stride(),
        },
    )
    return _completed(name, out, total, axis, chunk, helper) if shape[axis] > 1 else out


def _is_scanned(rule: Scan, axis: int, x: Tensor, *results: Tensor) -> bool:
    """Scan x along `axis` by a kernel made for its lines, or say that there is none."""
    limits = devices()[x.get_device()].limits
    size = x.shape[axis]
    if _has_groups(x, axis):
        run = partial(scan_rows, rule)
        _as_rows(
            lambda *rows: run(*(t.view(-1, size) for t in rows)),
            axis,
            x,
            results,
            Tensor.is_contiguous,
        )
    elif scan_lines.serves(rule, x, axis, results[0]):
        scan_lines.scan(rule, axis, x, *results)
    elif limits.kind == "cpu" and (x.stride(axis) == 1 or size > scan_lines.SHORT):
        run = partial(scan_vectors.extremes if rule.better else scan_vectors.scan, rule)
        _as_rows(run, axis, x, results, _has_dense_rows)
    else:
        return False
    return True


def _has_dense_rows(x: Tensor) -> bool:
    return x.stride(-1) == 1


def _as_rows(
    run: Callable[..., None], axis: int, x: Tensor, results: Sequence[Tensor],
    lies: Callable[[Tensor], bool],
) -> None:  # fmt: skip
    """Call `run` with tensors whose lines along `axis` are rows.

    Args:
        run: takes x and the results, which it writes.
        axis: of all of them.
        x: what is read.
        results: what is written.
        lies: says whether `run` takes a tensor of rows as it lies; it gets a dense one else.
    """
    rows, *moved = (t.movedim(axis, -1) for t in (x, *results))
    made = [t if lies(t) else torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in moved]
    run(rows if lies(rows) else rows.contiguous(), *made)
    for target, each in zip(moved, made, strict=True):
        if each is not target:
            target.copy_(each)


def _completed(name: str, out: Tensor, total: Tensor, axis: int, chunk: int, helper: str) -> Tensor:
    """Combine every chunk except the first with the chunks before it, in place."""
    before = scan(name, total, axis, out.dtype)
    kernel = Kernel(
        f"{name}_complete",
        dtype_of(out.dtype).value,
        (
            Operand("k", role="position"),
            Operand("self", out.dtype, "inout", result="out"),
            Operand("total", out.dtype, "address"),
            Scalar("chunk_size", "long"),
            Scalar("total_step", "long"),
        ),
        COMPLETE,
        helper,
        scalar_only=True,
    )
    strides = {"k": _only(axis, out.dim()), "total": _without(axis, before)}
    launch(kernel, out.shape, (out, before, chunk, before.stride(axis)), strides)
    return out


def _has_groups(x: Tensor, axis: int) -> bool:
    """Say whether groups of a GPU scan x: along dense rows, or where lines are few."""
    limits = devices()[x.get_device()].limits
    if not serves(limits):
        return False
    is_dense = axis == x.dim() - 1 and x.is_contiguous()
    return is_dense or x.numel() // x.shape[axis] < vectors.busy_items(limits)


def _chunk(x: Tensor, axis: int) -> int:
    """Return how many items one work-item walks: all, if there are lines enough for the device."""
    limits = devices()[x.get_device()].limits
    lines = x.numel() // x.shape[axis]
    enough = vectors.busy_items(limits)
    if lines >= enough:
        return x.shape[axis]
    return 4096 if limits.kind == "cpu" else 128


def _only(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(int(dim == axis) for dim in range(rank))


def _without(axis: int, x: Tensor) -> tuple[int, ...]:
    return tuple(0 if dim == axis else step for dim, step in enumerate(x.stride()))


def _dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    dtype_of(x.dtype)  # refuses complex numbers, whose operators are others, also where none are
    return dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)


def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Cumulative sum; integers and bools as int64."""
    return scan("cumsum", x, dim, _dtype(x, dtype))


def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Cumulative product; integers and bools as int64."""
    return scan("cumprod", x, dim, _dtype(x, dtype))


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Return the log of the cumulative sum of exponentials."""
    return scan("logcumsumexp", x, dim, x.dtype)


EXTREME = """\
T best = LOAD_self(self_at);
long where = 0;
for (long k = 0; k < size; ++k) {
    const T x = LOAD_self(self_at + k * self_step);
    if (x != x || (best == best && x %(better)s best)) {
        best = x;
        where = k;
    }
    STORE_values(values_at + k * values_step, best);
    STORE_indices(indices_at + k * indices_step, where);
}
"""


def _extreme_helper(name: str, better: str) -> Callable[[Tensor, Tensor, Tensor, int], None]:
    """Return torch's helper of cummax or cummin: it fills `values` and `indices`."""
    rule = Scan("", "0", better)

    def helper(x: Tensor, values: Tensor, indices: Tensor, dim: int) -> None:
        axis = axis_of(dim, x.dim())
        if x.numel() and x.dim() and _is_scanned(rule, axis, x, values, indices):
            return
        shape = [1 if d == axis else size for d, size in enumerate(x.shape)]
        steps = ("size", "self_step", "values_step", "indices_step")
        kernel = Kernel(
            name,
            dtype_of(x.dtype).value,
            (
                Operand("self", x.dtype, "address"),
                Operand("values", values.dtype, "address"),
                Operand("indices", indices.dtype, "address", "long"),
                *(Scalar(label, "long") for label in steps),
            ),
            EXTREME % {"better": better},
            scalar_only=True,
        )
        tensors = {"self": x, "values": values, "indices": indices}
        numbers = (x.shape[axis], *(tensor.stride(axis) for tensor in tensors.values()))
        walked = {label: _without(axis, tensor) for label, tensor in tensors.items()}
        launch(kernel, shape, (*tensors.values(), *numbers), walked)

    return helper


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, dim, *, dtype=None: x.copy_(function(x, dim, dtype=dtype))


OPERATORS: dict[str, Callable[..., Any]] = {
    "cumsum": cumsum,
    "cumsum_": _in_place(cumsum),
    "cumsum.out": in_dtype_of_out(cumsum),
    "cumprod": cumprod,
    "cumprod_": _in_place(cumprod),
    "cumprod.out": in_dtype_of_out(cumprod),
    "_logcumsumexp": logcumsumexp,
    "_logcumsumexp.out": into(logcumsumexp),
    "_cummax_helper": _extreme_helper("cummax", ">="),
    "_cummin_helper": _extreme_helper("cummin", "<="),
}
"""Implementations by aten name."""
