"""The two launches of a recurrent layer's direction: all steps forward, and all steps backward.

They know hidden states and gates. The products with the input, and all gradients of weights, are
one product for all steps each: `recurrent_layer` makes those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

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
SAVED: dict[Mode, int] = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 6, "gru": 5}
"""Numbers that a unit of the hidden state keeps of a step for the backward pass, itself among them:
a program may overwrite y."""
MOST_ITEMS = 1024
"""Work-items of a GPU's work-group at most."""
NEIGHBOURS, TERMS_AT_ONCE = 4, 4
"""Columns of a GPU's work-item, and terms whose weights it asks for before it multiplies: a loop of
single loads waits 150 ns for each term (H200)."""
FEW_COLUMNS = 128
"""Columns up to which a GPU's work-item has one, as there are work-items to spare."""
LEAST_PART, MOST_SPLITS = 8, 8
"""Terms of a sum that a work-item of a GPU adds at least, and work-items that share out a sum."""
MOST_ROWS = 8
"""Rows of the batch that a processor's work-group has at most; a GPU's has half of them."""
MOST_WIDENED = 2**19
"""Bytes of weights in float32."""
TURNED = 16
"""Terms that a work-item lays out at once: a cache line of the weights."""


class WeightBlocks(NamedTuple):
    """How weights lie as a product reads them: blocks of `across` columns, each term by term."""

    columns: int
    terms: int
    across: int

    @property
    def stride(self) -> int:
        """Columns of all blocks, the last one filled up."""
        return round_up(self.columns, self.across)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of a work-group's rows with weights, and how these lie.

    Of a row of sums `blocks` vectors of a work-item are in registers at once.
    """

    columns: int
    terms: int
    tile: int
    is_wide: bool
    width: int
    lanes: int
    blocks: int
    splits: int = 1

    @property
    def part(self) -> int:
        """Terms of a sum that a split has."""
        return round_up(ceil_div(self.terms, self.splits), self.terms_at_once)

    @property
    def terms_at_once(self) -> int:
        """Terms whose weights are loaded before the first is multiplied."""
        return 1 if self.is_wide else TERMS_AT_ONCE

    @property
    def parts(self) -> int:
        """Sums that splits hand over, 1 at least."""
        return max(1, (self.splits - 1) * self.blocks * self.tile * self.lanes * self.width)

    @property
    def across(self) -> int:
        """Columns whose weights lie side by side."""
        return self.width * self.blocks if self.is_wide else round_up(self.columns, self.width)

    @property
    def stride(self) -> int:
        """Numbers from one row of sums to the next."""
        return self.weight_blocks.stride

    @property
    def weight_blocks(self) -> WeightBlocks:
        """How its weights lie."""
        return WeightBlocks(self.columns, self.terms, self.across)

    @staticmethod
    def of(columns: int, terms: int, tile: int, limits: Limits) -> Product:
        """Return how a device makes a product.

        A GPU's work-group has a work-item for each unit of the hidden state: the fewer ones of
        columns and terms.

        Args:
            columns: of the weights.
            terms: of a sum.
            tile: rows of the work-group.
            limits: of the device.
        """
        if limits.kind == "cpu":
            width = width_of(columns, limits)
            count = ceil_div(columns, width)
            passes = ceil_div(count, max(1, limits.vector_sums // tile))
            return Product(columns, terms, tile, True, width, 1, ceil_div(count, passes))
        most = min(MOST_ITEMS, limits.max_work_group)
        width = 1 if columns <= FEW_COLUMNS else NEIGHBOURS
        blocks = ceil_div(columns, width * most)
        lanes = ceil_div(columns, width * blocks)
        splits = max(1, min(most // lanes, MOST_SPLITS, terms // LEAST_PART))
        lanes = max(lanes, ceil_div(min(columns, terms), splits))
        return Product(columns, terms, tile, False, width, lanes, blocks, splits)


def width_of(items: int, limits: Limits) -> int:
    """Return the items of a processor's vector, no more than a row has.

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
    def inputs(self) -> list[str]:
        """Names of the tensors that all steps read, in the order of the launches' values."""
        first = ["h_0", *["c_0"] * (self.mode == "lstm")]
        if not self.is_backward:
            return ["x", "weight", *["bias", "hidden_bias"] * self.biased, *first]
        given = {"grad_y": self.has_y, "grad_h": self.has_h, "grad_c": self.has_c}
        return ["weight", *first, "saved", *(name for name, has in given.items() if has)]

    @property
    def outputs(self) -> list[str]:
        """Names of those that they write, which come next."""
        lstm, gru = self.mode == "lstm", self.mode == "gru"
        if not self.is_backward:
            return ["y", "h_n", *["c_n"] * lstm, *["saved"] * bool(self.saves)]
        gates = ["grad_gates", *["grad_hidden"] * gru]
        return [*gates, "previous", "grad_h_0", *["grad_c_0"] * lstm]

    @property
    def kept(self) -> int:
        """Numbers that the backward pass reads of a unit's step, without the state but an RNN's."""
        return max(SAVED[self.mode] - 1, 1)

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
        return self.product.lanes * self.product.splits

    @property
    def parts(self) -> int:
        """Sums that splits hand over."""
        return self.product.parts

    @property
    def prelude(self) -> str:
        """What the dtype needs."""
        widths = {self.width, self.product.width}
        text = self.type.prelude
        for width in sorted(widths - {1}):
            text += vectors.prelude(self.type, width).removeprefix(self.type.prelude)
        return text


