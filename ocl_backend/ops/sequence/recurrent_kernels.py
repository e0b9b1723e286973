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
    LaunchSequence,
    Part,
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
LANES, MOST_ITEMS = 32, 1024
"""A GPU's work-groups have whole warps, and no more work-items than this."""
LEAST_PART, MOST_SPLITS = 8, 8
"""Terms of a sum that a work-item of a GPU adds at least, and work-items that share out a sum."""
MOST_ROWS = 8
"""Rows of the batch that a processor's work-group has at most; a GPU's has half of them."""
MOST_WIDENED = 2**19
"""Bytes of weights in float32."""
TURNED = 16
"""Numbers along each side of a square of weights that a work-item turns."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of a work-group's rows with weights; `width` 0 is a GPU's."""

    columns: int
    terms: int
    tile: int
    width: int
    lanes: int
    blocks: int
    splits: int = 1

    @property
    def part(self) -> int:
        """Terms of a sum that a split has."""
        return ceil_div(self.terms, self.splits)

    @staticmethod
    def of(columns: int, terms: int, tile: int, limits: Limits) -> Product:
        """Return how a device makes a product.

        Args:
            columns: of the weights.
            terms: of a sum.
            tile: rows of the work-group.
            limits: of the device.
        """
        if limits.kind == "cpu":
            width = width_of(columns, limits)
            blocks = min(limits.vector_sums // 2 // tile, ceil_div(columns, width))
            return Product(columns, terms, tile, width, 1, max(1, blocks))
        most = min(MOST_ITEMS, limits.max_work_group) // LANES * LANES
        blocks = ceil_div(columns, most)
        lanes = round_up(ceil_div(columns, blocks), LANES)
        splits = max(1, min(most // lanes, MOST_SPLITS, terms // LEAST_PART))
        return Product(columns, terms, tile, 1, lanes, blocks, splits)


def width_of(items: int, limits: Limits) -> int:
    """Return how many items a processor's vector has where a row has so many at least.

    Shorter vectors would ask for alignment (`vectors.at_once`).
    """
    widths = (16, 8, 1) if limits.has_32_vectors else (8, 1)
    return next(width for width in widths if width <= items)


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
    is_backward: bool = False
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
        """How the hidden state's weights are stored.

        A processor widens few of them once for all steps. More would leave its second cache.
        """
        is_small = 4 * self.gates * self.hidden**2 <= MOST_WIDENED
        return DTYPES[torch.float32] if self.is_wide and is_small else self.type

    @property
    def gates(self) -> int:
        """How many numbers a unit's state is computed from."""
        return GATES[self.mode]

    @property
    def width(self) -> int:
        """Units of a vector."""
        return width_of(self.hidden, self.limits) if self.is_wide else 1

    @property
    def product(self) -> Product:
        """The product of a step."""
        sizes = self.gates * self.hidden, self.hidden
        return Product.of(*(sizes[::-1] if self.is_backward else sizes), self.tile, self.limits)

    @property
    def items(self) -> int:
        """Work-items of a work-group: a GPU's has one for each unit at least."""
        product = self.product
        return max(product.lanes * product.splits, 1 if self.is_wide else self.hidden)

    @property
    def parts(self) -> int:
        """Sums that splits hand over."""
        product = self.product
        return max(1, (product.splits - 1) * product.blocks * product.tile * product.lanes)

    @property
    def prelude(self) -> str:
        """What the dtype needs."""
        widths = {self.width, self.product.width}
        text = self.type.prelude
        for width in sorted(widths - {1}):
            text += vectors.prelude(self.type, width).removeprefix(self.type.prelude)
        return text


def rows_of_group(limits: Limits, batch: int) -> int:
    """Return how many rows of the batch a work-group has.

    The weights are read once for all of them, but compute units must not be idle.
    """
    most = MOST_ROWS if limits.kind == "cpu" else MOST_ROWS // 2
    groups = max(ceil_div(batch, most), min(batch, limits.compute_units))
    return ceil_div(batch, groups)


def turned(case: Case) -> KernelLaunch:
    """Return the launch that writes weights [gates, hidden] as [hidden, gates]: source, target.

    The forward pass reads them so, in the type of `weight_type`.
    """
    rows = case.gates * case.hidden
    return _prepared_turn(case.device, case.type, case.weight_type, rows, case.hidden)


@lru_cache(maxsize=256)
def _prepared_turn(
    device: int, source: DType, target: DType, rows: int, columns: int
) -> KernelLaunch:
    limits = devices()[device].limits
    deep = TURNED if limits.kind == "cpu" else 1
    text = rendered(
        "recurrent_turn", package="ocl_backend", source=source, target=target, rows=rows,
        columns=columns, deep=deep, across=TURNED,
    )  # fmt: skip
    sizes = ceil_div(rows, deep), ceil_div(columns, TURNED)
    spread = vectors.in_groups(sizes, limits)
    pointers = Pointer(source.item_bytes), Pointer(target.item_bytes)
    return prepare(device, text, "recurrent_turn", spread.sizes, pointers, spread.local)


@lru_cache(maxsize=MOST_LAUNCHES)
def forward(case: Case, batch: int) -> LaunchSequence:
    """Return the launches of all steps.

    Its values are a `data_ptr()` for each pointer of `recurrent_forward.cl.mako` in order, then
    steps, batch, and rows from step to step, from row to row of the batch, numbers from row to row
    of y, and whether steps are walked backwards. The turned weights are kept (`LaunchSequence`).
    """
    walk = _prepared(case, "recurrent_forward", ceil_div(batch, case.tile))
    count = len(walk.words)
    room = case.gates * case.hidden**2 * case.weight_type.item_bytes
    places = (0, count, *range(2, count))
    parts = Part(turned(case), (1, count)), Part(walk, places)
    return LaunchSequence(case.device, parts, count, (room,), of_weights=1)


def backward(case: Case, batch: int) -> KernelLaunch:
    """Return the launch of all steps backwards; values as those of `forward`."""
    return _prepared(case, "recurrent_backward", ceil_div(batch, case.tile))


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(case: Case, name: str, groups: int) -> KernelLaunch:
    product = rendered(
        "recurrent_product", package="ocl_backend", c=case.product, weight=case.weight_type
    )
    source = rendered(name, package="ocl_backend", c=case, product=product)
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
