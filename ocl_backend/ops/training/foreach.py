"""The `_foreach_*` operators: one operator of each tensor of a list, many tensors in one launch.

Optimizers and `clip_grad_norm_` are made of them. What is computed is a row of the table of
pointwise operators, so that a list has the bits of its tensors one by one. Lists that lie in
several orders, share memory or have several dtypes are taken one tensor at a time, as torch does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ocl_backend.dtypes import FLOATS_16, encode, rounded
from ocl_backend.kernels.elementwise import Kernel
from ocl_backend.kernels.list_norms import norms_of
from ocl_backend.kernels.pointwise_table import POWERS, ROUNDED
from ocl_backend.kernels.tensor_lists import FLOATS, are_alike, copy_all, run_on_tensors
from ocl_backend.ops.math.pointwise_kernels import Call, kernel_for
from ocl_backend.runtime.overloads import OfOverload, labels

UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "zero"),
)
OTHERS = "add", "sub", "mul", "div", "pow", "lerp", "addcmul", "addcdiv", "clamp_min", "clamp_max"
ROWS = {name: name for name in (*UNARY, *OTHERS)} | {"maximum": "clamp_min", "minimum": "clamp_max"}
"""By the operator's name after `_foreach_`: the operator of each tensor."""
ANY_NUMBER = 0.3
"""Stands for a number that has no text of its own."""
BY_NAME = "alpha", "value"
"""Arguments of those operators that are given by name."""


@dataclass(frozen=True, slots=True)
class ListCall:
    """An overload: the operator `one` of each tensor, as `single` describes it.

    `names` and `defaults` are those of the list's arguments, in the order of the operator's, and
    `kinds` say what they are: "tensors", "numbers", "tensor" or "number".
    """

    one: Any
    single: Call
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    defaults: tuple[Any, ...]

    @staticmethod
    def of(row: str, overload: torch._ops.OpOverload) -> ListCall:
        """Read the schema of an overload that takes the operator `row` of each tensor."""
        arguments = overload._schema.arguments
        packet = getattr(torch.ops.aten, row + "_" * overload._schema.name.endswith("_"))
        label = next(name for name in ("Tensor", "default", "Scalar") if name in packet.overloads())
        return ListCall(
            packet,
            Call.of(row, getattr(packet, label)),
            tuple(argument.name for argument in arguments),
            tuple(_kind(str(argument.type)) for argument in arguments),
            tuple(a.default_value if a.has_default_value() else None for a in arguments),
        )

    def implementation(self) -> Callable[..., list[Tensor] | None]:
        """Return the function that serves the overload."""

        def run(*args: Any, **kwargs: Any) -> list[Tensor] | None:
            rest = zip(self.names[len(args) :], self.defaults[len(args) :], strict=True)
            given = [*args, *(kwargs.get(name, default) for name, default in rest)]
            check_lists(given, self.kinds)
            made = _at_once(self, given)
            if made is None:
                made = _one_by_one(self, given)
            return None if self.single.in_place else made

        return run


def _kind(name: str) -> str:
    return ("tensor" if "Tensor" in name else "number") + "s" * name.startswith("List[")


def check_lists(given: Sequence[Any], kinds: Sequence[str]) -> None:
    """Refuse what torch refuses: no tensor at all, lists of several lengths, a number with shape.

    Args:
        given: a call's arguments; the first is a list.
        kinds: what they are.

    Raises:
        RuntimeError: it is refused.
    """
    count = len(given[0])
    if not count:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for kind, value in zip(kinds, given, strict=False):
        if kind.endswith("s") and len(value) != count:
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {count} and {len(value)}"
            )
        if kind == "tensor" and (value.dim() or value.numel() != 1):
            raise RuntimeError(
                f"scalar tensor expected to be 0 dim but it has {value.dim()} dimensions and "
                f"{value.numel()} elements."
            )


def _one_by_one(call: ListCall, given: Sequence[Any]) -> list[Tensor]:
    """Call the operator of each tensor."""
    results = []
    for i in range(len(given[0])):
        row = [v[i] if kind.endswith("s") else v for kind, v in zip(call.kinds, given, strict=True)]
        named = dict(zip(call.single.arguments, row, strict=False))
        by_name = {name: named.pop(name) for name in BY_NAME if name in named}
        results.append(call.one(*named.values(), **by_name))
    return results


def _at_once(call: ListCall, given: Sequence[Any]) -> list[Tensor] | None:
    """Run a call by as few launches as there can be; None: its tensors cannot be one launch."""
    lists = [v for kind, v in zip(call.kinds, given, strict=True) if kind == "tensors"]
    dtype, device = lists[0][0].dtype, lists[0][0].get_device()
    if dtype not in FLOATS or not are_alike(lists, device, [dtype] * len(lists)):
        return None
    once = [v for kind, v in zip(call.kinds, given, strict=True) if kind == "tensor"]
    if call.single.in_place and share_memory(lists, once):
        return None
    numbers = {v.dtype for v in once}
    if numbers - {dtype} and not all(tensor.dim() for tensor in lists[0]):
        return None  # without dimensions, too, a tensor takes part in the choice of a dtype
    forms = [_form(kind, value) for kind, value in zip(call.kinds, given, strict=True)]
    kernel = None if None in forms else _kernel(call.single, dtype, tuple(forms))
    if kernel is None:
        return None
    take = _number(kernel.value, dtype if call.single.row in ROUNDED else None)
    used = {parameter.name for parameter in kernel.parameters}
    shared: dict[str, float] = {}
    columns: list[Sequence[float]] = []
    for name, kind, value in zip(call.single.arguments, call.kinds, given, strict=False):
        if name not in used:
            continue
        if kind == "tensors":
            columns.append([tensor.data_ptr() for tensor in value])
        elif kind == "numbers":
            columns.append([take(item) for item in value])
        elif isinstance(value, Tensor):
            shared[name] = take(value.item()) if value.get_device() < 0 else value.data_ptr()
        else:
            shared[name] = take(value)
    results: list[Tensor] = [*lists[0]]
    if not call.single.in_place:
        results = [torch.empty_like(tensor) for tensor in lists[0]]
        columns.append([tensor.data_ptr() for tensor in results])
    run_on_tensors(device, kernel, shared, lists[0], columns)
    if call.single.in_place:
        increment_version(lists[0])  # torch does so in its kernels of lists, not around them
    return results


