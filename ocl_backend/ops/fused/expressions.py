"""Expressions: calls whose kernels can be written into another's, item by item.

An `Expression` says what a call computes from which operands. `window` decides which calls become
one kernel, `expression_text` writes it. Each result is rounded to its dtype as the call alone would
round it, and products are not contracted with sums. So a chain of pointwise calls has the same bits
as its calls one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

import torch

from ocl_backend.fusion.held import Rule, Step, offer
from ocl_backend.kernels.elementwise import Kernel, Operand
from ocl_backend.runtime.launch import Prepared

VALUES = {
    torch.float32: "float",
    torch.float16: "float",
    torch.bfloat16: "float",
    torch.int64: "long",
}
"""Dtypes of results, and what they are computed as."""
LOADED = {**VALUES, torch.bool: "uchar"}
"""Those of operands, and what they are loaded as."""
MOST_NUMBERS = 8
"""How many last numbers of the calls of one shape are remembered, to recognise new ones."""
MOST_DIMS = 6
MOST_ITEMS = 1 << 28
"""Bounds of an operand's dimensions and reach: indices are ints."""

ExpressionKind = Literal["pointwise", "mean", "cat", "index_copy", "product"]


class Read(NamedTuple):
    """An operand: its name in the text, its place among the call's values, and how it lies."""

    name: str
    place: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_dense(self) -> bool:
        """Whether the items lie one after the other, the last dimension fastest."""
        return self.strides == dense(self.shape) or squeezed(self) == squeezed(
            self._replace(strides=dense(self.shape))
        )

    @property
    def rows(self) -> list[int]:
        """How far apart rows of neighbours lie, for each dimension; none if there are no rows."""
        if self.strides[-1] != 1 or self.shape[-1] == 1:
            return []
        return [s for n, s in zip(self.shape[:-1], self.strides[:-1], strict=True) if n > 1]


