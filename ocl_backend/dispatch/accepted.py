"""Which dtypes and numbers an operator takes: those that the CPU takes.

They differ from operator to operator without a rule. So the CPU is asked once for each form of a
call: its dtypes, options and the range of its numbers. A call of a known form costs one look-up,
and one that the shim recalls costs nothing. Forms are kept for later processes (`known_forms`).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ocl_backend.dispatch import known_forms
from ocl_backend.dispatch.complex_half import (
    ROUNDED_ONCE,
    ComplexHalfError,
    has_halves,
    is_lacking,
)
from ocl_backend.dispatch.errors import NO_KERNEL, raised, with_plain_strides

MOST_ITEMS = 1 << 13
"""Larger calls are judged by their shapes alone, on torch's meta device, and by a small call: the
CPU computes what it is asked, and two vectors of this length can broadcast to a matrix."""

MOST_MADE = 1 << 17
"""The same for the items times the largest number, which may be a size of the result."""

MOST_COPIED = 1 << 24
"""The same for calls that meta refuses, which are then made on the CPU with their own values."""

MOST_FORMS = 4096
"""Bound of the forms remembered per overload; above it all are forgotten."""

SMALL = 4
"""Sizes and numbers of the small call."""

OF_DTYPES = NO_KERNEL, "without overflow", "dtype"
"""Parts of torch's messages for dtypes without a kernel, numbers beyond one, and unlike ones."""

GRADIENTS = "_backward", "_backward_overrideable"
"""Ends of names of operators that compute gradients; the second is for devices like this one."""

LACKING = "Could not run '", "with Meta tensors", "_overrideable"
"""Parts of messages of a `NotImplementedError` where the CPU or the meta device lacks an operator,
or leaves it to devices like this one. Torch 2.14 refuses calls by the same exception."""

NORMALISING = "native_batch_norm", "_batch_norm_with_update", "_batch_norm_no_update"
"""Operators of batch normalisation with running statistics."""

_LIMITS = (-(2**63), -(2**31), -(2**15), -(2**7), 0, 1, 2**7, 2**8, 2**15, 2**31, 2**63)
"""Numbers between two of these fit the same integer dtypes; 0 is alone, as a size it is refused."""


