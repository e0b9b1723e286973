"""Pointwise operators: calls of torch become launches of kernels made from the table.

Host time is the measure here: a call looks its plan up by shapes, strides and dtypes and sets
pointers. What an operator computes is in `pointwise_table`, how items are walked in `elementwise`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTE
from torch._prims_common import elementwise_dtypes

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
from ocl_backend.dtypes import FLOATS_16, NARROW, dtype_of
from ocl_backend.kernels.dimensions import broadcast_shapes, broadcast_strides
from ocl_backend.kernels.elementwise import (
    Kernel,
    Operand,
    Role,
    Run,
    Scalar,
    prepare_elementwise,
)
from ocl_backend.kernels.narrow_functions import narrow_functions
from ocl_backend.kernels.pointwise_table import (
    ABSENT,
    HELPERS,
    POINTWISE,
    POWERS,
    PROMOTING,
    Op,
    Promotion,
)
from ocl_backend.kernels.pointwise_values import values_of
from ocl_backend.kernels.special_table import FUNCTIONS, SPECIAL
from ocl_backend.kernels.vectors import SIGNED, in_type
from ocl_backend.ops.fused.expressions import Loosely, of_kernel
from ocl_backend.ops.fused.fused_pointwise import Pointwise, rule_of

ROWS = {**POINTWISE, **SPECIAL}
CALLED = {**HELPERS, **FUNCTIONS}

Bound = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One overload's schema: argument names in order, and the one that is written ("": none)."""

    row: str
    arguments: tuple[str, ...]
    output: str
    in_place: bool
    defaults: dict[str, Any]

    @staticmethod
    def of(row: str, overload: torch._ops.OpOverload) -> Call:
        """Read the schema of `overload`, which the table's row `row` serves."""
        schema = overload._schema
        written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        output = written[0] if written else ""
        return Call(
            row,
            tuple(a.name for a in schema.arguments),
            output,
            output == "self",
            {a.name: a.default_value for a in schema.arguments if a.has_default_value()},
        )

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Bound:
        """Return the arguments of a call by name, None for what was not given."""
        given = {**dict(zip(self.arguments, args, strict=False)), **kwargs}
        return {name: given.get(name) for name in self.arguments}


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


MOST_PLANS = 8192
"""Bound of the calls remembered per overload; above it all are forgotten."""
PLANS: list[dict[tuple[Any, ...], PreparedCall]] = []
"""The calls remembered, per overload: they hold launches, which hold programs."""


def implementation(call: Call) -> Callable[..., Tensor]:
    """Return the function that serves the overload `call` describes."""
    plans: dict[tuple[Any, ...], PreparedCall] = {}
    PLANS.append(plans)
    written = 0 if call.in_place else -1
    is_power = call.row == "pow"

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
                if is_power and _is_power(value):
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
        and not _is_number(value)
    }


def _is_number(value: Any) -> bool:
    """Whether `value` travels as a number: one, or a CPU tensor of no dimensions."""
    if isinstance(value, Tensor):
        return value.dim() == 0 and value.device.type == "cpu"
    return isinstance(value, int | float)


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
    op = ROWS[_row(call, bound)]
    _, result = _dtypes(op, call, bound)
    if out.dtype is result or op.rule is Promotion.BOOL or result not in NARROW:
        return None
    check_cast(result, out.dtype)
    return torch.empty_like(out, dtype=result)


def _shape(call: Call, bound: Bound) -> tuple[int, ...]:
    shapes = [tensor.shape for tensor in _inputs(call, bound).values()]
    return broadcast_shapes(*shapes)


def _plan(call: Call, bound: Bound, names: Sequence[str]) -> PreparedCall:
    """Prepare the launch that serves a call with these arguments."""
    row = _row(call, bound)
    op = ROWS[row]
    compute, result = _dtypes(op, call, bound)
    inputs = _inputs(call, bound)
    shape = _shape(call, bound)
    device = _device(call, inputs, bound)
    fresh = None
    if not call.output:
        fresh = shape, elementwise_strides(shape, inputs.values()), result, device
    out_dtype = bound[call.output].dtype if call.output else result
    kernel = _kernel(call, bound, op, compute, out_dtype)
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


def _row(call: Call, bound: Bound) -> str:
    """Return the table's row for a call: options that are strings or flags choose a variant."""
    if call.row == "pow" and (power := _power(bound["self"], bound["exponent"])):
        return power
    if call.row == "clamp" and (bound["min"] is None or bound["max"] is None):
        return "clamp_min" if bound["max"] is None else "clamp_max"
    if "is_result" in bound:
        return f"{call.row}:{'result' if bound['is_result'] else 'input'}"
    if bound.get("decimals") is not None:
        return f"{call.row}:decimals"
    option = bound.get("rounding_mode") or bound.get("approximate")
    return call.row if option in (None, "none") else f"{call.row}:{option}"


def _is_power(exponent: Any) -> bool:
    return isinstance(exponent, int | float) and exponent in POWERS


