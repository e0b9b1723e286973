"""Rows that products multiply, computed in the launch of the products: a norm before a layer.

A launch takes longer than the norm of a token, on a GPU as on a processor whose cores have a few
work-groups each. So each work-group of the products computes the rows for itself, in local memory,
from the norm's inputs, which stay in the caches.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ocl_backend.ops.fused.expression_arguments import Arguments
from ocl_backend.ops.fused.expression_launch import width_of
from ocl_backend.ops.fused.expression_text import Part, Writer
from ocl_backend.ops.fused.expressions import Expression, Read
from oclgen.limits import Limits
from oclgen.opencl.device import devices

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Window

FLOAT_BYTES = 4
MOST_BYTES = {"gpu": 1 << 15, "cpu": 1 << 14}
"""Of rows in local memory. With more, a GPU's compute unit has room for few work-groups at once,
and a processor's core takes longer for the rows of its work-groups than for another launch."""


def are_rows_of(node: Expression, read: Read, source: Expression) -> bool:
    """Say whether what a product multiplies is what another call makes, row by row."""
    return (
        node.kind == "product"
        and read.dtype is source.out.dtype
        and source.value == "float"
        and source.can_move
        and read.is_dense
        and source.out.is_dense
        and read.shape[-1] == source.out.shape[-1]
        and prod(read.shape) == prod(source.out.shape)
    )


def has_room(limits: Limits, items: int, local: int) -> bool:
    """Say whether groups of `local` work-items can make `items` of rows for themselves."""
    most = min(MOST_BYTES.get(limits.kind, 0), limits.local_bytes // 2)
    return local & (local - 1) == 0 and items * FLOAT_BYTES <= most


def statements(window: Window, part: Part, arguments: Arguments, local: int) -> list[str]:
    """Return the statements that leave the rows in `rows`, in local memory, as floats.

    The first group writes them to memory, too, if their tensor lives on.

    Args:
        window: the chain.
        part: what makes them.
        arguments: of the kernel.
        local: work-items of a group; `lane` is the number of one.
    """
    limits = devices()[window.steps[0].rule.device].limits
    width = width_of(window, part, limits)
    writer = Writer(window, part, arguments, width)
    (root,), inner, lines = part.roots, part.space[-1], list[str]()
    for row, place in enumerate(product(*map(range, part.space[:-1]))):
        at = (*map(str, place), "c")
        means, made = writer.means(at, local, f"_{row}")
        lines += means
        each = list[str]()
        value = writer.value(root, at, width, each, made)
        lines += [
            writer.each(local),
            *(f"    {line}" for line in each),
            f"    {_store(f'{row * inner} + c', value, width)}",
            *([] if window.dropped[root] else _written(writer, at, value)),
            "}",
        ]
    return [*lines, "barrier(CLK_LOCAL_MEM_FENCE);"]


def _written(writer: Writer, at: tuple[str, ...], value: str) -> list[str]:
    """Return the statements by which the first group writes rows to memory."""
    stored = writer.store(writer.part.roots[0], at, value, writer.width)
    return ["    if (get_group_id(0) == 0) {", *(f"        {line}" for line in stored), "    }"]


def load(at: str, width: int) -> str:
    """Return the expression that reads `width` items of the rows from item `at` on."""
    return f"rows[{at}]" if width == 1 else f"vload{width}(0, rows + {at})"


def _store(at: str, value: str, width: int) -> str:
    return f"rows[{at}] = {value};" if width == 1 else f"vstore{width}({value}, 0, rows + {at});"