def acceptance(overload: Any) -> Callable[[Sequence[Any], dict[str, Any]], None]:
    """Return the check of an operator's calls, which raises what the CPU raises for such a form.

    Of a gradient only outputs are checked: its operands are what the forward operator took and
    left, and statistics may have another dtype than the CPU's.

    Args:
        overload: the operator.
    """
    accepted: set[Any] = set()
    widened: set[Any] = set()
    schema, name = overload._schema, overload.name()
    rounds_once = schema.name in ROUNDED_ONCE
    if not schema.name.startswith("aten::"):  # others check what they take themselves
        return _accept
    if schema.name.endswith(GRADIENTS) and not any(a.is_out for a in schema.arguments):
        return _accept

    def check(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        form = tuple(map(_form, args))
        if kwargs:
            form = (form, *kwargs, *map(_form, kwargs.values()))
        if form in widened:
            raise ComplexHalfError(name)
        if form not in accepted:
            if rounds_once and has_halves(args):
                _remember(form, widened)
                raise ComplexHalfError(name)
            if not (known := known_forms.of_user()).has(name, form):
                try:
                    ask(overload, args, kwargs)
                except ComplexHalfError:
                    _remember(form, widened)
                    raise
                known.add(name, form)
            _remember(form, accepted)

    return check


def _remember(form: Any, forms: set[Any]) -> None:
    if len(forms) >= MOST_FORMS:
        forms.clear()
    forms.add(form)


def _accept(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Accept any call."""


def _form(value: Any) -> Any:
    """Return what an argument contributes to whether a call is accepted.

    A call without items takes numbers that others do not, so it is of another form.
    """
    if isinstance(value, Tensor):
        return value.dtype, value.dim() == 0, value.numel() == 0, value.layout
    kind = value.__class__
    if kind is int or kind is float:
        return kind, bisect(_LIMITS, value), value in (torch.inf, -torch.inf), value != value
    if kind is list or kind is tuple:
        return tuple(dict.fromkeys(map(_form, value)))
    return kind if kind in (torch.device, torch.Generator) else value


def ask(overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Make a call of the same form on the CPU.

    Args:
        overload: the operator.
        args: of the call.
        kwargs: of the call.

    Raises:
        ComplexHalfError: the CPU lacks a kernel for complex32.
        Exception: what the CPU raises.
    """
    arguments = overload._schema.arguments
    names = [argument.name for argument in arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    sizes = {a.name: given[a.name] for a in arguments if a.name in given and "int" in str(a.type)}
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    items = sum(map(Tensor.numel, tensors))
    largest = max((abs(leaf) for leaf in tree_leaves(sizes) if type(leaf) is int), default=1)
    is_small = items <= MOST_ITEMS and max(items, 1) * largest <= MOST_MADE
    reads = any(isinstance(leaf, Tensor) for leaf in tree_leaves(args))
    if not reads:  # a range's length is a number, and a matrix has two
        numbers = [abs(leaf) for leaf in tree_leaves(given) if type(leaf) in (int, float)]
        is_small = prod(max(number, 1) for number in numbers) <= MOST_ITEMS
    error = _refusal(overload, args, kwargs, MOST_ITEMS if is_small else -1)
    if error is not None and tensors:
        # the values of the stand-ins may be at fault, or meta; the call's own ones cannot be
        error = None
        if items * largest <= MOST_COPIED:
            own_args, own_kwargs = tree_map(_on_cpu, (args, kwargs))
            error = _refusal(overload, own_args, own_kwargs, MOST_ITEMS, as_given=True)
    if not is_small:
        few = tree_map(_on_cpu, tree_map(_small, given))
        few |= tree_map(_fewer, sizes if reads else few)
        small = _refusal(overload, (), few, MOST_ITEMS, as_given=True)
        if small is not None and any(part in str(small) for part in OF_DTYPES):
            error = small  # others may be of sizes that do not fit each other any more
    if error is not None and is_lacking(tensors, error):
        raise ComplexHalfError(overload.name()) from error
    if error is not None and not _is_taken_here(overload, tensors, error):
        raise error


def _refusal(
    overload: Any, args: Sequence[Any], kwargs: dict[str, Any], most: int, as_given: bool = False
) -> Exception | None:
    """Return what the CPU raises, or meta above `most` items, without warnings of determinism."""
    mode = torch.get_deterministic_debug_mode()
    if mode:
        torch.set_deterministic_debug_mode(0)
    try:
        return raised(overload, args, kwargs, most, as_given)
    finally:
        if mode:
            torch.set_deterministic_debug_mode(mode)


def _counts_integers(tensors: Sequence[Tensor]) -> bool:
    """Say whether `histc` counts integers: a mixture of experts counts its tokens so."""
    return tensors[0].dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _has_wider_statistics(tensors: Sequence[Tensor]) -> bool:
    """Say whether images and weights have 16 bits and statistics 32: FSDP2 leaves buffers as is."""
    x, *params = (tensor.dtype for tensor in tensors)
    half = (torch.float16, torch.bfloat16)
    return x in half and params in ([x, x, torch.float32, torch.float32], [x, *[torch.float32] * 2])


BEYOND = {
    "aten::histc": _counts_integers,
    **{f"aten::{name}": _has_wider_statistics for name in NORMALISING},
}
"""Which calls of an operator are taken beside the CPU's, by their tensors, as on CUDA."""


def _is_taken_here(overload: Any, tensors: Sequence[Tensor], error: Exception) -> bool:
    """Say whether a right call may raise this on the CPU.

    It may lack an operator, or its kernel for 16 bits; and `checks` looks for zero divisors.
    """
    beyond = BEYOND.get(overload._schema.name)
    if beyond is not None and beyond(tensors):
        return True
    text = str(error)
    if isinstance(error, NotImplementedError):
        is_narrow = any(name in text for name in ("'Half'", "'BFloat16'"))
        return any(part in text for part in LACKING) or (NO_KERNEL in text and is_narrow)
    return text.startswith("ZeroDivisionError")


def _on_cpu(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    if isinstance(leaf, torch.Generator):
        return None
    if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
        return with_plain_strides(leaf.cpu())
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf


def _small(leaf: Any) -> Any:
    """Return a tensor of the small call, which lies on the CPU; others as they are."""
    if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
        return torch.ones([min(size, SMALL) for size in leaf.shape], dtype=leaf.dtype)
    return leaf


def _fewer(leaf: Any) -> Any:
    """Return a size of the small call, or a number that a size follows from."""
    return max(-SMALL, min(leaf, SMALL)) if type(leaf) in (int, float) else leaf
