"""Attention on views whose heads lie between the rows, as in most models, with NaNs around all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oclgen.families.attention.attention_parts import AXES, STRIDED
from oclgen.measuring.measure import TOLERANCE, compare, decode, encode
from oclgen.measuring.reference import random_inputs, references
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import AttentionProblem

Array = NDArray[Any]

INSIDE = (slice(None), slice(1, -1), slice(None), slice(3, -2))
"""Rows and items of a larger array [batch, rows, heads, items] that are those of the view."""


def check_views(device: Device, problem: AttentionProblem, plan: Plan) -> None:
    """Assert that a plan reads and writes its views alone, and writes what float64 does."""
    dtype = problem.dtype
    inputs = random_inputs(problem, seed=0)
    large, buffers, offsets = {}, {}, {}
    strides: dict[str, int] = {}
    for role in STRIDED[problem.direction]:
        batch, heads, rows, items = problem.buffers[role]
        array = np.full((batch, rows + 2, heads, items + 5), np.nan, np.float32)
        array[INSIDE] = inputs[role].swapaxes(1, 2) if role in inputs else 0.0
        large[role] = encode(array, dtype)
        buffers[role] = device.upload(large[role])
        offsets[role] = heads * (items + 5) + 3
        steps = (array[0].size, items + 5, heads * (items + 5))
        strides |= {f"{role}_{axis}": step for axis, step in zip(AXES, steps, strict=False)}
        if role in inputs:
            inputs[role] = _view(large[role], dtype)
    for role in ("lse", "delta"):
        if role in problem.buffers:
            dense = inputs.get(role, np.zeros(problem.buffers[role], np.float32))
            buffers[role] = device.upload(dense)
    device.prepare(plan, buffers, offsets, strides).run()

    expected = references(problem, inputs)
    for role in set(problem.outputs) & set(large):
        got = device.download(buffers[role], large[role])
        _, reason = compare(_view(got, dtype), expected[role], TOLERANCE[dtype])
        assert not reason, f"{role}: {reason}"
        got[INSIDE] = large[role][INSIDE]
        assert np.array_equal(got, large[role]), f"{role}: something around the view was written"


def _view(array: Array, dtype: str) -> Array:
    return decode(array[INSIDE].swapaxes(1, 2), dtype)
