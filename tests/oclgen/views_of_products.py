"""Products whose matrices are cut out of larger ones, around which is NaN."""

from __future__ import annotations

import numpy as np

from oclgen.measuring.measure import compare, decode, encode
from oclgen.measuring.reference import reference
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from oclgen.variant import Variant


def check_view(device: Device, problem: GemmProblem, variant: Variant) -> None:
    """Compare a product in bf16 with float64, and what lies around its result with what did."""
    rng = np.random.default_rng(0)
    large, views = {}, {}
    for role, (batch, rows, columns) in problem.buffers.items():
        array = np.full((batch, rows + 2, columns + 5), np.nan, np.float32)
        inside = (slice(None), slice(1, 1 + rows), slice(3, 3 + columns))
        drawn = encode(rng.standard_normal((batch, rows, columns), dtype=np.float32), "bf16")
        array[inside] = views[role] = decode(drawn, "bf16")
        large[role] = encode(array, "bf16")
    strides = {f"ld_{role}": array.shape[2] for role, array in large.items()}
    strides |= {f"batch_{role}": array[0].size for role, array in large.items()}
    offsets = {role: array.shape[2] + 3 for role, array in large.items()}
    buffers = {role: device.upload(array) for role, array in large.items()}
    device.prepare(variant.plan(problem), buffers, offsets, strides).run()

    got = device.download(buffers["c"], large["c"])
    inside = (slice(None), slice(1, 1 + problem.m), slice(3, 3 + problem.n))
    _, reason = compare(decode(got[inside], "bf16"), reference(problem, views), 2.5e-3)
    assert not reason
    got[inside] = large["c"][inside]
    assert np.array_equal(got, large["c"])