def _power(base: Any, exponent: Any) -> str:
    """Return the row of a power of floats that is a few products; "": it is none."""
    is_known = isinstance(base, Tensor) and base.is_floating_point() and _is_power(exponent)
    return f"pow:{float(exponent):g}" if is_known else ""


def _dtypes(op: Op, call: Call, bound: Bound) -> tuple[torch.dtype, torch.dtype]:
    """Return the dtype that operands are promoted to, and the result's."""
    promoting = [value for name, value in bound.items() if name in PROMOTING and value is not None]
    kind = PROMOTE.INT_TO_FLOAT if op.rule is Promotion.FLOAT else PROMOTE.DEFAULT
    _, compute = elementwise_dtypes(*promoting, type_promotion_kind=kind)
    if not op.expression and compute.is_floating_point:
        raise NotImplementedError(f"{call.row} is not implemented for {compute}; use integers.")
    return compute, torch.bool if op.rule is Promotion.BOOL else compute


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


def _kernel(
    call: Call, bound: Bound, op: Op, compute: torch.dtype, out_dtype: torch.dtype
) -> Kernel:
    """Return the kernel for the arguments given; those left to their defaults are written in."""
    value = dtype_of(compute).value
    truth = SIGNED.get(value, value) if op.rule is Promotion.BOOL else value
    # torch rounds quotients of two tensors, and none by a number
    by_number = "rounded(" in op.narrow and _is_number(bound["other"])
    text = op.expression if by_number and compute in FLOATS_16 else op.text(compute)
    parameters: list[Operand | Scalar] = []
    lines = []
    for name, given in bound.items():
        used = re.search(rf"\b{name}\b", text) is not None
        if name == call.output:
            role: Role = "inout" if used else "output"
            parameters.append(Operand(name, given.dtype, role, truth, "out"))
        elif used and _is_number(given):
            parameters.append(Scalar(name, value))
        elif used and isinstance(given, Tensor):
            parameters.append(Operand(name, given.dtype))
        elif used:
            lines.append(f"const T {name} = (T)({_default(call, name, out_dtype)});")
    if not call.output:
        parameters.append(Operand("out", out_dtype, "output", truth, "out"))
    *statements, last = (part.strip() for part in text.split(";"))
    lines += [f"{statement};" for statement in statements]
    lines.append(
        f"const R out = ({last}) & (R)(1);"
        if op.rule is Promotion.BOOL
        else f"const T out = {last};"
    )
    helper = ""
    if text == op.narrow:
        helper = narrow_functions(compute)
    elif op.helper and op.helper in text:
        helper = in_type(CALLED[op.helper], value)
    name = "pointwise_" + re.sub(r"\W+", "_", call.row).strip("_")  # `abs` is a built-in
    body = "\n".join(lines)
    return Kernel(name, value, tuple(parameters), body, helper, bool(helper), truth)


def kernel_for(call: Call, bound: Bound, dtype: torch.dtype) -> Kernel | None:
    """Return the kernel of a call whose operands and result have one dtype; None: they have not.

    Args:
        call: the overload.
        bound: its arguments, tensors of any device among them.
        dtype: of what is computed.
    """
    op = ROWS[_row(call, bound)]
    alike = _dtypes(op, call, bound) == (dtype, dtype)
    return _kernel(call, bound, op, dtype, dtype) if alike else None


def _default(call: Call, name: str, dtype: torch.dtype) -> str:
    """Return the literal of an argument that was left out."""
    if name in ("posinf", "neginf"):
        limits = torch.finfo(dtype)
        return repr(limits.max if name == "posinf" else limits.min)
    given = call.defaults.get(name)
    return repr(ABSENT[name] if given is None else given)


def operators() -> dict[str, Callable[..., Tensor]]:
    """Return an implementation for every overload of the table's rows that torch wants from us.

    Those are the overloads that have a CPU kernel and no composite one: what torch makes of other
    operators arrives here by itself. Gradients are ours even so: a composition is several launches.
    """
    found = {}
    for row in dict.fromkeys(row.partition(":")[0] for row in ROWS):
        for name in (row, f"{row}_"):
            packet = getattr(torch.ops.aten, name, None)
            for label in packet.overloads() if packet else ():
                qualified = name if label == "default" else f"{name}.{label}"
                if _is_ours(f"aten::{qualified}"):
                    call = Call.of(row, getattr(packet, label))
                    run = implementation(call)
                    found[qualified] = _checked(call, run) if row.startswith(BY_VALUE) else run
    return found


def _is_ours(name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    try:
        composed = any(has(name, key) for key in COMPOSITE) and "_backward" not in name
        return has(name, "CPU") and not composed
    except RuntimeError:  # an overload of TorchScript's, unknown to the dispatcher
        return False


COMPOSITE = "CompositeImplicitAutograd", "CompositeExplicitAutograd"

OPERATORS = operators()
"""Implementations by aten name."""
