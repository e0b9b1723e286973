"""Pointwise operators: calls of torch become launches of kernels made from the table.

Host time is the measure here: a call looks its plan up by shapes, strides and dtypes and sets
pointers. What an operator computes is in `pointwise_table`, how items are walked in `elementwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.checks import (
    BY_VALUE,
    Apart,
    check_apart,
    check_value,
    check_written,
    distances,
    written_otherwise,
)
from ocl_backend.dispatch.outputs import check_cast, elementwise_strides, resized_elementwise
from ocl_backend.dtypes import NARROW
from ocl_backend.kernels.dimensions import broadcast_shapes, broadcast_strides
from ocl_backend.kernels.elementwise import (
    Run,
    prepare_elementwise,
)
from ocl_backend.kernels.pointwise_table import Promotion
from ocl_backend.kernels.pointwise_values import values_of
from ocl_backend.ops.fused.expressions import Loosely, of_kernel
from ocl_backend.ops.fused.fused_pointwise import Pointwise, rule_of
from ocl_backend.ops.math.pointwise_kernels import (
    ROWS,
    Bound,
    Call,
    dtypes_of,
    is_number,
    is_power,
    kernel_of,
    row_of,
)
from ocl_backend.runtime.overloads import OfOverload, labels, registered


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call with known shapes, strides and dtypes, ready to be launched.

    `rule` runs the call in place of `run` if it may be one with others. `values` turns the call's
    arguments into the launch's; None where pointers and numbers pass as they are. `fresh` describes
    an output to allocate: shape, strides, dtype, device. `apart` says of the inputs that may not
    share memory with an output how far from it they must begin.
    """

    run: Run
    rule: Pointwise | Loosely | None
    values: Callable[[Sequence[Any]], list[Any]] | None
    fresh: tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device] | None
    apart: Apart = ()


MOST_PLANS = 512
"""Bound of the calls remembered per overload; above it all are forgotten."""
PLANS: list[dict[tuple[Any, ...], PreparedCall]] = []
"""The calls remembered, per overload: they hold launches, which hold programs."""


def implementation(call: Call) -> Callable[..., Tensor]:
    """Return the function that serves the overload `call` describes."""
    plans: dict[tuple[Any, ...], PreparedCall] = {}
    PLANS.append(plans)
    written = 0 if call.in_place else -1
    raises = call.row == "pow"

    def run(*args: Any, **kwargs: Any) -> Tensor:
        given = (*args, *kwargs.values()) if kwargs else args
        key: list[Any] = [torch.get_default_dtype(), *kwargs]  # what integers are divided in
        values: list[Any] = []
        for value in given:
            if isinstance(value, Tensor):
                key += (value.shape, value.stride(), value.dtype, value.get_device())
                values.append(value.data_ptr())
            else:
                kind = value.__class__
                key.append(value if kind is str or kind is bool else kind)
                if raises and is_power(value):
                    key.append(value)  # has a text of its own
                values.append(value)
        plan = plans.get(signature := tuple(key))
        if plan is None:
            bound = call.bind(args, kwargs)
            check_value(call.row, bound)
            if (other := _by_another_call(call, bound, run)) is not None:
                return other
            names = (*call.arguments[: len(args)], *kwargs)
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plan = plans[signature] = _plan(call, bound, names)
        if plan.values is not None:
            values = plan.values(given)
        if plan.fresh is None:
            out: Tensor = given[written]
            if plan.apart:
                check_apart(plan.apart, given, out)
        else:
            shape, strides, dtype, device = plan.fresh
            out = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            values.append(out.data_ptr())
        if plan.rule is None:
            plan.run(*values)
        else:
            plan.rule.enqueue(values)
        return out

    return run


def _by_another_call(call: Call, bound: Bound, run: Callable[..., Tensor]) -> Tensor | None:
    """Return the output if a call with another one gives it; None: this call is the one."""
    if call.in_place and (one := written_otherwise(call.row, bound)):
        run(*one.values())
    elif _resized(call, bound):
        run(**bound)
    elif (made := _made_before(call, bound)) is not None:
        bound[call.output].copy_(run(**{**bound, call.output: made}))
    else:
        return None
    out: Tensor = bound[call.output]
    return out