def lying(
    name: str, place: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Read:
    """Return an operand; one without dimensions has a single item along one."""
    return Read(name, place, dtype, shape or (1,), strides or (1,))


class Number(NamedTuple):
    """A scalar of the text: its name, its place among the call's values, and its C type."""

    name: str
    place: int
    type: str


@dataclass(frozen=True, slots=True)
class Expression:
    """What a call computes: of `inputs`, broadcast to the shape of `out`, by `text`.

    `text` names inputs and numbers and defines `out`; its `T` is a vector of `value`, its `R` one
    of `int`, its `POSITION` the place along the last dimension. The other kinds have none: a "mean"
    is that over the last dimension, which has size 1 in `out`; "cat" lays its inputs one after the
    other along `axis`; "index_copy" writes its first input to `out` at the positions along `axis`
    that the second names, and notes those that are none in what lies at the place of its last
    number; a "product" is that of its first two inputs, [m, k] and [k, n], and has the third, [n],
    added to each row. One that is `in_place` leaves in `out` what it reads there, or does not write
    to.
    """

    kind: ExpressionKind
    inputs: tuple[Read, ...]
    out: Read
    value: str = "float"
    text: str = ""
    numbers: tuple[Number, ...] = ()
    axis: int = 0
    in_place: bool = False

    @property
    def reads(self) -> tuple[int, ...]:
        """Places of addresses that are read; the result's is among them in place."""
        before = (self.out.place,) if self.in_place else ()
        return (*before, *(read.place for read in self.inputs))

    @property
    def writes(self) -> tuple[int, ...]:
        """Places of addresses that are written."""
        return (self.out.place,)

    @property
    def can_move(self) -> bool:
        """Whether it computes the same wherever a later call reads its result."""
        return self.kind in ("pointwise", "mean", "cat") and not self.in_place

    def run(self, steps: Sequence[Step], dropped: Sequence[bool]) -> None:
        """Enqueue a loose chain."""
        from ocl_backend.ops.fused.window import Window  # which is made of expressions

        Window(steps, dropped).run()


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps, the last dimension fastest."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def squeezed(read: Read) -> tuple[tuple[int, int], ...]:
    """Return size and stride of the dimensions that have more than one item."""
    return tuple(pair for pair in zip(read.shape, read.strides, strict=True) if pair[0] != 1)


def fits(expression: Expression) -> bool:
    """Say whether a call can be part of another's kernel: dtypes, dimensions and reach.

    Kernels walk results in the order of their dimensions, which should be that in memory.
    """
    out = expression.out
    if not out.shape or (out.strides[-1] != 1 and out.shape[-1] != 1):
        return False
    return all(
        read.dtype in LOADED
        and len(read.shape) <= MOST_DIMS
        and sum(n * s for n, s in zip(read.shape, read.strides, strict=True)) < MOST_ITEMS
        for read in (*expression.inputs, expression.out)
        if 0 not in read.shape
    ) and bool(prod(expression.out.shape))


class Loosely(Rule):
    """A call that continues no chain in a way of its own, but may stand in a loose one."""

    kind = "loose"
    ways = ()
    follows = begins = False

    def __init__(self, operator: str, device: int, run: Prepared, expression: Expression) -> None:
        self.operator, self.device = operator, device
        self.items, self.dtype = prod(expression.out.shape), expression.out.dtype
        self.result, self._loose, self._run = expression.out.place, expression, run
        self._met: tuple[tuple[float, ...], ...] = ()  # replaced as a whole: threads share it

    @property
    def loose(self) -> Expression:
        """What it computes."""
        return self._loose

    def enqueue(self, values: Sequence[float]) -> None:
        """Run the call, or hold it back; `values` are its launch's.

        Each chain is prepared for its numbers, so those that are always new are not held. Where
        gradients are recorded nothing stands loosely: to decide by the numbers there would only let
        like calls differ, which are then not recalled.
        """
        numbers = tuple(values[number.place] for number in self._loose.numbers)
        if not torch.is_grad_enabled() and self._may_recur(numbers):
            offer(self, self._run, values)
        else:
            self._run(*values)

    def _may_recur(self, numbers: tuple[float, ...]) -> bool:
        """Whether these are among the last numbers, or there were few; note them."""
        met = self._met
        if numbers in met:
            return True
        self._met = (*met, numbers)[-MOST_NUMBERS:]
        return len(met) < MOST_NUMBERS

    def alone(self, step: Step) -> None:
        """Enqueue the launch that was prepared."""
        self._run(*step.values)


def order_in_memory(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the dimensions of a result in the order that lets the last one be dense."""
    order = [*range(len(shape))]
    if not shape or shape[-1] == 1 or strides[-1] == 1:
        return order
    return sorted(order, key=lambda d: strides[d], reverse=True)


def _turned(
    lie: tuple[tuple[int, ...], tuple[int, ...]], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of an operand in another order of the result's dimensions."""
    shape, strides = lie
    if [*order] == sorted(order):
        return lie
    missing = len(order) - len(shape)
    shape, strides = (1,) * missing + shape, (0,) * missing + strides
    return tuple(shape[d] for d in order), tuple(strides[d] for d in order)


def of_kernel(
    kernel: Kernel,
    shape: tuple[int, ...],
    lies: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> Expression | None:
    """Return the expression of an elementwise kernel over `shape`, or None if it is none.

    Args:
        kernel: one that is right for vectors, and has one output.
        shape: of the result.
        lies: shape and strides of each operand, in order.
    """
    operands, places = kernel.operands, {p.name: i for i, p in enumerate(kernel.parameters)}
    roles = [operand.role for operand in operands]
    compares = kernel.value == "float" and kernel.truth == "int"
    known = kernel.value in VALUES.values() and all(
        LOADED.get(operand.dtype) == kernel.value
        or (operand.dtype is torch.bool and (role == "input" or (role == "output" and compares)))
        for operand, role in zip(operands, roles, strict=True)
    )
    written = [role for role in roles if role in ("output", "inout")]
    if not known or kernel.scalar_only or len(written) != 1 or {*roles} & {"address", "position"}:
        return None
    written_to = next(i for i, role in enumerate(roles) if role in ("output", "inout"))
    order = order_in_memory(shape, lies[written_to][1])
    shape = tuple(shape[d] for d in order)
    reads = [
        lying(operand.name, places[operand.name], operand.dtype, *_turned(lie, order))
        for operand, lie in zip(operands, lies, strict=True)
    ]
    out = reads[written_to]
    inputs = tuple(r for r, role in zip(reads, roles, strict=True) if role != "output")
    numbers = tuple(Number(s.name, places[s.name], s.argument.type) for s in kernel.scalars)
    result = _result(next(o for o in operands if o.role in ("output", "inout")))
    text = kernel.body if result == "out" else f"{kernel.body}\nconst T out = {result};"
    if compares:  # a comparison's 0 or 1 is computed with as a float
        truth = text.replace("const R out", "const R truth")
        text = f"{truth}\nconst T out = select((T)(0), (T)(1), -truth);"
    made = Expression(
        "pointwise", inputs, out._replace(shape=shape or (1,)), kernel.value, text, numbers,
        in_place="inout" in roles,
    )  # fmt: skip
    return made if fits(made) else None


def _result(out: Operand) -> str:
    return out.result or out.name
