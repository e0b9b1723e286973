"""Which launches of a recurrent layer are fastest: one for all steps, one a step, or operators.

An estimate from sizes: where one launch walks all steps, a work-group has only its own compute
unit. A launch for each step has all of a GPU's, and takes a command. A step's operators have matrix
units, too, and cost the host.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import NamedTuple

import torch

from ocl_backend.ops.sequence.recurrent_kernels import GATES, Mode, Product, rows_of_group
from ocl_backend.ops.sequence.recurrent_steps import rows_of_block
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
GPU = Costs(products=109e3, bytes=109e3, begun=2.5, forward=45.0, both=130.0)
"""Half of the fp32 units' and 64 bytes per clock at 1.7 GHz: an H200's. A step's operators take
its host 31 to 58 us, and with gradients 110 to 190 (38 layers, 2026-11-30)."""
WAIT = 0.08
"""Microseconds from one term of a sum to the next where a GPU's work-group walks the steps: 0.04 to
0.12 in 25 layers of 23 to 503 units (H200, 2026-12-01)."""
COMMAND = 11.0
"""Microseconds between the begins of steps that are launches of one sequence (8 to 13 there)."""
SHARED = 0.5
"""Part of its rates that a compute unit reaches in such a step, where all read the same memory."""
DOTS = {"vdpbf16ps": 2.0, "tdpbf16ps": 8.0}
"""How much faster a processor multiplies numbers of bf16 by these instructions."""
HALF_DOTS = {"tdpfp16ps": 8.0}
"""The same of fp16."""


def is_faster(
    limits: Limits,
    mode: Mode,
    dtype: torch.dtype,
    batch: int,
    hidden: int,
    learns: bool,
    is_long: bool = False,
) -> bool:
    """Say whether launches for all steps are faster than the operators of each, and have room.

    Args:
        limits: of the device.
        mode: of the network.
        dtype: of states and weights.
        batch: rows of the batch.
        hidden: size of the hidden state.
        learns: whether a backward pass follows.
        is_long: whether there are too many steps for a launch each.
    """
    costs = PROCESSOR if limits.kind == "cpu" else GPU
    sizes = mode, dtype.itemsize, batch, hidden
    step = _walked(limits, *sizes, _instructions_gain(limits, dtype))
    if not is_long:
        step = min(step, _shared(limits, *sizes))
    return 2 * step < costs.both if learns else step < costs.forward


@lru_cache(maxsize=1024)
def is_stepped(limits: Limits, mode: Mode, item_bytes: int, batch: int, hidden: int) -> bool:
    """Say whether a launch for each step is faster than one for all.

    Args:
        limits: of the device.
        mode: of the network.
        item_bytes: of states and weights.
        batch: rows of the batch.
        hidden: size of the hidden state.
    """
    sizes = mode, item_bytes, batch, hidden
    return _shared(limits, *sizes) < _walked(limits, *sizes)


def _walked(
    limits: Limits, mode: Mode, item_bytes: int, batch: int, hidden: int, gain: float = 1.0
) -> float:
    """Return the microseconds of a step where a launch walks all steps; infinite without room.

    `gain` is how much faster instructions of a step's operators multiply.
    """
    tile = rows_of_group(limits, mode, batch, hidden)
    if not tile or (limits.kind != "cpu" and hidden > min(MOST_UNITS, limits.max_work_group)):
        return inf
    groups = ceil_div(batch, tile)
    weights, times = GATES[mode] * hidden**2, ceil_div(groups, limits.compute_units)
    costs = PROCESSOR if limits.kind == "cpu" else GPU
    reading = weights * item_bytes / costs.bytes
    adding = weights * tile / costs.products
    if limits.kind != "cpu":
        product = Product.of(GATES[mode] * hidden, hidden, tile, limits)
        adding = max(adding, WAIT * product.blocks * product.part)
    else:  # what a step's operators gain: idle cores, and instructions
        busy = min(groups, limits.compute_units) / limits.compute_units
        reading *= 1 - busy
        adding *= 1 - busy / gain
    return times * (costs.begun + max(reading, adding))


def _shared(limits: Limits, mode: Mode, item_bytes: int, batch: int, hidden: int) -> float:
    """Return the microseconds of a step that is a launch; infinite on a processor and without room.

    Its rows are read in tiles, each of which reads all weights.
    """
    if limits.kind == "cpu" or not (tile := rows_of_block(limits, batch, GATES[mode] * hidden)):
        return inf
    weights, units = GATES[mode] * hidden**2, SHARED * limits.compute_units
    reading = ceil_div(batch, tile) * weights * item_bytes / (units * GPU.bytes)
    return max(COMMAND, GPU.begun + max(reading, weights * batch / (units * GPU.products)))


def _instructions_gain(limits: Limits, dtype: torch.dtype) -> float:
    known = {torch.bfloat16: DOTS, torch.float16: HALF_DOTS}.get(dtype, {})
    return max((gain for name, gain in known.items() if name in limits.instructions), default=1.0)