def share_memory(lists: Sequence[Sequence[Tensor]], shared: Sequence[Tensor] = ()) -> bool:
    """Say whether a row reads or writes memory that another row writes, one of the first list.

    A row may read what it writes, if it reads exactly that.

    Args:
        lists: of tensors without gaps; the first ones are written.
        shared: tensors that all rows read.
    """
    written = sorted((*_reach(x), row) for row, x in enumerate(lists[0]) if x.numel())
    if any(end > start for (_, end, _), (start, _, _) in pairwise(written)):
        return True
    starts = [start for start, _, _ in written]
    read = [(*_reach(x), row) for xs in lists[1:] for row, x in enumerate(xs) if x.numel()]
    for one in (*read, *((*_reach(x), -1) for x in shared)):
        before = bisect_left(starts, one[1])  # of those, only the last one can reach into it
        if before and written[before - 1][1] > one[0] and written[before - 1] != one:
            return True
    return False


def _reach(x: Tensor) -> tuple[int, int]:
    """Return where a tensor without gaps begins and ends."""
    return x.data_ptr(), x.data_ptr() + x.nbytes


def _form(kind: str, value: Any) -> Any:
    """Return what a kernel depends on of an argument; None: there is no kernel for it."""
    if kind == "tensors":
        return kind
    if kind == "tensor":
        return value.dtype if value.is_floating_point() else None
    numbers = value if kind == "numbers" else (value,)
    if any(isinstance(number, complex) for number in numbers):
        return None
    return value if kind == "number" and value in POWERS else kind


@lru_cache(maxsize=1024)
def _kernel(call: Call, dtype: torch.dtype, forms: tuple[Any, ...]) -> Kernel | None:
    """Return what a call computes of one row; None: not in the dtype of its tensors."""
    bound: dict[str, Any] = dict.fromkeys(call.arguments)
    for name, form in zip(call.arguments, forms, strict=False):
        if form == "tensors":
            bound[name] = torch.empty(2, dtype=dtype, device="meta")
        elif isinstance(form, torch.dtype):
            bound[name] = torch.empty((), dtype=form, device="meta")
        elif name not in BY_NAME or form != 1:
            bound[name] = ANY_NUMBER if isinstance(form, str) else float(form)
    return kernel_for(call, bound, dtype)


def _number(value: str, rounding: torch.dtype | None) -> Callable[[float], float]:
    """Return what makes a launch's value of a number; some are rounded to a dtype of 16 bits."""
    if rounding in FLOATS_16:
        return lambda number: encode(value, rounded(rounding, number))
    return lambda number: encode(value, number)


def copy_(tensors: Sequence[Tensor], sources: Sequence[Tensor], non_blocking: bool = False) -> None:
    """Copy each source to a tensor of its shape, of another dtype, too."""
    check_lists((tensors, sources), ("tensors", "tensors"))
    target, source = tensors[0], sources[0]
    lists = [tensors, sources]
    if (
        target.get_device() < 0
        or not {target.dtype, source.dtype} <= {*FLOATS}
        or not are_alike(lists, target.get_device(), [target.dtype, source.dtype])
        or share_memory(lists)
    ):
        for tensor, one in zip(tensors, sources, strict=True):
            tensor.copy_(one, non_blocking=non_blocking)
        return
    copy_all(sources, tensors)
    increment_version([*tensors])


def norm(
    tensors: Sequence[Tensor], order: float = 2, dtype: torch.dtype | None = None
) -> list[Tensor]:
    """Return the norm of each tensor: of all by two launches, if they have one dtype."""
    check_lists((tensors,), ("tensors",))
    first = tensors[0]
    alike = first.dtype in FLOATS and all(
        x.dtype is first.dtype and x.device == first.device and x.numel() and x.is_contiguous()
        for x in tensors
    )
    if not alike or order not in (1, 2):
        return [torch.linalg.vector_norm(x, order, dtype=dtype) for x in tensors]
    sizes = [x.numel() for x in tensors]
    places = [x.data_ptr() for x in tensors]
    out = torch.empty(len(tensors), dtype=dtype or first.dtype, device=first.device)
    norms_of(first.dtype, int(order), sizes, places, out)
    return [*out.unbind()]


def _operators() -> dict[str, OfOverload]:
    """Return an implementation for each overload of lists, and of a list and a number."""
    found: dict[str, OfOverload] = {}
    for name, row in ROWS.items():
        for form in (f"_foreach_{name}", f"_foreach_{name}_"):
            for label in labels(f"aten::{form}"):
                if label in ("", "List", "Scalar", "ScalarList") or (
                    label == "Tensor" and row in ("add", "mul", "div")
                ):
                    found[f"{form}.{label}" if label else form] = OfOverload(partial(_served, row))
    return found


def _served(row: str, overload: Any) -> Callable[..., Any]:
    return ListCall.of(row, overload).implementation()


OPERATORS = {**_operators(), "_foreach_copy_": copy_, "_foreach_norm.Scalar": norm}
"""Implementations by aten name."""
