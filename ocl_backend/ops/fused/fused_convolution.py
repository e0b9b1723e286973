"""A convolution with what follows it: batch normalisation in evaluation, residual, activation.

The normalisation is folded into weights and bias (`folding`), the others are part of the
convolution's store. `held` decides when launches are held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch

from ocl_backend.dispatch.settings import KEEP_WEIGHTS
from ocl_backend.dispatch.tuned import TunedCall, tuned_call
from ocl_backend.dtypes import STORAGE, dtype_of
from ocl_backend.fusion.held import Rule, Step, Way
from ocl_backend.ops.fused.folding import Folding
from ocl_backend.ops.fused.fused_pointwise import other_of, terms_of
from ocl_backend.ops.norm.batch_norm import Normalising
from oclgen.families.parts.strided_weights import STRIDES
from oclgen.opencl.device import devices
from oclgen.problem import ConvProblem

TORCH = {name: dtype for dtype, name in STORAGE.items()} | {"tf32": torch.float32}
"""Dtypes of tensors by those of problems."""


class Fused(NamedTuple):
    """How a chain runs: the call that computes as many of its followers as are `taken`.

    `folds` says whether the first is a normalisation, `added` which is an addition; None: none is.
    """

    call: TunedCall
    taken: int
    folds: bool
    added: int | None


class Convolving(Rule):
    """A forward convolution. A step's values are pointers x, w, y and perhaps bias.

    Weights are dense, filter by filter; within one they lie in channels_last if there are `steps`.
    """

    kind = "convolution"
    result = 2
    follows = False

    def __init__(self, call: TunedCall, steps: tuple[tuple[str, int], ...] = ()) -> None:
        problem = call.problem
        assert isinstance(problem, ConvProblem)
        sizes = problem.batch, problem.out_channels, problem.out_h * problem.out_w
        self.operator, self.device = call.operator, call.device
        self.items, self.dtype = prod(sizes), TORCH[problem.dtype]
        self._call, self._problem, self.steps = call, problem, steps
        self._weights = prod(problem.buffers["w"])
        self._result = *sizes, problem.layout == "nhwc"
        self._fused: dict[tuple[object, ...], Fused | None] = {}
        self.ways = (Way(0, (1, 3) if problem.bias else (1,), (2,)),)

    def offer(self, values: tuple[int, ...]) -> None:
        """Hold the convolution back for what may follow, or run it."""
        self._call.offer(self, values)

    def alone(self, step: Step) -> None:
        """Enqueue the convolution."""
        self._call(*step.values)

    def fuse(self, step: Step, after: Sequence[Step]) -> int:
        """Enqueue it with normalisation, residual and activation, those of them that follow."""
        x, w, _, *given = step.values
        norm, kept = after[0], KEEP_WEIGHTS.value and not torch.is_grad_enabled()
        eps = norm.values[-2] if isinstance(norm.rule, Normalising) else None
        key = (*[held.rule for held in after], len(given), kept, eps)
        try:
            fused = self._fused[key]
        except KeyError:
            fused = self._fused[key] = self._chain(after, bool(given), kept, eps)
        if fused is None:
            self.alone(step)
            return 0
        y, given = after[fused.taken - 1].result, given or [0] * fused.folds
        if fused.added is not None:
            given.append(other_of(after[fused.added]))
        fused.call(x, w, y, *given, *(norm.values[3:7] if fused.folds else ()))
        return fused.taken

    def _chain(
        self, after: Sequence[Step], bias: bool, kept: bool, eps: float | None
    ) -> Fused | None:
        """Return how the steps `after` this are one with it, or None if they cannot be.

        `eps` is the normalisation's, and None if the first is none; `kept` says whether folded
        weights will be.
        """
        folding, first = None, after[0].rule
        if isinstance(first, Normalising) and eps is not None and self._pays(first, kept):
            folding = self._folding(first, bias, eps)
        folds = folding is not None
        residual, activation, taken = terms_of(after[1:] if folds else after)
        if not folds and not taken:
            return None
        problem = replace(
            self._problem, bias=bias or folds, residual=residual != 0, activation=activation
        )
        call = tuned_call(self.operator, self.device, problem, self.steps, folding)
        if self.steps and not call.replaceable >= {*STRIDES}:
            return None
        return Fused(call, taken + folds, folds, int(folds) if residual else None)

    def _pays(self, behind: Normalising, kept: bool) -> bool:
        """Whether folding the normalisation `behind` this costs less than running it."""
        kind = behind.of
        fits = (kind.batch, kind.channels, kind.inner, kind.pixels) == self._result
        return fits and not kind.trains and (kept or self._weights <= self.items)

    def _folding(self, behind: Normalising, bias: bool, eps: float) -> Folding:
        limits = devices()[self.device].limits
        local = 1 if limits.kind == "cpu" else min(128, limits.max_work_group)
        dtypes = dtype_of(self.dtype), dtype_of(behind.of.param)
        return Folding(*dtypes, bias, behind.of.affine, eps, local)
