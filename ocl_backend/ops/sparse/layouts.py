"""Registers sparse tensors, of coordinates and by rows or columns, for the device.

Most of torch's kernels for them only call operators on indices and values; those serve here, too.
Kernels that read memory are replaced by ours, or run on the CPU and are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.errors import SPARSE_COLUMNS, SPARSE_ROWS
from ocl_backend.dispatch.fallback import on_cpu, serving
from ocl_backend.fusion import recall
from ocl_backend.ops.sparse import coordinates
from ocl_backend.ops.sparse.conversions import on_any_device
from ocl_backend.runtime import overloads

READS_MEMORY = {
    "SparseCPU": {
        *("bmm", "hspmm", "sspaddmm", "index_select", "_sparse_mask_projection"),
        *("_sparse_softmax", "_sparse_softmax_backward_data", "_sparse_log_softmax"),
        *("_sparse_log_softmax_backward_data", "_sparse_sum_backward", "_sparse_sparse_matmul"),
    },
    "SparseCsrCPU": {
        *("_sparse_csr_sum", "_sparse_csr_prod"),
        *("_sparse_mm_reduce_impl_backward", "sparse_sampled_addmm"),
    },
}
"""Operators whose kernels for the CPU look at items themselves, by the key they are under."""
BLOCKS = (torch.sparse_bsr, torch.sparse_bsc)
OF_TWO = ("mul", "mul_")
"""Operators whose kernels do so if both operands are sparse."""

WIDER = {torch.bool: torch.uint8, torch.complex32: torch.complex64}
"""Dtypes in which the CPU has no product of two, or rounds each step -> one that serves instead."""

CONVERSIONS = {
    "_to_sparse": None,
    **{
        f"_to_{str(layout).removeprefix('torch.')}": layout
        for layout in (*SPARSE_ROWS, *SPARSE_COLUMNS)
    },
}
"""Operators whose kernels do so where compressed rows become columns, or columns rows; and the
layout that they make, None: the one that a call names."""

KEYS: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    "SparseCPU": ("SparsePrivateUse1", coordinates.OPERATORS),
    "SparseCsrCPU": ("SparseCsrPrivateUse1", coordinates.BY_ROWS),
}
"""The device's key beside that of the CPU, and what is ours under it."""

_kept: list[Any] = []


def register() -> None:
    """Register all that torch has for sparse tensors of the CPU."""
    new: Any = torch.library.Library  # torch types neither the class nor its methods
    aten, others = new("aten", "IMPL"), new("_", "IMPL")
    _kept.extend((aten, others))
    view = partial(on_any_device, torch.ops.aten._nested_view_from_buffer.default, "CPU")
    aten.impl("_nested_view_from_buffer", view, "PrivateUse1")  # of gradients of jagged attention
    for theirs, (ours, kernels) in KEYS.items():
        others.fallback(_on_cpu, ours)
        named = (name.partition("aten::")[2] for name in overloads.registered(theirs))
        names = {*filter(None, named)}
        for name in sorted(names | kernels.keys()):
            if name in kernels or name.partition(".")[0] not in READS_MEMORY[theirs]:
                make = partial(_kernel, name, theirs, kernels.get(name))
                recall.register(f"aten::{name}", make, ours)


