"""Products whose matrices are cut out of larger ones, around which is NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oclgen.measuring.measure import TOLERANCE, compare, decode, encode
from oclgen.measuring.reference import reference
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import GemmProblem, stored_dtype
from oclgen.variant import Variant

ALLOWED = TOLERANCE | {"bf16": 2.5e-3}
"""Errors against float64: sums are exact to fp32, which leaves what rounding to 8 bits takes."""


def check_view(
    device: Device,
    problem: GemmProblem,
    variant: Variant,
    emulated: Callable[[Plan], Plan] = lambda plan: plan,
) -> None:
    """Compare a product with float64, and what lies around its result with what did.

    Args:
        device: that computes it.
        problem: a product of floats, without epilogue.
        variant: of it.
        emulated: makes of its plan one that the device can run.
    """
    dtype = stored_dtype(problem, "a")
    rng = np.random.default_rng(0)
    large, views = {}, {}
    for role, (batch, rows, columns) in problem.buffers.items():
        array = np.full((batch, rows + 2, columns + 5), np.nan, np.float32)
        inside = (slice(None), slice(1, 1 + rows), slice(3, 3 + columns))
        drawn = encode(rng.standard_normal((batch, rows, columns), dtype=np.float32), dtype)
        array[inside] = views[role] = decode(drawn, dtype)
        large[role] = encode(array, dtype)
    strides = {f"ld_{role}": array.shape[2] for role, array in large.items()}
    strides |= {f"batch_{role}": array[0].size for role, array in large.items()}
    offsets = {role: array.shape[2] + 3 for role, array in large.items()}
    buffers = {role: device.upload(array) for role, array in large.items()}
    device.prepare(emulated(variant.plan(problem)), buffers, offsets, strides).run()

    got = device.download(buffers["c"], large["c"])
    inside = (slice(None), slice(1, 1 + problem.m), slice(3, 3 + problem.n))
    result = decode(got[inside], dtype)
    _, reason = compare(result, reference(problem, views), ALLOWED[problem.dtype])
    assert not reason, reason
    got[inside] = large["c"][inside]
    assert got.tobytes() == large["c"].tobytes()
