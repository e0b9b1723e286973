"""Calls the tuned GEMM on pyopencl arrays, with numpy and without torch.

It tunes nothing: `oclgen tune --gemm 300x500x700` makes it faster the next time.
"""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array

from oclgen.opencl.device import select
from oclgen.problem import GemmProblem
from tuned_db.choosing.chooser import Chooser
from tuned_db.storage.store import open_store

device = select(0)
problem = GemmProblem(300, 500, 700, bias="n", activation="relu")
rng = np.random.default_rng(0)
arrays = {
    role: cl_array.to_device(device.queue, rng.standard_normal(shape, dtype=np.float32))
    for role, shape in problem.buffers.items()
}

choice = Chooser(open_store(), device.info, device.limits).choose(problem)
plan = choice.variant.plan(problem)
gemm = device.prepare(plan, {role: array.data for role, array in arrays.items()})
ms = gemm.run()

a, b, c, bias = (arrays[role].get() for role in ("a", "b", "c", "bias"))
error = float(np.abs(c - np.maximum(a @ b + bias, 0)).max())
rate = problem.flops / ms * 1e-6
print(f"{device.name}: {choice.variant.family} ({choice.rung}) {rate:.1f} GFLOP/s")
print(f"largest difference to numpy: {error:.1e}")
