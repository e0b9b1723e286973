"""What `conv_mma` says anywhere, computes where there are matrix units, and does around them anywhere."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from conv_cases import SHAPES, label
from mma_emulated import units

from oclgen.device import Device
from oclgen.families import conv_mma
from oclgen.limits import KIB, Limits
from oclgen.measure import TOLERANCE, Bench, compare, decode
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem

HOPPER = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma"}),
)  # fmt: skip
MMA = conv_mma.DEFAULT
WGMMA = replace(MMA, unit="wgmma", warps_m=4, warps_n=1, tile_k=16, stages=3)
CONFIGS = (
    replace(MMA, tile_k=16, stages=3, split_k=2),
    replace(MMA, tile_m=128, tile_n=64, warps_m=4, warps_n=1, group_m=1),
    replace(WGMMA, tile_m=64, tile_n=128, warps_n=2),
)
WHOLE = (
    ConvProblem(2, 16, 7, 6, 24, 3, 3, 1, 1, 1, 1),
    ConvProblem(1, 24, 9, 8, 16, 3, 2, 2, 2, 1, 0, 1, 2),
    ConvProblem(3, 64, 5, 4, 72, 1, 1),
)
"""Convolutions whose channels fill chunks of 16 bytes, which are read in place."""
CASES = tuple(
    replace(
        shape, dtype=dtype, direction=direction, layout=layout,
        bias=direction == "fwd", activation="relu" if direction == "fwd" else "none",
    )
    for place, shape in enumerate((*WHOLE, *(s for s in SHAPES if s.groups == 1)))
    for direction in DIRECTIONS
    for layout, dtype in zip(LAYOUTS, conv_mma.gemm_mma.DTYPES_SERVED[place % 2:], strict=False)
)  # fmt: skip


def fits(problem: ConvProblem, config: conv_mma.Config) -> conv_mma.Config | None:
    """Return the config as far as it may serve the problem: slices that are not empty."""
    for split_k in (config.split_k, 1):
        tried = replace(config, split_k=split_k)
        if tried.why_not(problem, HOPPER) is None:
            return tried
    return None


@pytest.mark.parametrize("problem", CASES, ids=label)
def test_around_the_units(
    device: Device, problem: ConvProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_mma, "units", units)
    bench = Bench(device, problem)
    for config in CONFIGS:
        if (config := fits(problem, config)) and config.unit == "wgmma":
            plan = conv_mma.plan(problem, config)
            result = bench.measure(replace(plan, launches=tuple(map(plain, plan.launches))), 0.0)
        elif config:
            result = bench.measure(conv_mma.plan(problem, config), 0.0)
        assert result.ok, f"{config}: {result.reason}"


def plain(launch: Any) -> Any:
    """Return the launch without the mark of a target that emulated units do not need."""
    return replace(launch, source=launch.source.removeprefix("// ptx-target: sm_90a\n"))
