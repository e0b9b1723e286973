"""The kernel of a pointwise call: its row of the table, its dtypes, the text of its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dtypes import FLOATS_16, dtype_of
from ocl_backend.kernels.elementwise import Kernel, Operand, Role, Scalar
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
from ocl_backend.kernels.special_table import FUNCTIONS, SPECIAL
from ocl_backend.kernels.vectors import SIGNED, in_type

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


def is_number(value: Any) -> bool:
    """Whether `value` travels as a number: one, or a CPU tensor of no dimensions."""
    if isinstance(value, Tensor):
        return value.dim() == 0 and value.device.type == "cpu"
    return isinstance(value, int | float)


def row_of(call: Call, bound: Bound) -> str:
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


def is_power(exponent: Any) -> bool:
    """Whether a power with this exponent has a text of its own."""
    return isinstance(exponent, int | float) and exponent in POWERS


def _power(base: Any, exponent: Any) -> str:
    """Return the row of a power of floats that is a few products; "": it is none."""
    if not isinstance(base, Tensor) or not base.is_floating_point() or not is_power(exponent):
        return ""
    if base.dtype is torch.float16 and abs(exponent) == 0.5:
        return ""  # the CPU's power of -inf is that of C's pow there, not that of a root
    return f"pow:{float(exponent):g}"


def promoted(values: Sequence[Any]) -> torch.dtype:
    """Return the dtype that tensors and numbers are promoted to: `torch.result_type` of many.

    A tensor without dimensions counts where no other has its kind (bool, integer, float, complex)
    or a higher one; a number counts where no tensor does. torch's `elementwise_dtypes` says the
    same, and imports sympy for it: 0.7 s of a process.
    """
    ranks: dict[int, list[torch.dtype]] = {2: [], 1: [], 0: []}
    for value in values:
        if isinstance(value, Tensor):
            ranks[2 if value.dim() else 1].append(value.dtype)
        else:
            ranks[0].append(torch.result_type(value, value))
    *higher, dtype = (reduce(torch.promote_types, dtypes) for dtypes in ranks.values() if dtypes)
    for first in reversed(higher):
        with_dimension = torch.empty(1, dtype=first, device="meta")
        dtype = torch.result_type(with_dimension, torch.empty((), dtype=dtype, device="meta"))
    return dtype


def dtypes_of(op: Op, call: Call, bound: Bound) -> tuple[torch.dtype, torch.dtype]:
    """Return the dtype that operands are promoted to, and the result's."""
    promoting = [value for name, value in bound.items() if name in PROMOTING and value is not None]
    compute = promoted(promoting)
    if op.rule is Promotion.FLOAT and not (compute.is_floating_point or compute.is_complex):
        compute = torch.get_default_dtype()
    if not op.expression and compute.is_floating_point:
        raise NotImplementedError(f"{call.row} is not implemented for {compute}; use integers.")
    return compute, torch.bool if op.rule is Promotion.BOOL else compute


def kernel_of(
    call: Call, bound: Bound, op: Op, compute: torch.dtype, out_dtype: torch.dtype
) -> Kernel:
    """Return the kernel for the arguments given; those left to their defaults are written in.

    Args:
        call: the overload.
        bound: its arguments by name.
        op: its row of the table.
        compute: the dtype that it computes in.
        out_dtype: of the result.
    """
    value = dtype_of(compute).value
    truth = SIGNED.get(value, value) if op.rule is Promotion.BOOL else value
    # torch rounds quotients of two tensors, and none by a number
    by_number = "rounded(" in op.narrow and is_number(bound["other"])
    text = op.expression if by_number and compute in FLOATS_16 else op.text(compute)
    parameters: list[Operand | Scalar] = []
    lines = []
    for name, given in bound.items():
        used = re.search(rf"\b{name}\b", text) is not None
        if name == call.output:
            role: Role = "inout" if used else "output"
            parameters.append(Operand(name, given.dtype, role, truth, "out"))
        elif used and is_number(given):
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
    op = ROWS[row_of(call, bound)]
    alike = dtypes_of(op, call, bound) == (dtype, dtype)
    return kernel_of(call, bound, op, dtype, dtype) if alike else None


def _default(call: Call, name: str, dtype: torch.dtype) -> str:
    """Return the literal of an argument that was left out."""
    if name in ("posinf", "neginf"):
        limits = torch.finfo(dtype)
        return repr(limits.max if name == "posinf" else limits.min)
    given = call.defaults.get(name)
    return repr(ABSENT[name] if given is None else given)