def rows_of_group(limits: Limits, mode: Mode, batch: int, hidden: int) -> int:
    """Return how many rows of the batch a work-group has; 0 if local memory has no room for one.

    The weights are read once for all of them, but compute units must not be idle.
    """
    sizes = GATES[mode] * hidden, hidden
    most = MOST_ROWS if limits.kind == "cpu" else MOST_ROWS // 2
    groups = max(ceil_div(batch, most), min(batch, limits.compute_units))
    for tile in range(ceil_div(batch, groups), 0, -1):
        products = Product.of(*sizes, tile, limits), Product.of(*sizes[::-1], tile, limits)
        rows = 4 * hidden + sizes[0] + max(product.stride for product in products)
        if 4 * (tile * rows + max(p.parts for p in products)) <= limits.most_local_bytes:
            return tile
    return 0


@lru_cache(maxsize=256)
def turn(case: Case, blocks: WeightBlocks, row: str = "column") -> KernelLaunch:
    """Return the launch that lays out the weights [gates, hidden]: source, target.

    Neighbouring work-items of a GPU write neighbouring columns; a processor's has a block of them.

    Args:
        case: of the product.
        blocks: how the product reads them.
        row: OpenCL C's row of the weights that a column of the product has, forward.
    """
    at_once = blocks.across if case.is_wide else 1
    text = rendered(
        "recurrent_turn", package="ocl_backend", c=blocks, at_once=at_once, terms=TURNED,
        turned=not case.is_backward, row=row, source=case.type, target=case.weight_type,
    )  # fmt: skip
    sizes = blocks.stride // at_once, ceil_div(blocks.terms, TURNED)
    spread = vectors.in_groups(sizes, case.limits)
    pointers = Pointer(case.type.item_bytes), Pointer(case.weight_type.item_bytes)
    return prepare(case.device, text, "recurrent_turn", spread.sizes, pointers, spread.local)


@lru_cache(maxsize=MOST_LAUNCHES)
def launched(case: Case, batch: int) -> KernelLaunch | LaunchSequence:
    """Return the launches of all steps.

    Its values are a `data_ptr()` for each pointer of the template in order, then steps, batch, rows
    from step to step, from row to row of the batch, numbers from row to row of y, and whether steps
    are walked from the end. How weights are laid out is kept (`LaunchSequence`).
    """
    name = "recurrent_backward" if case.is_backward else "recurrent_forward"
    walk = _prepared(case, name, ceil_div(batch, case.tile))
    count, product = len(walk.words), case.product
    room = product.stride * product.terms * case.weight_type.item_bytes
    at = 0 if case.is_backward else 1
    places = *range(at), count, *range(at + 1, count)
    parts = Part(turn(case, product.weight_blocks), (at, count)), Part(walk, places)
    return LaunchSequence(case.device, parts, count, (room,), of_weights=1)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(case: Case, name: str, groups: int) -> KernelLaunch:
    function = rendered(
        "recurrent_product", package="ocl_backend", c=case.product, weight=case.weight_type
    )
    gates = rendered("recurrent_gates", package="ocl_backend", c=case)
    source = rendered(name, package="ocl_backend", c=case, product=function, gates_text=gates)
    bytes_of = {"weight": case.weight_type.item_bytes, "table": 4}
    names = re.findall(r"\*(\w+), const long", source)
    arguments: list[Argument] = [
        *(Pointer(bytes_of.get(name, case.dtype.itemsize)) for name in names),
        *(Varying("int") for _ in range(6)),
    ]
    items = groups * case.items
    return prepare(case.device, source, name, (items,), arguments, (case.items,))
