"""One kernel of each family on every device, as its default is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oclgen.families import FAMILIES
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import (
    DIRECTIONS,
    AttentionProblem,
    ConvProblem,
    GemmProblem,
    PackedProblem,
    Problem,
)

PROBLEMS: list[Problem] = [
    GemmProblem(17, 24, 19),
    AttentionProblem(1, 2, 1, 5, 9, 8, 16, causal=True),
    AttentionProblem(1, 2, 1, 5, 9, 8, 16, "bf16"),
    GemmProblem(17, 24, 24, trans_b=True),
    GemmProblem(1, 24, 40),
    PackedProblem(3, 24, 64),
    GemmProblem(16, 24, 32, dtype="bf16"),
    GemmProblem(16, 24, 32, dtype="bf16", trans_b=True),
    *(
        replace(shape, layout=layout, direction=direction)
        for shape in (
            ConvProblem(2, 16, 9, 9, 16, 3, 3, pad_h=1, pad_w=1),
            ConvProblem(2, 16, 9, 9, 16, 3, 3, pad_h=1, pad_w=1, groups=16),
            ConvProblem(2, 16, 6, 6, 16, 1, 1),
            ConvProblem(2, 16, 6, 6, 16, 1, 1, dtype="bf16"),
            ConvProblem(2, 16, 6, 6, 16, 3, 3, dtype="bf16"),
        )
        for layout in ("nchw", "nhwc")
        for direction in DIRECTIONS
    ),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_default_is_right(device: Device, name: str) -> None:
    """A family that the device cannot run, by lack of an instruction for instance, says why."""
    family = FAMILIES[name]
    served = [problem for problem in PROBLEMS if family.serves(problem)]
    assert served, f"{name} serves none of the problems above: add one that it does"
    reasons = {problem.key(): family.DEFAULT.why_not(problem, device.limits) for problem in served}
    runnable = [problem for problem in served if reasons[problem.key()] is None]
    if not runnable:
        pytest.skip(next(filter(None, reasons.values())))
    result = Bench(device, runnable[0]).measure(family.plan(runnable[0], family.DEFAULT), 0.0)
    assert result.ok, f"{runnable[0].key()}: {result.reason}"
