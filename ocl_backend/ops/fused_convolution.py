"""A convolution with what follows it: batch normalisation in evaluation, residual, activation.

The normalisation is folded into weights and bias (Jacob et al., arXiv:1712.05877), the others are
part of the convolution's store. When launches are held back is `held`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch
from torch import Tensor

from ocl_backend.dtypes import dtype_of
from ocl_backend.held import Rule, Step
from ocl_backend.kept_weights import Weights, made_once
from ocl_backend.launch import Argument, Launch, Pointer, Varying, prepare
from ocl_backend.ops.batch_norm import Normalising
from ocl_backend.ops.batch_norm_kernels import Kind
from ocl_backend.ops.fused_pointwise import terms_of
from ocl_backend.tuned import STORAGE, TunedCall, tuned_call
from oclgen.device import devices
from oclgen.plan import round_up
from oclgen.problem import Activation, ConvProblem
from oclgen.render import render
from oclgen.strided_weights import STRIDES

TORCH = {name: dtype for dtype, name in STORAGE.items()} | {"tf32": torch.float32}
"""Dtypes of tensors by those of problems."""
ALIGNED_ITEMS = 64
"""A folded bias begins at a multiple: some kernels copy 16 bytes at once."""


class Convolving(Rule):
    """A forward convolution. A step's values are pointers x, w, y and perhaps bias.

    Weights are dense, filter by filter; within one they lie in channels_last if there are `steps`.
    """

    kind = "convolution"

    def __init__(self, call: TunedCall, steps: tuple[tuple[str, int], ...] = ()) -> None:
        problem = call.choice.problem
        assert isinstance(problem, ConvProblem)
        sizes = problem.batch, problem.out_channels, problem.out_h * problem.out_w
        self.operator, self.device = call.operator, call.device
        self.items, self.dtype = prod(sizes), TORCH[problem.dtype]
        self._call, self._problem, self.steps = call, problem, steps
        self._filter = problem.buffers["w"][1] * problem.kernel_h * problem.kernel_w
        self._result = *sizes, problem.layout == "nhwc"
        self._empty = partial(
            torch.empty, dtype=self.dtype, device=torch.device("ocl", self.device)
        )
        self._shift = round_up(problem.out_channels * self._filter, ALIGNED_ITEMS)
        self._folds: dict[tuple[torch.dtype, bool], Launch] = {}
        self._calls: dict[tuple[bool, bool, Activation], TunedCall] = {}

    def alone(self, step: Step) -> None:
        """Enqueue the convolution."""
        self._call.with_weights(step.state, *step.values)

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue it with normalisation, residual and activation, as far as they follow."""
        norm = self._foldable(step, after[0])
        residual, activation, taken = terms_of(after[1:] if norm else after)
        taken += norm is not None
        if not taken:
            self.alone(step)
            return 0
        x, w, _, *bias = step.values
        call = self._fused(norm is not None or bool(bias), residual != 0, activation)
        if self.steps and not call.replaceable >= {*STRIDES}:
            self.alone(step)
            return 0
        y, weights = after[taken - 1].result, step.state
        added = (residual,) if residual else ()
        if norm is None:
            call.with_weights(weights, x, w, y, *bias, *added)
            return taken
        folded, weights = self._folded(norm, step, after[0], call)
        folded_w, shift = self._halves(folded)
        call.with_weights(weights, x, folded_w, y, shift, *added)
        return taken

    def _foldable(self, step: Step, behind: Step) -> Kind | None:
        """Return the normalisation `behind` this, if folding it costs less than running it."""
        rule = behind.rule
        if not isinstance(rule, Normalising) or rule.of.trains:
            return None
        kind = rule.of
        fits = (kind.batch, kind.channels, kind.inner, kind.pixels) == self._result
        kept = step.state is not None and behind.state is not None
        return kind if fits and (kept or kind.channels * self._filter <= self.items) else None

    def _folded(
        self, norm: Kind, step: Step, behind: Step, call: TunedCall
    ) -> tuple[Tensor, Weights | None]:
        """Return weights and bias with `norm` folded in, and the same if it may be kept."""
        _, w, _, *bias = step.values
        *pointers, eps, _ = behind.values
        gamma, beta, mean, variance = pointers[3:7]

        def make() -> Tensor:
            folded: Tensor = self._empty(self._shift + norm.channels)
            sources = w, *(bias or (0,)), gamma, beta, mean, variance
            self._folding(norm, bool(bias))(*sources, *self._halves(folded), eps)
            return folded

        if step.state is None or behind.state is None:
            return make(), None
        folded = made_once(step.state.joined(behind.state, eps), call, make)
        return folded, Weights(folded, ())

    def _halves(self, folded: Tensor) -> tuple[int, int]:
        """Return the addresses of the weights and of the bias behind them."""
        address = folded.data_ptr()
        return address, address + self._shift * folded.itemsize

    def _folding(self, norm: Kind, bias: bool) -> Launch:
        if (key := (norm.param, norm.affine)) not in self._folds:
            self._folds[key] = _folding(norm, self._filter, bias)
        return self._folds[key]

    def _fused(self, bias: bool, residual: bool, activation: Activation) -> TunedCall:
        if (key := (bias, residual, activation)) not in self._calls:
            problem = replace(self._problem, bias=bias, residual=residual, activation=activation)
            self._calls[key] = tuned_call(self.operator, self.device, problem, self.steps)
        return self._calls[key]


def _folding(norm: Kind, items: int, bias: bool) -> Launch:
    """Return the launch that folds `norm` into filters of `items` weights each.

    It takes w, bias, the norm's weight, bias, mean and variance, both results, and eps.
    """
    dtype, param = dtype_of(norm.dtype), dtype_of(norm.param)
    limits = devices()[norm.device].limits
    local = 1 if limits.kind == "cpu" else min(128, limits.max_work_group)
    source = render(
        "fold_batch_norm", package="ocl_backend",
        dtype=dtype, param=param, items=items, bias=bias, affine=norm.affine, local_items=local,
    )  # fmt: skip
    pointers = [dtype.item_bytes] * 2 + [param.item_bytes] * 4 + [dtype.item_bytes] * 2
    arguments: list[Argument] = [*map(Pointer, pointers), Varying("float")]
    sizes = (norm.channels * local,)
    return prepare(norm.device, source, "fold_batch_norm", sizes, arguments, (local,))
