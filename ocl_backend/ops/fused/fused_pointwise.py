"""Pointwise operators that can be one kernel with others: additions, activations, their masks.

`elementwise` decides how items are walked, `held` when launches are held back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ocl_backend.dtypes import STORAGE
from ocl_backend.fusion.held import Rule, Step, Way, offer, shared
from ocl_backend.kernels.activations import MASKS, NUMBERS, OPERATORS, activated, masked
from ocl_backend.kernels.elementwise import Kernel, Operand, Run, prepare_elementwise
from ocl_backend.ops.fused.expressions import Expression, Loosely
from ocl_backend.runtime.launch import Prepared
from oclgen.problem import Activation


@dataclass(eq=False)
class Pointwise(Rule):
    """A call on tensors of one shape, dtype and dense layout, whose launch `run` is prepared.

    Its launch takes the operands, `numbers`, and the result if that is `fresh`; else the result
    lies where the first operand does. With other numbers it is another function.
    """

    operator: str
    device: int
    items: int
    dtype: torch.dtype
    run: Prepared
    fresh: bool
    activation: Activation = "none"
    numbers: tuple[float, ...] = ()
    loose: Expression | None = None

    def __post_init__(self) -> None:
        self.operands = 1 if self.kind == "activation" else 2
        self.result = self.operands + len(self.numbers) if self.fresh else 0
        self.ways = shared(self.possible_ways((self.result,)))

    def possible_ways(self, result: tuple[int, ...]) -> tuple[Way, ...]:
        """Return how it may continue a chain; `result` is the place of its result."""
        raise NotImplementedError

    def enqueue(self, values: Sequence[float]) -> None:
        """Run the call, or hold it back; `values` are its launch's."""
        if tuple(values[self.operands : self.operands + len(self.numbers)]) == self.numbers:
            offer(self, self.run, values)
        else:
            self.run(*values)

    def alone(self, step: Step) -> None:
        """Enqueue the launch that was prepared."""
        self.run(*step.values)


class Activating(Pointwise):
    """An activation. It follows what wrote its operand, or runs."""

    kind = "activation"
    begins = False

    def possible_ways(self, result: tuple[int, ...]) -> tuple[Way, ...]:
        """Return that it may follow what wrote its operand."""
        return (Way(0, (), result if self.fresh else ()),)


class Adding(Pointwise):
    """An addition. It follows what wrote one of its operands."""

    kind = "add"

    def possible_ways(self, result: tuple[int, ...]) -> tuple[Way, ...]:
        """Return that it may follow what wrote either operand.

        In place of the first operand: the work-item that writes a sum has read that item.
        """
        return Way(0, (1,), result if self.fresh else ()), Way(1, (0,), result)

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue the addition with the activation, or the mask, that reads it."""
        x, other, last = step.values[0], step.values[1], after[0]
        rule = last.rule
        if isinstance(rule, Activating):
            _added(self.device, self.dtype, self.items, rule.activation)(x, other, last.result)
        elif isinstance(rule, Masking):
            launch = _added_and_masked(self.device, self.dtype, self.items, rule.activation)
            launch(x, other, last.values[1], last.result)
        return 1


def terms_of(after: Sequence[Step]) -> tuple[int, Activation, int]:
    """Return what a store takes of the steps `after` it: a residual, an activation, one or none.

    That is the residual's address, or 0, the activation, or "none", and how many steps they are.
    """
    residual, taken = 0, 0
    activation: Activation = "none"
    if after and isinstance(after[0].rule, Adding):
        residual, taken = other_of(after[0]), 1
    if taken < len(after) and isinstance(rule := after[taken].rule, Activating):
        activation, taken = rule.activation, taken + 1
    return residual, activation, taken


def other_of(step: Step) -> int:
    """Return the operand of an addition that is not its source."""
    x, other = step.values[:2]
    return int(x if step.source == other else other)


class Masked(Rule):
    """A rule of calls that can mask the gradient that they read."""

    def behind(self, activation: Activation, grad: int, result: int, step: Step) -> None:
        """Enqueue `step` for `grad` where the activation's `result` let it through."""
        raise NotImplementedError


