"""Runs a plan on images and weights in channels_last that start inside their buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from oclgen.families.parts.strided_weights import STRIDES
from oclgen.measuring.measure import TOLERANCE, compare, decode, encode
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import ConvProblem

START = 3
"""Elements in front of everything: no vector is aligned."""


def difference(device: Device, problem: ConvProblem, plan: Plan) -> str:
    """Return why the result of an "nhwc" problem is wrong, or ""; w lies in channels_last, too."""
    depth, columns = problem.in_channels // problem.groups, problem.kernel_w
    per_filter = depth * problem.kernel_h * columns
    strides = dict(zip(STRIDES, (per_filter, 1, columns * depth, depth), strict=True))

    def lying(role: str, array: Any) -> Any:
        is_read = role == "w" and problem.output != "w"
        return array.transpose(0, 2, 3, 1) if is_read else array

    inputs = random_inputs(problem, 0)
    stored = {role: encode(array, problem.dtype) for role, array in inputs.items()}
    like = encode(np.zeros(problem.buffers[problem.output], np.float32), problem.dtype)
    offsets = dict.fromkeys((*stored, problem.output), START)
    front = np.zeros(START, like.dtype)
    buffers = {
        role: device.upload(np.concatenate([front, lying(role, array).ravel()]))
        for role, array in (*stored.items(), (problem.output, like))
    }
    device.prepare(plan, buffers, offsets, strides).run()
    out = device.download(buffers[problem.output], like, START * like.itemsize)
    exact = {role: decode(array, problem.dtype) for role, array in stored.items()}
    expected = reference(problem, exact)
    return compare(decode(out, problem.dtype), expected, TOLERANCE[problem.dtype])[1]
