"""What torch refuses of pointwise operators for more than their dtypes: shared memory, values.

`dimensions` checks shapes, and `accepted` asks the CPU for dtypes. Nothing is computed here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.settings import SYNC_ERRORS

Apart = tuple[tuple[int, int, int, bool], ...]
ONE_VALUE = ("fill", "zero", "masked_fill")
"""Operators that write one value."""
MASKS = {
    "masked_fill": ("mask", (torch.bool,)),
    "where": ("condition", (torch.bool, torch.uint8)),
}
"""Which operand of an operator is a mask, and the dtypes that torch takes for it."""
DIVISIONS = ("floor_divide", "remainder", "fmod")
"""Operators that the CPU refuses for integers where a divisor is 0."""
BY_VALUE = ("pow", "softshrink", "leaky_relu_backward", "elu_backward", *DIVISIONS)
"""Rows whose numbers are checked in each call: plans are kept for calls with other numbers."""

WHOLE = (torch.int64, torch.int32)
"""Dtypes of positions."""
LONG_ONLY = ("index_copy", "index_fill", "take", "put")
"""Operators that take positions of int64 alone."""


def check_written(name: str, out: Tensor) -> None:
    """Refuse an output of which several items share one place in memory.

    Args:
        name: of the operator.
        out: the output.

    Raises:
        RuntimeError: they do.
    """
    if share_places(out):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            f"single memory location: {name} of shape {tuple(out.shape)} and strides "
            f"{out.stride()}. Please clone() the tensor before performing the operation."
        )


def share_places(x: Tensor) -> bool:
    """Say whether several items of a tensor share one place in memory, as those of expanded ones.

    Args:
        x: any tensor.
    """
    steps = zip(x.shape, x.stride(), strict=True)
    return x.numel() > 0 and any(size > 1 and stride == 0 for size, stride in steps)


def warn_of_expanded(name: str, frames: int) -> None:
    """Warn, in torch's words, that an operator writes to an expanded tensor.

    Args:
        name: of the operator.
        frames: between this function and the operator's caller.
    """
    warnings.warn(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before "
        "performing this operation.",
        stacklevel=frames + 2,
    )


def check_rows(name: str, places: tuple[int, ...], source: Tensor) -> None:
    """Refuse a source that has not an item for each place; a single one may have no dimensions.

    Args:
        name: of the operator.
        places: their shape.
        source: what is written there, or added.

    Raises:
        RuntimeError: it has not.
    """
    if tuple(source.shape) != places and not prod(places) == source.numel() == 1:
        raise RuntimeError(f"{name}: source is {[*source.shape]} for places {[*places]}")


def largest_exact(dtype: torch.dtype) -> int:
    """Return the largest integer up to which a dtype holds all."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def check_held(dtype: torch.dtype, numbers: Mapping[str, int]) -> None:
    """Refuse integers that a dtype cannot hold, and warn of those beyond which it has gaps.

    Args:
        dtype: of what is drawn.
        numbers: by the names that torch gives them.

    Raises:
        RuntimeError: one is less than the least number of the dtype, or more than the largest.
    """
    exact = most = largest_exact(dtype)
    if dtype.is_floating_point:
        most = int(torch.finfo(dtype).max)
        least = -most
    else:
        least = 0 if dtype is torch.bool else torch.iinfo(dtype).min
    for name, number in numbers.items():
        if not least <= number <= most:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
        if dtype.is_floating_point and abs(number) > exact:
            warnings.warn(
                f"{name} is out of bounds [-{exact}, {exact}]. Due to precision limitations "
                f"{dtype} can support discrete uniform distribution only within this range",
                stacklevel=4,
            )


