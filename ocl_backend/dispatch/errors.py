"""The error of a failed call: the one that the CPU raises for the same call.

Kernels refuse wrong calls with a short message. Only after a failure, this module asks the CPU for
torch's own words. Which dtypes are refused is `accepted`'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ocl_backend.runtime import shim
from oclgen.opencl.device import BuildError, LaunchError

OF_THE_DEVICE = (torch.OutOfMemoryError, torch.AcceleratorError, BuildError, LaunchError)
"""Errors of which the CPU knows nothing."""

MOST_ITEMS = 1 << 22
"""Larger calls are judged by their shapes alone, on torch's meta device."""

NO_KERNEL = "not implemented for"
"""Part of torch's message for a dtype without a kernel."""

ASKED = {"aten::convolution_overrideable": torch.ops.aten.convolution.default}
"""The CPU's operator of the same arguments, where torch has one for devices of others alone."""


def _always(given: dict[str, Any]) -> bool:
    return True


def _has_no_bag(given: dict[str, Any]) -> bool:
    return bool(given["offsets"].numel() <= given.get("include_last_offset", False))


UNASKED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "aten::_convert_weight_to_int4pack": _always,
    "aten::_embedding_bag": _has_no_bag,
    "aten::_embedding_bag_forward_only": _has_no_bag,
    "aten::_int_mm": _always,
    "aten::_weight_int4pack_mm": _always,
    "aten::_weight_int8pack_mm": _always,
}
"""Calls, by an operator's name and the arguments, that end the process on the CPU: its kernels of
packed weights read whole vectors (torch 2.11 with AVX-512), and that of bags' maxima writes an
index's bag where there is none. These operators check their operands themselves."""

INDEXING = ("aten::index", "aten::_index_put_impl_")
"""Operators whose positions may lie on the CPU beside a tensor of the device, not the reverse."""