class Masking(Pointwise):
    """A gradient passed where an activation's result is within: values are both, and the mask's."""

    kind = "mask"

    def possible_ways(self, result: tuple[int, ...]) -> tuple[Way, ...]:
        """Return that it may follow what wrote the gradient."""
        return (Way(0, (1,), result),)

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue what follows for the gradient that is masked."""
        follower = after[0].rule
        assert isinstance(follower, Masked)
        follower.behind(self.activation, step.values[0], step.values[1], after[0])
        return 1


def rule_of(
    row: str, operands: Mapping[str, Tensor], strides: Sequence[tuple[int, ...]],
    names: Sequence[str], run: Run, fresh: bool, expression: Expression | None,
) -> Pointwise | Loosely | None:  # fmt: skip
    """Return the rule of a call of the table's `row`, or None if it is one of no kind here.

    `operands` are its tensors, `strides` theirs and the result's, `names` its arguments in order.
    """
    rule = _chained(row, operands, strides, names, run, fresh, expression)
    if rule is None and expression is not None and isinstance(run, Prepared):
        device = next(iter(operands.values())).get_device()
        return Loosely(row, device, run, expression)
    return rule


def _chained(
    row: str, operands: Mapping[str, Tensor], strides: Sequence[tuple[int, ...]],
    names: Sequence[str], run: Run, fresh: bool, expression: Expression | None,
) -> Pointwise | None:  # fmt: skip
    kind: Callable[..., Pointwise] | None = None
    if row in OPERATORS and len(operands) == 1:
        kind, activation = Activating, OPERATORS[row]
    elif row in MASKS and len(operands) == 2 and fresh:
        kind, activation = Masking, MASKS[row]
    elif row == "add" and len(operands) == 2 and tuple(names) == ("self", "other"):
        kind, activation = Adding, "none"
    numbers = NUMBERS.get(row, ())
    given = len(names) == len(operands) + len(numbers)
    tensors = list(operands.values())
    alike = len({(t.shape, t.dtype) for t in tensors}) == 1 and _equal(strides, tensors[0].shape)
    if kind is None or not given or not alike or tensors[0].dtype not in STORAGE:
        return None
    like = tensors[0]
    dense = like.is_contiguous() or like.is_contiguous(memory_format=torch.channels_last)
    if not dense or not like.numel():
        return None
    return kind(
        row, like.get_device(), like.numel(), like.dtype, run, fresh, activation, numbers,
        expression,
    )  # fmt: skip


def _equal(strides: Sequence[tuple[int, ...]], shape: Sequence[int]) -> bool:
    """Say whether strides are equal, except along sizes of 1, where they do not count."""
    return len({tuple(s for s, n in zip(one, shape, strict=True) if n > 1) for one in strides}) == 1


@lru_cache(maxsize=1024)
def _added(device: int, dtype: torch.dtype, items: int, activation: Activation) -> Run:
    """Return the launch of act(self + other), over contiguous items: self, other, result."""
    text = activated(activation, "sum")
    return _pointwise(device, dtype, items, f"add_{activation}", ("self", "other"), text)


@lru_cache(maxsize=1024)
def _added_and_masked(device: int, dtype: torch.dtype, items: int, activation: Activation) -> Run:
    """Return the launch of (self + other) where `above` let it through, over contiguous items."""
    text = masked(activation, "sum", "above")
    names = ("self", "other", "above")
    return _pointwise(device, dtype, items, f"add_{activation}_backward", names, text)


def _pointwise(
    device: int, dtype: torch.dtype, items: int, name: str, names: Sequence[str], text: str
) -> Run:
    body = f"const T sum = self + other;\nconst T out = {text};"
    inputs = [Operand(operand, dtype) for operand in names]
    kernel = Kernel(f"pointwise_{name}", "float", (*inputs, Operand("out", dtype, "output")), body)
    return prepare_elementwise(device, kernel, (items,), [(1,)] * (len(inputs) + 1))
