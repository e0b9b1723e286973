"""The launches of a recurrent layer's direction on a GPU, one for each step.

All compute units share a step's product, where a walk of all steps (`recurrent_kernels`) has one
compute unit for each of a few rows. The launches are one sequence, so that a step costs the host no
more than a command. `recurrent_choice` says which of both is faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ocl_backend.ops.sequence.recurrent_kernels import Case, WeightBlocks, turn
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
from oclgen.plan import ceil_div
from oclgen.render import rendered

ITEMS = 256
"""Work-items of a work-group at most."""
TILES = 1, 2, 4, 8
"""Rows of the batch that a work-group may have: as many items as a vector."""
MOST_ACROSS = 64
"""Columns of the product that a work-group has at most."""
MOST_STEPS = 1024
"""Launches of a sequence, which takes some 100 bytes for each."""


@dataclass(frozen=True, slots=True)
class Block:
    """A work-group's part of a step: `units` of the state, and `tile` rows of the batch.

    `columns` and `terms` are those of the whole product.
    """

    columns: int
    terms: int
    units: int
    across: int
    tile: int
    splits: int

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.across * self.splits

    @property
    def weight_blocks(self) -> WeightBlocks:
        """How the whole product's weights lie."""
        return WeightBlocks(self.columns, self.terms, self.across)

    @staticmethod
    def of(limits: Limits, gates: int, hidden: int, batch: int, is_backward: bool) -> Block:
        """Return the parts of a step's product, where local memory has room (`rows_of_block`).

        A block has as many units as give each compute unit one work-group. Splits are a power of
        two, and give each unit of each row a work-item.
        """
        columns, terms = gates * hidden, hidden
        if is_backward:
            columns, terms = terms, columns
        each = 1 if is_backward else gates
        tile = rows_of_block(limits, batch, terms)
        tiles, items = ceil_div(batch, tile), min(ITEMS, limits.max_work_group)
        splits = 1 << (ceil_div(tile, each) - 1).bit_length()
        wanted = ceil_div(hidden * tiles, limits.compute_units)
        units = max(1, min(wanted, MOST_ACROSS // each, items // (each * splits)))
        while 2 * splits * units * each <= items and 2 * splits <= terms:
            splits *= 2
        return Block(columns, terms, units, units * each, tile, splits)


def rows_of_block(limits: Limits, batch: int, terms: int) -> int:
    """Return the rows of the batch of a work-group; 0 if local memory has no room for one."""
    items = min(ITEMS, limits.max_work_group)
    room = limits.most_local_bytes // (4 * (terms + items))
    fit = [tile for tile in TILES if tile <= room]
    return next((tile for tile in fit if tile >= batch), max(fit, default=0))


@lru_cache(maxsize=MOST_LAUNCHES)
def stepped(case: Case, batch: int, steps: int) -> LaunchSequence:
    """Return the launches of all steps, which take the values of `recurrent_kernels.launched`."""
    block = Block.of(case.limits, case.gates, case.hidden, batch, case.is_backward)
    name = "recurrent_step_backward" if case.is_backward else "recurrent_step_forward"
    step, names, states = _step(case, block, batch, name)
    given = len(names) + 6
    count = steps + case.is_backward
    at = names.index("weight")
    room = block.weight_blocks.stride * block.terms * case.type.item_bytes
    widths = [2 * block.terms if state in _TURNS else case.hidden for state in states]
    spaces = room, *(4 * batch * width for width in widths)
    row = f"column % {case.gates} * {case.hidden} + column / {case.gates}"
    laid = Part(turn(case, block.weight_blocks, row), (at, given + count))
    places = [given + count if place == at else place for place in range(given)]
    behind = [given + count + 1 + place for place in range(len(states))]
    parts = [Part(step, (*places, given + index, *behind)) for index in range(count)]
    return LaunchSequence(case.device, [laid, *parts], given, spaces, range(count), of_weights=1)


_TURNS = "h_state", "gates_state"
"""States of which two steps' take turns."""


@lru_cache(maxsize=MOST_LAUNCHES)
def _step(
    case: Case, block: Block, batch: int, name: str
) -> tuple[KernelLaunch, list[str], list[str]]:
    """Return the launch of a step, and the names of the tensors and the states that it takes."""
    product = rendered("recurrent_step_product", package="ocl_backend", b=block, weight=case.type)
    gates = rendered("recurrent_gates", package="ocl_backend", c=case)
    source = rendered(
        name, package="ocl_backend", c=case, b=block, product_text=product, gates_text=gates
    )
    pointers = re.findall(r"\*(\w+), const long", source)
    states = [pointer for pointer in pointers if pointer.endswith("_state")]
    names = pointers[: len(pointers) - len(states)]
    arguments: list[Argument] = [
        *(Pointer(4 if each == "table" else case.type.item_bytes) for each in names),
        *(Varying("int") for _ in range(7)),
        *(Pointer(4) for _ in states),
    ]
    groups = ceil_div(case.hidden, block.units), ceil_div(batch, block.tile)
    sizes = groups[0] * block.items, groups[1]
    launch = prepare(case.device, source, name, sizes, arguments, (block.items, 1))
    return launch, names, states