def _kernel(name: str, key: str, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return what serves an operator of sparse tensors.

    Args:
        name: the overload's.
        key: the CPU's.
        own: our implementation, where there is one.
    """
    base, served = name.partition(".")[0], overloads.overload(f"aten::{name}")
    if own is not None:
        kernel = serving(served, own)
    elif base == "_sparse_mm_reduce_impl":
        kernel = _reduced_products
    elif base == "triangular_solve":
        kernel = partial(_solved, served)
    elif base in OF_TWO:
        kernel = _unless_two(served, key)
    elif base in CONVERSIONS and key == "SparseCsrCPU":
        kernel = _unless_turned(served, key, CONVERSIONS[base])
    else:
        kernel = partial(on_any_device, served, key)
    return _given_tensors(served, kernel)


def _on_cpu(overload: Any, *args: Any, **kwargs: Any) -> Any:
    return on_cpu(overload, args, kwargs)


def _given_tensors(overload: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return `kernel` with tensors for the numbers that torch hands to Python in their place."""

    @cache
    def places() -> list[int]:  # at the first call: to read 299 schemas takes 0.1 s
        of = [i for i, a in enumerate(overload._schema.arguments) if str(a.type) == "Tensor"]
        return of if len(of) > 1 else []

    def call(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        for i in places():
            if i < len(given) and not isinstance(given[i], Tensor):
                dtype = torch.result_type(given[0], given[i])
                given[i] = torch.scalar_tensor(given[i], dtype=dtype)
        return kernel(*given, **kwargs)

    return call


def _unless_turned(overload: Any, key: str, made: torch.layout | None) -> Callable[..., Any]:
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        wanted = made or kwargs.get("layout")
        rows_turn = x.layout in SPARSE_ROWS and wanted in SPARSE_COLUMNS
        columns_turn = x.layout in SPARSE_COLUMNS and wanted in SPARSE_ROWS
        if rows_turn or columns_turn:
            return on_cpu(overload, (x, *args), kwargs)
        return on_any_device(overload, key, x, *args, **kwargs)

    return call


def _reduced_products(x: Tensor, y: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """Return reduced products of rows, and the positions of extremes, made on the CPU.

    torch's kernel leaves out the positions where no operand wants a gradient, and that of the
    gradient reads them all the same. So a twin on the CPU wants what its original does.
    """
    overload: Any = torch.ops.aten._sparse_mm_reduce_impl.default
    torch.ops.ocl.note_fallback(overload.name())
    twins = [one.cpu().detach().requires_grad_(one.requires_grad) for one in (x, y)]
    out, positions = overload(*twins, reduce)
    return out.detach().to(y.device), positions.to(y.device)


def _solved(
    overload: Any,
    right: Tensor,
    a: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    **outs: Tensor,
) -> tuple[Tensor, Tensor]:
    """Solve triangular systems: those of rows on the CPU, those of blocks as dense ones.

    torch's tests do not ask its CPU for blocks of lower systems, since it may crash, nor with a
    diagonal of ones, since it is wrong.

    Args:
        overload: of the operator.
        right: right-hand sides [n, k].
        a: the system [n, n], compressed.
        upper: whether the upper triangle counts.
        transpose: whether `a` is transposed.
        unitriangular: whether the diagonal is taken to be ones.
        outs: what results are written to, by their names in the overload: X, M.
    """
    how = (upper, transpose, unitriangular)
    if a.layout not in BLOCKS or not a._nnz():
        solved: tuple[Tensor, Tensor] = on_cpu(overload, (right, a, *how), outs)
        return solved
    dense = a.to_dense()
    left = dense.mT if transpose else dense
    solution = torch.linalg.solve_triangular(
        left, right, upper=upper != transpose, unitriangular=unitriangular
    )
    if not outs:
        return solution, right.new_empty(0)
    if outs["X"].shape != solution.shape:
        outs["X"].resize_(solution.shape)
    return outs["X"].copy_(solution), outs["M"]


def _unless_two(overload: Any, key: str) -> Callable[..., Any]:
    def call(x: Tensor, y: Tensor | float, **kwargs: Any) -> Any:
        is_sparse = isinstance(y, Tensor) and y.layout in coordinates.SPARSE
        if isinstance(y, Tensor) and is_sparse and x.layout in coordinates.SPARSE:
            dtype = torch.result_type(x, y)
            if dtype in WIDER and overload is torch.ops.aten.mul.Tensor:
                wide = [operand.to(WIDER[dtype]) for operand in (x, y)]
                product: Tensor = on_cpu(overload, wide, kwargs)
                return product.to(dtype)
            return on_cpu(overload, (x, y), kwargs)
        return on_any_device(overload, key, x, y, **kwargs)

    return call