def written_otherwise(name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call by which a call in place is made, None where it is made as it is.

    Args:
        name: of the operator.
        given: its arguments by name.
    """
    return as_signed(name, given) or in_one_place(name, given)


SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def as_signed(name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a call that fills unsigned integers, as one that fills signed ones with their bits.

    New memory is filled in torch's deterministic mode, also where the CPU is about to help.

    Args:
        name: of the operator.
        given: its arguments by name.

    Returns:
        None of other dtypes and operators, and of numbers that the dtype cannot hold.
    """
    out, number = given["self"], given.get("value", 0)
    if name not in ("fill", "zero") or out.dtype not in SIGNED or isinstance(number, Tensor):
        return None
    if not 0 <= number <= torch.iinfo(out.dtype).max:
        return None
    signed = SIGNED[out.dtype]
    least = torch.iinfo(signed).min
    bits = (int(number) - least) % (-2 * least) + least
    other = {"self": out.view(signed)}
    return {**other, "value": bits} if "value" in given else other


def in_one_place(name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a call in place that writes to each place in memory once; None where all do anyway.

    torch lets one value be written to an expanded tensor: items that share a place agree on it.

    Args:
        name: of the operator.
        given: its arguments by name.
    """
    if name not in ONE_VALUE or (name == "fill" and isinstance(given["value"], Tensor)):
        return None  # torch copies a value that is a tensor, and refuses as it does of copies
    out: Tensor = given["self"]
    steps = list(zip(out.shape, out.stride(), strict=True))
    shared = [dim for dim, (size, step) in enumerate(steps) if size > 1 and step == 0]
    if not shared:
        return None
    single = out
    for dim in shared:
        single = single.narrow(dim, 0, 1)
    if "mask" not in given:
        return {**given, "self": single}
    warn_of_expanded("masked_fill_", 2)
    mask = given["mask"].expand(out.shape).any(shared, keepdim=True)
    return {**given, "self": single, "mask": mask}


def distances(inputs: Mapping[str, Tensor], out: Tensor, names: Sequence[str]) -> Apart:
    """Return each input's place among the arguments, and the distances from `out` it must not have.

    Those lie between two bounds in bytes; none is allowed if both are laid out alike. As torch
    does, only tensors without gaps are judged. What is filled with one of its own items may share
    it, because that is written with itself.

    Args:
        inputs: by parameter's name.
        out: the output.
        names: of all parameters, in their order.
    """
    if not _is_dense(out):
        return ()
    reach = out.numel() * out.itemsize
    return tuple(
        (names.index(name), -x.numel() * x.itemsize, reach, _alike(x, out))
        for name, x in inputs.items()
        if x is not out and _is_dense(x) and not (name == "value" and x.dtype is out.dtype)
    )


def _is_dense(x: Tensor) -> bool:
    return bool(torch.ops.aten.is_non_overlapping_and_dense(x))


def _alike(x: Tensor, out: Tensor) -> bool:
    return x.shape == out.shape and x.stride() == out.stride() and x.dtype == out.dtype


def check_apart(apart: Apart, given: Sequence[Any], out: Tensor) -> None:
    """Refuse an input that overlaps an output in part.

    Args:
        apart: what `distances` returned for such tensors.
        given: the arguments, in their order.
        out: the output.

    Raises:
        RuntimeError: it does; the text is torch's.
    """
    start = out.data_ptr()
    for index, low, high, alike in apart:
        distance = given[index].data_ptr() - start
        if low < distance < high and (distance or not alike):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor"
                " refer to a single memory location. Please clone() the tensor before performing "
                "the operation."
            )


def check_unshared(inputs: Iterable[Tensor], out: Tensor) -> None:
    """Refuse an input that shares memory with an output; as in torch, only tensors without gaps.

    Raises:
        RuntimeError: it does; the text is torch's.
    """
    if not out.numel() or not _is_dense(out):
        return
    start, end = out.data_ptr(), out.data_ptr() + out.nbytes
    for x in inputs:
        if _is_dense(x) and x.data_ptr() < end and start < x.data_ptr() + x.nbytes:
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor"
                " refer to a single memory location. Please clone() the tensor before performing "
                "the operation."
            )


def check_value(name: str, given: Mapping[str, Any]) -> None:
    """Refuse what an operator cannot take: masks of numbers; complex, negative, several values.

    The gradient of a call in place uses the sign of its result, which a negative slope loses.

    Raises:
        RuntimeError: one is given; the message has the number.
    """
    mask = given[MASKS[name][0]] if name in MASKS else None
    value = given.get("value")
    if isinstance(mask, Tensor) and mask.dtype not in MASKS[name][1]:
        raise RuntimeError(f"{name}: mask of {mask.dtype}")
    base, exponent = given.get("self"), given.get("exponent")
    if isinstance(value, complex) and not (isinstance(base, Tensor) and base.is_complex()):
        raise RuntimeError(f"{name}: value {value} cannot be converted to a real dtype")
    if name == "masked_fill" and isinstance(value, Tensor) and value.dim():
        raise RuntimeError(f"{name}: value has {value.dim()} dimensions; give it none")
    if name.startswith("softshrink") and (given.get("lambd") or 0) < 0:
        raise RuntimeError(f"{name}: lambd {given['lambd']} is negative; give 0 or more")
    if name in DIVISIONS and _divides_by_zero(base, given.get("other")):
        raise RuntimeError("ZeroDivisionError")
    if name == "pow" and isinstance(exponent, int) and exponent < 0 and _is_integral(base):
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    alpha, other = given.get("alpha"), given.get("other")
    if name in ("add", "sub", "rsub") and isinstance(alpha, float):
        whole = isinstance(other, int) or _is_integral(other)
        if whole and _is_integral(base):
            raise RuntimeError(
                "For integral input tensors, argument alpha must not be a floating point number."
            )
    end = given.get("end")
    if name == "lerp" and isinstance(end, Tensor) and isinstance(base, Tensor):
        check_dtypes(name, base, end)
    if name == "addcdiv" and _is_integral(given["tensor1"]) and _is_integral(given["tensor2"]):
        raise RuntimeError("addcdiv of integers; divide with a rounding mode, or convert them")
    slope = given.get("alpha") if given.get("is_result") else given.get("negative_slope")
    if given.get("is_result", given.get("self_is_result")) and slope is not None and slope < 0:
        raise RuntimeError(f"{name}: slope {slope} is negative; call the out-of-place version")


def _divides_by_zero(base: Any, other: Any) -> bool:
    """Say whether an integer is divided by 0: by a number, or where each call waits, by items."""
    if not all(isinstance(one, int) or _is_integral(one) for one in (base, other)):
        return False
    if any(isinstance(one, Tensor) and not one.numel() for one in (base, other)):
        return False
    if not isinstance(other, Tensor):
        return not other
    if other.is_cpu:
        return not other.item()
    return SYNC_ERRORS.value and bool((other == 0).any().item())


def check_dtypes(name: str, x: Tensor, source: Tensor) -> None:
    """Refuse values of another dtype than that of the tensor that they are written to.

    Args:
        name: of the operator.
        x: the tensor.
        source: the values.

    Raises:
        RuntimeError: the dtypes differ.
    """
    if source.dtype != x.dtype:
        raise RuntimeError(f"{name}: {source.dtype} written to {x.dtype}")


def check_index(name: str, index: Tensor) -> None:
    """Refuse positions of a dtype that torch does not take.

    Args:
        name: of the operator.
        index: the positions.

    Raises:
        RuntimeError: they are no integers, or narrower than the operator takes.
    """
    if index.dtype not in WHOLE[: 1 if name in LONG_ONLY else 2]:
        raise RuntimeError(f"{name}: positions of {index.dtype}; give torch.int64")


def _is_integral(x: Any) -> bool:
    return isinstance(x, Tensor) and not (x.is_floating_point() or x.is_complex())