SPARSE_ROWS = (torch.sparse_csr, torch.sparse_bsr)
SPARSE_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def as_the_cpu_tells(
    overload: Any, args: Sequence[Any], kwargs: dict[str, Any], error: Exception
) -> Exception:
    """Return what torch would raise for a call that raised `error`, or `error` itself.

    Tensors on several devices come first: whatever went wrong, that is why; but an index may lie on
    the CPU, and be wrong.

    Args:
        overload: the operator that was called.
        args: of the call, tensors on the device among them.
        kwargs: of the call.
        error: what the kernel raised.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    written = {id(kwargs.get(a.name)) for a in overload._schema.arguments if a.is_out}
    # a CPU tensor without dimensions passes for a number where it is read
    places = [x.device for x in tensors if x.dim() or not x.is_cpu or id(x) in written]
    found = dict.fromkeys(places)
    if len(found) > 1 and not isinstance(error, IndexError):
        first, second = list(found)[:2]
        if overload._schema.name in INDEXING and _is_index_elsewhere(*args[:2]):
            return RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({args[0].device}). Move them with .to()."
            )
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}! (when calling {overload.name()}) Move them with .to()."
        )
    if isinstance(error, OF_THE_DEVICE):
        return error
    lists = (list, tuple)
    args = [[_with_values(x) for x in arg] if isinstance(arg, lists) else arg for arg in args]
    theirs = raised(overload, args, kwargs, MOST_ITEMS)
    # an operator that torch has for devices of others alone says so on the CPU
    lacks = isinstance(theirs, NotImplementedError) and NO_KERNEL not in str(theirs)
    beside = lacks > isinstance(error, NotImplementedError)
    return error if theirs is None or beside else theirs


def _is_index_elsewhere(x: Tensor, indices: Sequence[Tensor | None]) -> bool:
    """Say whether an index is neither on the CPU nor on the device of x."""
    return any(i is not None and not i.is_cpu and i.device != x.device for i in indices)


def raised(
    overload: Any, args: Sequence[Any], kwargs: dict[str, Any], most: int, as_given: bool = False
) -> Exception | None:
    """Return what a call raises, without a trace of it in warnings or random numbers.

    Of `UNASKED` calls nothing is known.

    Args:
        overload: the operator.
        args: of the call.
        kwargs: of the call.
        most: calls of more items are made on torch's meta device, others on the CPU.
        as_given: with these tensors, which lie on the CPU, and not with stand-ins.
    """
    arguments = overload._schema.arguments
    unasked = UNASKED.get(overload._schema.name)
    names = (argument.name for argument in arguments)
    if unasked is not None and unasked(dict(zip(names, args, strict=False)) | kwargs):
        return None
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    place = "cpu" if sum(map(Tensor.numel, tensors)) <= most else "meta"
    args = [as_declared(*pair, tensors) for pair in zip(arguments, args, strict=False)]
    if not as_given:
        args, kwargs = tree_map(lambda leaf: _twin(leaf, place), (args, kwargs))
    with _hushed(), torch.random.fork_rng([]):
        try:
            ASKED.get(overload._schema.name, overload)(*args, **kwargs)
        except Exception as error:  # whatever the CPU raises is the answer
            return error
    return None


@contextmanager
def _hushed() -> Iterator[None]:
    """Drop what C++ warns of in this thread: torch would show it when the program's call returns.

    Filters of Python are then those of the program again, and are no thread's own anyway.
    """
    library = shim.library()
    library.ocl_hush.restype = ctypes.c_void_p
    before = ctypes.c_void_p(library.ocl_hush())
    try:
        yield
    finally:
        library.ocl_heed(before)


def as_declared(argument: Any, value: Any, tensors: Sequence[Tensor]) -> Any:
    """Return a tensor for a number that torch hands to Python in its place.

    Args:
        argument: of the operator's schema.
        value: what was given for it.
        tensors: of the call, whose dtypes decide that of a number.
    """
    if str(argument.type) != "Tensor" or not isinstance(value, int | float | complex):
        return value
    like = tensors[0] if tensors else torch.empty(0)
    dtype = torch.bool if isinstance(value, bool) else torch.result_type(like, value)
    try:
        return torch.scalar_tensor(value, dtype=dtype)
    except RuntimeError:  # a number beyond the tensors' dtype, which is cut as it is computed with
        return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)


def _twin(leaf: Any, place: str) -> Any:
    """Return the stand-in for an argument on `place`: tensors keep all but their values.

    Reading those would wait for the device. Integers are 0, which is an index of most tensors.
    """
    if isinstance(leaf, torch.device):
        return torch.device(place)
    if isinstance(leaf, torch.Generator):
        return None
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.is_cpu and leaf.dtype is torch.bool:
        return leaf.to(place, copy=True)
    if leaf.layout is not torch.strided:
        return _sparse_twin(leaf, place)
    if not leaf.numel():
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=place)
    reach = sum((size - 1) * step for size, step in zip(leaf.shape, leaf.stride(), strict=True))
    make = torch.ones if leaf.is_floating_point() else torch.zeros
    made = make(reach + 1, dtype=leaf.dtype, device=place)
    return with_plain_strides(made.as_strided(leaf.shape, leaf.stride()))


def with_plain_strides(x: Tensor) -> Tensor:
    """Return x as a view where a single item is as far away as what lies within its dimension.

    A transpose leaves any number there. The CPU's `linalg.lu_solve` steps from one matrix of a
    batch to the next by it (torch 2.13), which ends the process.
    """
    strides, reach = [*x.stride()], 1
    for dim in range(x.dim() - 1, -1, -1):
        if x.shape[dim] == 1:
            strides[dim] = reach
        reach = max(reach, x.shape[dim] * strides[dim])
    return x if strides == [*x.stride()] else x.as_strided(x.shape, strides)


def _with_values(index: Any) -> Any:
    """Return a mask among indices on the CPU: how many items it chooses is part of a shape."""
    is_mask = isinstance(index, Tensor) and index.dtype is torch.bool
    return index.cpu() if is_mask and index.numel() <= MOST_ITEMS else index


def _sparse_twin(leaf: Tensor, place: str) -> Tensor:
    """Return a sparse tensor's twin: of coordinates as many items, of rows or columns none."""
    if leaf.layout in SPARSE_ROWS or leaf.layout in SPARSE_COLUMNS:
        by_rows = leaf.layout in SPARSE_ROWS
        starts = leaf.crow_indices() if by_rows else leaf.ccol_indices()
        numbers = leaf.col_indices() if by_rows else leaf.row_indices()
        items = [part.narrow(numbers.dim() - 1, 0, 0) for part in (numbers, leaf.values())]
        start, number, value = (_twin(part, place) for part in (starts, *items))
        return torch.sparse_compressed_tensor(start, number, value, leaf.shape, layout=leaf.layout)
    index, value = (_twin(part, place) for part in (leaf._indices(), leaf._values()))
    made = torch.sparse_coo_tensor(index, value, leaf.shape, check_invariants=False)
    return made._coalesced_(leaf.is_coalesced())
