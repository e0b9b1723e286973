"""Whether one launch for all steps of a recurrent layer is faster than the operators of each step.

An estimate from sizes: a launch per work-group walks the steps without the host, but a work-group
has only its own compute unit, and no matrix units. A step's operators have all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ocl_backend.ops.sequence.recurrent_kernels import GATES, Mode, rows_of_group
from oclgen.limits import Limits
from oclgen.plan import ceil_div

MOST_UNITS = 1024
"""A GPU's work-group has a work-item for each unit of the hidden state."""


class Costs(NamedTuple):
    """Microseconds that a step's operators take beside their arithmetic, and speeds of a core.

    `products` are multiply-adds per microsecond of a compute unit, `bytes` those of weights that it
    reads, `begun` what a step takes at least. `forward` and `both` are launches of a step, without
    gradients and with them: two and some 14, or on processors what their runtime takes for them.
    """

    products: float
    bytes: float
    begun: float
    forward: float
    both: float


PROCESSOR = Costs(products=100e3, bytes=60e3, begun=0.0, forward=20.0, both=120.0)
"""Measured on a core of Zen 5 with Intel's runtime: 10 steps of LSTM took 0.8 ms for 32 rows of 256
units, and 2.7 ms for one row of 1024 units, whose weights are 17 MB."""
GPU = Costs(products=109e3, bytes=109e3, begun=1.5, forward=12.0, both=84.0)
"""Half of the fp32 units' and 64 bytes per clock at 1.7 GHz, and 6 us a launch: an H200's."""
DOTS = {"vdpbf16ps": 2.0, "tdpbf16ps": 8.0}
"""How much faster a processor multiplies numbers of bf16 by these instructions."""
HALF_DOTS = {"tdpfp16ps": 8.0}
"""The same of fp16."""


def is_faster(
    limits: Limits, mode: Mode, dtype: torch.dtype, batch: int, hidden: int, learns: bool
) -> bool:
    """Say whether a launch for all steps is faster, and has room.

    Args:
        limits: of the device.
        mode: of the network.
        dtype: of states and weights.
        batch: rows of the batch.
        hidden: size of the hidden state.
        learns: whether a backward pass follows.
    """
    tile = rows_of_group(limits, mode, batch, hidden)
    if not tile or (limits.kind != "cpu" and hidden > min(MOST_UNITS, limits.max_work_group)):
        return False
    groups = ceil_div(batch, tile)
    weights, times = GATES[mode] * hidden**2, ceil_div(groups, limits.compute_units)
    costs = PROCESSOR if limits.kind == "cpu" else GPU
    reading = weights * dtype.itemsize / costs.bytes
    adding = weights * tile / costs.products
    if limits.kind == "cpu":  # what a step's operators gain: idle cores, and instructions
        busy = min(groups, limits.compute_units) / limits.compute_units
        reading *= 1 - busy
        adding *= 1 - busy / _instructions_gain(limits, dtype)
    step = times * (costs.begun + max(reading, adding))
    return 2 * step < costs.both if learns else step < costs.forward


def _instructions_gain(limits: Limits, dtype: torch.dtype) -> float:
    known = {torch.bfloat16: DOTS, torch.float16: HALF_DOTS}.get(dtype, {})
    return max((gain for name, gain in known.items() if name in limits.instructions), default=1.0)
