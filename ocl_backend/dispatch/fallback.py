"""Operators that run on the CPU because no kernel serves them, and how often.

Calls of operators without any kernel are made by the shim, those whose kernel lacks the dtype by
`serving`. Nothing here decides which operators have kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ocl_backend.dispatch.accepted import acceptance
from ocl_backend.dispatch.complex_half import ComplexHalfError, in_complex64
from ocl_backend.dispatch.errors import as_declared, as_the_cpu_tells
from ocl_backend.dtypes import CallForTheCpuError
from ocl_backend.runtime import shim


def fallbacks() -> dict[str, int]:
    """Return how often each operator ran on the CPU since the start or the last reset."""
    read = shim.library().ocl_fallback_counts
    read.restype = ctypes.c_char_p
    lines = (line.rsplit(" ", 1) for line in read().decode().splitlines())
    return {name: int(count) for name, count in lines}


def reset_fallbacks() -> None:
    """Forget the counts; every operator warns once again."""
    shim.library().ocl_fallback_reset()


def serving(
    overload: Any, kernel: Callable[..., Any], on_complex: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return `kernel`, replaced by the CPU where it raises `CallForTheCpuError`.

    Complex operands go to `on_complex` if there is one, all others to the CPU. If it raises
    another exception, that of the CPU is raised. It never gets dtypes that the CPU refuses.

    Args:
        overload: the operator that `kernel` serves.
        kernel: takes the operator's arguments.
        on_complex: takes the same; None: complex operands go to the CPU, too.
    """
    check_accepted = acceptance(overload)

    @wraps(kernel)
    def serve(*args: Any, **kwargs: Any) -> Any:
        try:
            check_accepted(args, kwargs)
            return kernel(*args, **kwargs)
        except ComplexHalfError:
            return in_complex64(overload, args, kwargs, _written(overload, args, kwargs))
        except CallForTheCpuError:
            given = tree_leaves((args, kwargs))
            if on_complex and any(isinstance(x, Tensor) and x.is_complex() for x in given):
                return on_complex(*args, **kwargs)
            return on_cpu(overload, args, kwargs)
        except Exception as error:
            told = as_the_cpu_tells(overload, args, kwargs, error)
            if told is error:
                raise
            raise told from error

    return serve


def on_cpu(overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run `overload` on the CPU, with copies both ways, and count it.

    Args:
        overload: the operator.
        args: of the call, a tensor on the device, or the device, among them.
        kwargs: of the call.

    Raises:
        NotImplementedError: `OCLGEN_FALLBACK=error` forbids it.
    """
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    mark = " complex" if any(tensor.is_complex() for tensor in tensors) else ""
    torch.ops.ocl.note_fallback(overload.name() + mark)
    places = [leaf.device if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    device = next(x for x in places if isinstance(x, torch.device) and x.type == "ocl")
    twins = {id(tensor): tensor.cpu() for tensor in tensors}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        return twins[id(leaf)] if isinstance(leaf, Tensor) else leaf

    pairs = zip(overload._schema.arguments, args, strict=False)
    moved = [as_declared(argument, tree_map(move, value), tensors) for argument, value in pairs]
    result = overload(*moved, **tree_map(move, kwargs))
    written = {}
    for target in _written(overload, args, kwargs):
        twin = twins[id(target)]
        if target.layout is torch.strided:
            target.resize_(twin.shape)
        elif target.layout is not torch.sparse_coo:  # torch copies as many items as there are
            target.resize_as_sparse_(twin)
        target.copy_(twin)
        written[id(twin)] = target

    def move_back(leaf: Any) -> Any:
        return written.get(id(leaf), leaf.to(device)) if isinstance(leaf, Tensor) else leaf

    # the CPU's own products have unsorted columns, and are not looked at there
    unchecked: Any = torch.sparse.check_sparse_tensor_invariants  # torch types no part of it
    with unchecked(enable=False):
        return tree_map(move_back, result)


def _written(overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that a call writes to."""
    arguments = overload._schema.arguments
    named = {**dict(zip((a.name for a in arguments), args, strict=False)), **kwargs}
    changed = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    return [leaf for leaf in tree_leaves([named.get(name) for name in changed]) if leaf is not None]