def _checked(call: Call, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `run` after a look at the numbers of each call."""

    def checked(*args: Any, **kwargs: Any) -> Tensor:
        check_value(call.row, call.bind(args, kwargs))
        return run(*args, **kwargs)

    return checked


def _inputs(call: Call, bound: Bound) -> dict[str, Tensor]:
    """Return the tensors that are read and lie on the device."""
    return {
        name: value
        for name, value in bound.items()
        if isinstance(value, Tensor)
        and (call.in_place or name != call.output)
        and not is_number(value)
    }


def _resized(call: Call, bound: Bound) -> bool:
    """Give the output of a call the broadcast shape; return whether it had another."""
    if not call.output:
        return False
    out = bound[call.output]
    shape = _shape(call, bound)
    if tuple(out.shape) == shape:
        check_written(call.row, out)
        return False
    if call.in_place:
        raise RuntimeError(
            f"output with shape {[*out.shape]} doesn't match the broadcast shape {[*shape]}. Use "
            f"{call.row}, which is not in place."
        )
    resized_elementwise(out, shape, _inputs(call, bound).values())
    return True


def _made_before(call: Call, bound: Bound) -> Tensor | None:
    """Return what a result is written to before an output of another dtype; None: to that output.

    Narrow dtypes are computed with in wider ones: a result is rounded, or overflows, when stored. A
    compiler may widen an int, too. Bools that are added are 2 before. A truth value is 0 or 1 at
    once.
    """
    if not call.output or call.in_place:
        return None
    out: Tensor = bound[call.output]
    op = ROWS[row_of(call, bound)]
    _, result = dtypes_of(op, call, bound)
    if out.dtype is result or op.rule is Promotion.BOOL or result not in NARROW:
        return None
    check_cast(result, out.dtype)
    return torch.empty_like(out, dtype=result)


def _shape(call: Call, bound: Bound) -> tuple[int, ...]:
    shapes = [tensor.shape for tensor in _inputs(call, bound).values()]
    return broadcast_shapes(*shapes)


def _plan(call: Call, bound: Bound, names: Sequence[str]) -> PreparedCall:
    """Prepare the launch that serves a call with these arguments."""
    row = row_of(call, bound)
    op = ROWS[row]
    compute, result = dtypes_of(op, call, bound)
    inputs = _inputs(call, bound)
    shape = _shape(call, bound)
    device = _device(call, inputs, bound)
    fresh = None
    if not call.output:
        fresh = shape, elementwise_strides(shape, inputs.values()), result, device
    out_dtype = bound[call.output].dtype if call.output else result
    kernel = kernel_of(call, bound, op, compute, out_dtype)
    check_cast(result, out_dtype)
    walked = [
        broadcast_strides(shape, inputs[operand.name].shape, inputs[operand.name].stride())
        if operand.name in inputs
        else fresh[1]
        if fresh
        else bound[call.output].stride()
        for operand in kernel.operands
    ]
    run = prepare_elementwise(device.index, kernel, shape, walked)
    apart = distances(inputs, bound[call.output], names) if call.output else ()
    rule = None
    if fresh or call.in_place:
        given = inputs if fresh else {**inputs, call.output: bound[call.output]}
        lies = [
            (tuple(t.shape), t.stride()) if (t := given.get(o.name)) is not None else (shape, steps)
            for o, steps in zip(kernel.operands, walked, strict=True)
        ]
        expression = of_kernel(kernel, shape, lies)
        rule = rule_of(row, inputs, walked, names, run, fresh is not None, expression)
    values = values_of(row, bound, names, kernel, compute)
    return PreparedCall(run, rule, values, fresh, apart)


def _device(call: Call, inputs: dict[str, Tensor], bound: Bound) -> torch.device:
    found = {tensor.device for tensor in inputs.values()}
    found |= {bound[call.output].device} if call.output else set()
    if len(found) != 1:
        names = ", ".join(sorted(map(str, found)))
        raise RuntimeError(
            f"{call.row}: expected all tensors to be on the same device, but found {names}. "
            "Move them with .to()."
        )
    device: torch.device = found.pop()
    return device


def operators() -> dict[str, OfOverload]:
    """Return an implementation for every overload of the table's rows that torch wants from us.

    Those are the overloads that have a CPU kernel and no composite one: what torch makes of other
    operators arrives here by itself. Gradients are ours even so, since a composition is several
    launches, and `RESIZED`.
    """
    composed = frozenset().union(*map(registered, COMPOSITE))
    gradients = {name for name in composed if "_backward" in name}
    ours = (registered("CPU") - composed) | (registered("CPU") & gradients) | RESIZED
    found = {}
    for row in dict.fromkeys(row.partition(":")[0] for row in ROWS):
        for name in (row, f"{row}_"):
            for label in labels(f"aten::{name}"):
                qualified = f"{name}.{label}" if label else name
                if f"aten::{qualified}" in ours:
                    found[qualified] = OfOverload(partial(_served, row))
    return found


def _served(row: str, overload: Any) -> Callable[..., Tensor]:
    """Return the function that serves an overload by a row of the table."""
    call = Call.of(row, overload)
    run = implementation(call)
    return _checked(call, run) if row.startswith(BY_VALUE) else run


COMPOSITE = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
LOGICAL = "logical_and", "logical_not", "logical_or", "logical_xor"
RESIZED = {f"aten::{name}" for name in ("abs", "nan_to_num", *LOGICAL)}
"""torch makes these of a result without items, which it resizes: no call like that is recalled."""

OPERATORS = operators()
"""Implementations by aten name."""
