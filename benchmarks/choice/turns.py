"""Times variants of a problem by turns, each turn's least time kept apart.

The variants are verified before: nothing is compared here. A turn of a variant takes milliseconds,
so that all variants meet the same load of other programs, and each turn is an independent sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oclgen.measuring.measure import encode
from oclgen.measuring.reference import random_inputs
from oclgen.opencl.device import BuildError, Device, LaunchError, PreparedPlan
from oclgen.problem import Problem, stored_dtype
from oclgen.variant import Variant

TURN_MS, LEAST, MOST = 6.0, 2, 30
"""Milliseconds of a variant's turn, and its launches at least and at most; one goes before them,
because another variant's data are in the caches."""
WORKSPACES = 2**30
"""Bytes of workspaces of all variants: what needs more is not timed."""


class Ready:
    """Variants of a problem on a device, with inputs, ready to be timed.

    Args:
        device: where they run.
        problem: what they compute.
        variants: which were verified.
        seed: draws the inputs.
    """

    def __init__(
        self, device: Device, problem: Problem, variants: Sequence[Variant], seed: int
    ) -> None:
        self._device = device
        given = random_inputs(problem, seed)
        nothing = {r: np.zeros(problem.buffers[r], np.float32) for r in problem.outputs}
        self._buffers = {
            role: device.upload(np.ascontiguousarray(encode(array, stored_dtype(problem, role))))
            for role, array in {**given, **nothing}.items()
        }
        self._left = WORKSPACES
        self.prepared = [self._prepared(problem, variant) for variant in variants]

    def turn(self, backwards: bool = False) -> list[float | None]:
        """Return each variant's least time in a turn, ms; None for what could not be prepared.

        Args:
            backwards: whether the last one begins.
        """
        found: list[float | None] = [None] * len(self.prepared)
        order = range(len(found))
        for at in reversed(order) if backwards else order:
            if (each := self.prepared[at]) is not None:
                found[at] = _least(each)
        return found

    def turns(self, count: int) -> list[tuple[float, ...]]:
        """Return each variant's times of `count` turns; none for what could not be prepared."""
        found = [self.turn(backwards=bool(at % 2)) for at in range(count)]
        return [tuple(ms for ms in times if ms is not None) for times in zip(*found, strict=True)]

    def _prepared(self, problem: Problem, variant: Variant) -> PreparedPlan | None:
        plan = variant.plan(problem)
        self._left -= sum(size for _, size in plan.workspaces)
        if self._left < 0:
            return None
        try:
            return self._device.prepare(plan, self._buffers)
        except (BuildError, LaunchError):
            return None


def _least(prepared: PreparedPlan) -> float:
    prepared.run()
    samples: list[float] = []
    while len(samples) < LEAST or (len(samples) < MOST and sum(samples) < TURN_MS):
        samples.append(prepared.run())
    return min(samples)
