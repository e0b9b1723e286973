"""Kernels that add up maps of the items of dense rows, and may then write something for each item.

`RowPass` says what is computed; this module says how rows are walked. A row's items are read once
for all sums, and once more where something is written for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from torch import Tensor

from ocl_backend.dtypes import encode
from ocl_backend.kernels import vectors
from ocl_backend.kernels.accessors import accessors
from ocl_backend.kernels.dimensions import Dimensions, collapse, contiguous_strides
from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar
from ocl_backend.kernels.item_blocks import scalar_of
from ocl_backend.kernels.reduction_arrangement import (
    CHAIN,
    CPU_PIECE,
    GROUP,
    along_rows,
    in_flight,
    most_loads,
)
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, Pointer, Prepared, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div
from oclgen.render import render

CPU_WIDTH = vectors.CPU_WIDTHS[0]


@dataclass(frozen=True, slots=True, eq=False)
class RowPass:
    """What is computed of each row; one is remembered by its identity, whose hash costs no time.

    The inputs and outputs of `kernel` are matrices [..., items]; what it addresses is found by
    `row`, the number of the row. `sums` are maps of the inputs, right for vectors `T`; `S` is the
    type of their comparison and `place` the items' numbers in it. `begin` is a row's statements
    before, `finish` those behind, with total_0, total_1, ...; `each` are the statements that make
    the outputs of a vector of items.
    """

    kernel: Kernel
    sums: tuple[str, ...] = ()
    begin: str = ""
    finish: str = ""
    each: str = ""

    @property
    def matrices(self) -> tuple[Operand, ...]:
        """The operands that are walked, inputs first."""
        walked = (o for o in self.kernel.operands if o.role in ("input", "output"))
        return tuple(sorted(walked, key=lambda operand: operand.role != "input"))


@dataclass(frozen=True, slots=True)
class Sharing:
    """How rows are shared out: `lanes` work-items each, of a GPU's `group`, vectors of `width`."""

    width: int
    lanes: int = 1
    group: int = 1
    unroll: int = 1
    rows_per_item: int = 1

    @staticmethod
    def of(
        rows: int, items: int, operands: Sequence[Operand], steps: Sequence[int], limits: Limits
    ) -> Sharing:
        """Return whole vectors of a processor, and lanes of a GPU as a reduction has them.

        Args:
            rows: how many there are.
            items: of a row.
            operands: matrices.
            steps: from row to row of each, 1 where one lies where no access may begin.
            limits: of the device.
        """
        if limits.kind == "cpu":
            per_item = max(1, CPU_PIECE // max(items, 1))
            return Sharing(CPU_WIDTH, rows_per_item=per_item)
        width = vectors.width_at_once([operand.type for operand in operands], steps)
        group = min(GROUP, limits.max_work_group)
        widest = max(operand.type.item_bytes for operand in operands)
        loads = most_loads(width, widest)
        lanes, _ = along_rows(Dimensions((items,), ((1,),)), rows, width, loads, limits)
        own = ceil_div(items, lanes * width)
        return Sharing(width, lanes, group, in_flight(own, loads))


def serves(items: int, limits: Limits) -> bool:
    """Say whether a work-item's sums of a row are short enough to be exact, and all lanes are busy.

    Args:
        items: of a row.
        limits: of the device.
    """
    lanes = CPU_WIDTH if limits.kind == "cpu" else min(GROUP, limits.max_work_group)
    return 0 < items <= CHAIN * lanes


def launch(work: RowPass, shape: Sequence[int], given: Sequence[Tensor | float]) -> None:
    """Run a pass.

    Args:
        work: what is computed.
        shape: of the matrices, [..., items].
        given: tensors and numbers in the order of the kernel's parameters. Matrices have `shape`,
            expanded perhaps, and items next to each other.
    """
    places, kinds = _places(work)
    matrices = [each for i in places if isinstance(each := given[i], Tensor)]
    aligned = vectors.are_aligned(each.data_ptr() for each in matrices)
    strides = tuple(each.stride()[:-1] for each in matrices)
    run = _prepared(matrices[0].get_device(), work, tuple(shape), strides, aligned)
    run(
        *(
            v.data_ptr() if isinstance(v, Tensor) else encode(kind, v)
            for v, kind in zip(given, kinds, strict=True)
        )
    )


@lru_cache(maxsize=MOST_LAUNCHES)
def _places(work: RowPass) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return where the matrices are among the parameters, and the C types of all."""
    parameters = work.kernel.parameters
    return tuple(map(parameters.index, work.matrices)), tuple(p.value for p in parameters)


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, work: RowPass, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
    aligned: bool,
) -> Prepared:  # fmt: skip
    limits, items = devices()[device].limits, shape[-1]
    rows = collapse(shape[:-1], [contiguous_strides(shape[:-1]), *strides])
    steps = [step for steps in rows.strides[1:] for step in steps] if aligned else [1]
    sharing = Sharing.of(prod(rows.sizes), items, work.matrices, steps, limits)
    reach = rows.reach + items + sharing.group * sharing.width * (sharing.unroll + 1)
    number = np.int64 if max(reach, prod(shape)) >= 2**31 else np.int32
    text = _source(work, len(rows.sizes), sharing, number is np.int64)
    numbers = [*rows.sizes[1:], *(step for steps in rows.strides[1:] for step in steps)]
    numbers += [prod(rows.sizes), sharing.rows_per_item, items]
    arguments: list[Argument] = [
        p.argument if isinstance(p, Scalar) else Pointer(p.dtype.itemsize)
        for p in work.kernel.parameters
    ]
    if sharing.group > 1:
        arguments.append(np.int32(sharing.lanes.bit_length() - 1))
    arguments += [number(value) for value in numbers]
    at_once = sharing.group // sharing.lanes * sharing.rows_per_item
    groups = ceil_div(prod(rows.sizes), at_once)
    local = (sharing.group,) if sharing.group > 1 else None
    name = f"{work.kernel.name}_rows"
    return prepare(device, text, name, (groups * sharing.group,), arguments, local)


@lru_cache(maxsize=MOST_LAUNCHES)
def _source(work: RowPass, kept: int, sharing: Sharing, wide: bool) -> str:
    """Return the OpenCL C of a pass; see the template's legend."""
    kernel, width = work.kernel, sharing.width
    promised = sharing.group > 1
    kinds = dict.fromkeys(operand.type for operand in kernel.operands)

    def typed(text: str, width: int) -> str:
        signed = vectors.vector(vectors.SIGNED[kernel.value], width)
        return vectors.in_type(re.sub(r"\bS\b", signed, text), kernel.value, width)

    def load(operand: Operand, at: str, width: int) -> str:
        raw = vectors.load(operand.type, f"{operand.name}_data", at, "1", width, promised)
        return vectors.convert(operand.type.value, kernel.value, raw, width)

    def store(operand: Operand, at: str, width: int) -> list[str]:
        value = vectors.to_dtype(operand.type, kernel.value, operand.name, width)
        name = f"{operand.name}_data"
        return vectors.store(operand.type, name, at, "1", value, width, promised)

    return render(
        "row_passes", package="ocl_backend", kernel=kernel,
        prelude="".join(vectors.prelude(kind, width) for kind in kinds),
        accessors=accessors(kernel, not promised), begin=typed(work.begin, 1), sums=work.sums,
        finish=typed(work.finish, 1), each=work.each, width=width, shared=promised,
        unroll=sharing.unroll, group=sharing.group, kept=kept,
        index="long" if wide else "int", typed=typed, load=load, store=store,
        scalars=[scalar_of(scalar, kernel.value, 1) for scalar in kernel.scalars],
    )  # fmt: skip
