"""The `out=` forms of operators, made from the functional ones.

They serve operators whose result is made anew anyway; hot operators write to `out` themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ocl_backend.dispatch.checks import check_unshared, check_written


def check_cast(result: torch.dtype, out: torch.dtype) -> None:
    """Refuse a result of one dtype that may not become another.

    Raises:
        RuntimeError: it may not; the text is torch's.
    """
    if not torch.can_cast(result, out):
        raise RuntimeError(
            f"result type {dtype_name(result)} can't be cast to the desired output type "
            f"{dtype_name(out)}"
        )


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype in messages: Float, Long."""
    names: dict[torch.dtype, str] = {torch.float32: "Float", torch.float64: "Double"}
    names |= {torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char"}
    names |= {torch.uint8: "Byte", torch.bool: "Bool", torch.float16: "Half"}
    names |= {torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}
    return names.get(dtype, str(dtype).removeprefix("torch."))


def resized(out: Tensor, shape: Sequence[int]) -> Tensor:
    """Return `out` with this shape; torch's rule for `out=` tensors of another shape.

    It warns, as torch does, if an output with items is resized.
    """
    if out.shape == tuple(shape):
        return out
    if out.numel():
        warnings.warn(
            "An output with one or more elements was resized since it had shape "
            f"{[*out.shape]}, which does not match the required output shape {[*shape]}. This "
            "behavior is deprecated, and in a future PyTorch release outputs will not be resized "
            "unless they have zero elements. You can explicitly reuse an out tensor t by resizing "
            "it, inplace, to zero elements with t.resize_(0).",
            stacklevel=4,
        )
    return out.resize_(shape)


def elementwise_strides(shape: tuple[int, ...], operands: Iterable[Tensor]) -> tuple[int, ...]:
    """Return how an elementwise result lies: densely, in the order of its operands' dimensions.

    torch's function of this kind imports sympy, which takes a process 0.4 s.
    """
    spread = [operand.expand(shape) for operand in operands]
    if len(shape) < 2:
        return (1,) * len(shape)
    if len(spread) == 1:
        return torch.empty_like(spread[0], device="meta").stride()
    in_rows = all(x.is_contiguous() for x in spread)
    in_pixels = all(x.is_contiguous(memory_format=torch.channels_last) for x in spread)
    if in_rows and not in_pixels:
        inner_first = [*reversed(range(len(shape)))]
    elif in_pixels and not in_rows:
        inner_first = [1, 3, 2, 0]
    else:
        inner_first = _inner_first(shape, [x.stride() for x in spread])
    strides, stride = [0] * len(shape), 1
    for dim in inner_first:
        strides[dim] = stride
        stride *= max(shape[dim], 1)
    return tuple(strides)


def _inner_first(shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the dimensions, those with the least strides first; of unlike operands, the first's.

    The order of ATen's `TensorIterator::reorder_dimensions`: a dimension that compares like none of
    two others does not part them.
    """
    order = [*reversed(range(len(shape)))]
    for new in range(1, len(order)):
        at = new
        for before in reversed(range(new)):
            if (told := _compared(order[before], order[at], shape, strides)) < 0:
                break
            if told > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order


def _compared(
    inner: int, outer: int, shape: Sequence[int], strides: Sequence[tuple[int, ...]]
) -> int:
    """Return 1 if two dimensions have to change places, -1 if not, 0 if no operand says so."""
    for stride in strides:
        if not stride[inner] or not stride[outer]:
            continue
        if stride[inner] != stride[outer]:
            return 1 if stride[inner] > stride[outer] else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def resized_elementwise(out: Tensor, shape: tuple[int, ...], operands: Iterable[Tensor]) -> Tensor:
    """Return `out` with a shape; where it had another, it lies as a new result does.

    torch makes `angle` and the like of an empty tensor and their `out=` form.

    Args:
        out: to be written.
        shape: of the result: the operands', broadcast.
        operands: what is read.

    Raises:
        RuntimeError: another shape would also be that of an operand, or items share a place.
    """
    if out.shape == shape:
        return out
    if any(x is out for x in operands):
        raise RuntimeError(
            f"output with shape {[*out.shape]} doesn't match the broadcast shape {[*shape]}"
        )
    check_written("out", out)
    return resized(out, shape).as_strided_(shape, elementwise_strides(shape, operands))


def stored(result: Tensor, out: Tensor) -> Tensor:
    """Return `out` with the shape and the values of a result.

    Raises:
        RuntimeError: it is on another device.
    """
    if result.device != out.device:
        raise RuntimeError(f"the result is on {result.device}, out on {out.device}")
    return resized(out, result.shape).copy_(result)


def in_dtype_of_out(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the out form of a function that combines items in the dtype of its output."""

    def run(*args: Any, dtype: torch.dtype | None = None, out: Tensor, **kwargs: Any) -> Tensor:
        return stored(function(*args, dtype=dtype or out.dtype, **kwargs), out)

    return run


def into(function: Callable[..., Any], *names: str, casts: bool = True) -> Callable[..., Any]:
    """Return the form of `function` that writes its results to the keyword arguments `names`.

    The default name is `out`. Outputs are resized to fit, and take the results' values in their
    own dtype, or must have the results' where nothing `casts`.

    Raises:
        RuntimeError: dtypes do not fit, or the outputs are on another device.
    """
    names = names or ("out",)

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = [kwargs.pop(name) for name in names]
        results = function(*args, **kwargs)
        given = [results] if isinstance(results, Tensor) else results
        for output, result in zip(outputs, given, strict=True):
            check_cast(result.dtype, output.dtype)
            if not casts and result.dtype is not output.dtype:
                raise RuntimeError(
                    f"Expected out tensor to have dtype {result.dtype}, but got {output.dtype}"
                )
            stored(result, output)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an out form that refuses outputs whose items share memory, also with an input's."""

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = [value for value in kwargs.values() if isinstance(value, Tensor)]
        inputs = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        for output in outputs:
            check_written("out", output)
            check_unshared(inputs, output)
        return function(*args, **kwargs)

    return run


def guarded(
    function: Callable[..., Any], guard: Callable[[Tensor, Iterable[Any]], None]
) -> Callable[..., Any]:
    """Return an in-place form before which a guard looks at its arguments.

    Args:
        function: takes the tensor that is written to first.
        guard: refuses, or warns of, that tensor beside the others, which are given as a tree.
    """

    @wraps(function)
    def run(out: Tensor, *args: Any, **kwargs: Any) -> Any:
        guard(out, (args, kwargs))
        return function(out, *args, **kwargs)

    return run


def check_others(out: Tensor, others: Iterable[Any]) -> None:
    """Refuse positions and values in the memory that is written to.

    Work-items would read some items before others write them, and some after.

    Args:
        out: is written to.
        others: the tree of further arguments.
    """
    check_unshared((x for x in tree_leaves(others) if isinstance(x, Tensor)), out)
