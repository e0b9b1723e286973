"""The two launches of a recurrent layer's direction: all steps forward, and all steps backward.

They know hidden states and gates. The products with the input, and all gradients of weights, are
one product for all steps each: `recurrent_layer` makes those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch

from ocl_backend.dtypes import DTYPES, DType, dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.runtime.launch import (
    MOST_LAUNCHES,
    Argument,
    KernelLaunch,
    Pointer,
    Varying,
    prepare,
)
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div, round_up
from oclgen.render import rendered

Mode = Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]
MODES: tuple[Mode, ...] = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""By the number that `_cudnn_rnn` gives them."""
GATES: dict[Mode, int] = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
SAVED: dict[Mode, int] = {"rnn_relu": 0, "rnn_tanh": 0, "lstm": 5, "gru": 4}
"""Numbers that a unit of the hidden state keeps of a step for the backward pass."""
LANES = 32
"""A GPU's work-groups have whole warps."""
LEAST_PART = 8
"""Terms of a sum that a work-item of a GPU adds at least."""
MOST_ROWS = 8
"""Rows of the batch that a work-group has at most."""


@dataclass(frozen=True, slots=True)
class Case:
    """What decides the texts. `has_*` says which gradients the backward pass is given."""

    device: int
    dtype: torch.dtype
    mode: Mode
    hidden: int
    tile: int
    biased: bool = False
    packed: bool = False
    saves: int = 0
    has_y: bool = False
    has_h: bool = False
    has_c: bool = False

    @property
    def limits(self) -> Limits:
        """The limits of the device."""
        return devices()[self.device].limits

    @property
    def is_wide(self) -> bool:
        """Whether a work-item has vectors of units, alone in its work-group."""
        return self.limits.kind == "cpu"

    @property
    def type(self) -> DType:
        """How states are stored."""
        return dtype_of(self.dtype)

    @property
    def weight_type(self) -> DType:
        """How the hidden state's weights are stored: processors widen them once for all steps."""
        return DTYPES[torch.float32] if self.is_wide else self.type

    @property
    def gates(self) -> int:
        """How many numbers a unit's state is computed from."""
        return GATES[self.mode]

    @property
    def width(self) -> int:
        """Units of a vector."""
        if not self.is_wide:
            return 1
        widths = (16, 8, 4, 2, 1) if self.limits.has_32_vectors else (8, 4, 2, 1)
        return next(width for width in widths if width <= self.hidden)

    @property
    def wide(self) -> str:
        """The type of such a vector."""
        return vectors.vector("float", self.width)

    @property
    def lanes(self) -> int:
        """Work-items side by side along the units."""
        most = min(1024, self.limits.max_work_group)
        return 1 if self.is_wide else min(round_up(self.hidden, LANES), most // LANES * LANES)

    @property
    def splits(self) -> int:
        """Work-items that share out the sum of a unit, so that more loads are in flight."""
        if self.is_wide or self.lanes < self.hidden:
            return 1
        most = min(1024, self.limits.max_work_group) // self.lanes
        return max(1, min(most, 8, self.hidden // LEAST_PART))

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.lanes * self.splits

    @property
    def forward_part(self) -> int:
        """Terms of a sum that a split has."""
        return ceil_div(self.hidden, self.splits)

    @property
    def backward_part(self) -> int:
        """The same of the backward pass, whose sums are over all gates."""
        return ceil_div(self.gates * self.hidden, self.splits)

    @property
    def blocks_forward(self) -> int:
        """Vectors of units that a work-item has at once: few sums would wait for each other."""
        return self._blocks(self.gates * self.tile)

    @property
    def blocks_backward(self) -> int:
        """The same of the backward pass."""
        return self._blocks(self.tile)

    def _blocks(self, sums: int) -> int:
        if not self.is_wide:
            return 1
        return max(1, min(self.limits.vector_sums // 2 // sums, ceil_div(self.hidden, self.width)))

    @property
    def prelude(self) -> str:
        """What the dtype needs."""
        single = self.type.prelude
        return single + vectors.prelude(self.type, self.width).removeprefix(single)


def rows_of_group(limits: Limits, mode: Mode, batch: int) -> int:
    """Return how many rows of the batch a work-group has.

    The weights are read once for all of them, but compute units must not be idle.
    """
    most = min(MOST_ROWS, limits.vector_sums // GATES[mode]) if limits.kind == "cpu" else 4
    groups = max(ceil_div(batch, most), min(batch, limits.compute_units))
    return ceil_div(batch, groups)


def forward(case: Case, batch: int) -> KernelLaunch:
    """Return the launch of all steps.

    Its values are a `data_ptr()` for each pointer of `recurrent_forward.cl.mako` in order, then
    steps, batch, and rows from step to step, from row to row of the batch, numbers from row to row
    of y, and whether steps are walked backwards.
    """
    return _prepared(case, "recurrent_forward", ceil_div(batch, case.tile))


def backward(case: Case, batch: int) -> KernelLaunch:
    """Return the launch of all steps backwards; values as those of `forward`."""
    return _prepared(case, "recurrent_backward", ceil_div(batch, case.tile))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(case: Case, name: str, groups: int) -> KernelLaunch:
    source = rendered(name, package="ocl_backend", c=case)
    bytes_of = {"weight": case.weight_type.item_bytes, "table": 4}
    names = re.findall(r"\*(\w+), const long", source)
    arguments: list[Argument] = [
        *(Pointer(bytes_of.get(name, case.dtype.itemsize)) for name in names),
        *(Varying("int") for _ in range(6)),
    ]
    items = groups * case.items
    return prepare(case.device, source, name, (items,), arguments, (case.items,))


def is_faster(
    limits: Limits, mode: Mode, item_bytes: int, batch: int, hidden: int, learns: bool
) -> bool:
    """Say whether one launch for all steps is faster than a product and more for each step."""
    return True
