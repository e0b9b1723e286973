"""How the work-items of `row_products` share columns, and the loops by which they add these up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ocl_backend.dtypes import BFLOAT16, DType, dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.ops.fused import made_rows
from ocl_backend.ops.fused.expression_arguments import Arguments
from ocl_backend.ops.fused.expression_text import Part
from oclgen.limits import Limits
from oclgen.plan import ceil_div

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Window

MOST_SUMS = 64
"""Floats of a work-item of a GPU that are sums: more leave no registers for what is loaded."""
GROUPS_PER_UNIT = 8
"""Work-groups of a processor's core, so that the last ones end together. Each costs to start, and
to make what the products multiply where that is not in memory."""
UNROLLED = 8
"""Turns of a loop whose loads a GPU begins at once: 128 bytes of each column for a lane."""


@dataclass(frozen=True, slots=True)
class ColumnSharing:
    """How columns are shared out: a team of `lanes` adds up `items` of them, `teams` a group.

    A group does so in `turns`, with columns that follow one another.
    """

    lanes: int
    teams: int
    items: int
    width: int
    turns: int = 1

    @staticmethod
    def of(
        limits: Limits, products: int, rows: int, inner: int, steps: Sequence[int], dtype: DType
    ) -> ColumnSharing:
        """Return vectors and several columns for a processor, 32 lanes of few columns for a GPU.

        Args:
            limits: of the device.
            products: of a block, at most.
            rows: of each product.
            inner: items that are added up.
            steps: from row to row of rows and weights.
            dtype: of rows and weights. A lane of a GPU reads 16 bytes of bf16 at once, and 4 items
                of others.
        """
        if limits.kind == "cpu":
            width = vectors.widest((limits.native_float_width, 4), [inner], steps)
            return ColumnSharing(1, 1, max(1, 4 // products), width)
        is_wide = dtype is BFLOAT16 and not any(n % 8 for n in (inner, *steps))
        width = 8 if is_wide else vectors.widest((4,), [inner], steps)
        lanes, teams = min(32, limits.max_work_group), min(8, limits.max_work_group // 32) or 1
        items = 2 if 2 * products * rows * width <= MOST_SUMS else 1
        return ColumnSharing(lanes, teams, items, width)

    @property
    def local(self) -> int:
        """Work-items of a group."""
        return self.lanes * self.teams

    def groups(self, columns: int) -> int:
        """Return how many groups share a block's columns out."""
        return ceil_div(columns, self.items * self.teams * self.turns)

    def in_turns(self, limits: Limits, columns: Sequence[int]) -> ColumnSharing:
        """Return this with as many turns as leave each core of a processor some groups.

        Args:
            limits: of the device.
            columns: of each block of a launch.
        """
        if limits.kind != "cpu":
            return self
        groups = sum(map(self.groups, columns))
        return replace(self, turns=max(1, groups // (GROUPS_PER_UNIT * limits.compute_units)))


class Block(NamedTuple):
    """Columns of products of one width, and the part that reads their sums; or None."""

    products: tuple[int, ...]
    part: Part | None


def loops(
    window: Window, block: Block, arguments: Arguments, g: ColumnSharing, has_rows: bool
) -> list[str]:
    """Return the statements that add up a block's columns into `acc` of product, item and row.

    On a GPU there are two loops, of which one promises that all it reads is aligned: if each load
    tested that, loads would wait for each other.

    Args:
        window: the chain.
        block: its products.
        arguments: of the kernel.
        g: how columns are shared out.
        has_rows: the rows are in local memory, and not where the products read them.
    """
    if g.lanes == 1 or g.width == 1:
        return _loop(window, block, arguments, g, has_rows)
    first = block.products[0]
    names = [arguments.pointer(i, window.nodes[i].inputs[1]) for i in block.products]
    names += [] if has_rows else [arguments.pointer(first, window.nodes[first].inputs[0])]
    tests = (f"(size_t)({name}) % {vectors.ACCESS_BYTES} == 0" for name in names)
    return [
        f"if ({' && '.join(tests)}) {{",
        *_loop(window, block, arguments, g, has_rows, aligned=True),
        "} else {",
        *_loop(window, block, arguments, g, has_rows),
        "}",
    ]


def _loop(
    window: Window,
    block: Block,
    arguments: Arguments,
    g: ColumnSharing,
    has_rows: bool,
    aligned: bool = False,
) -> list[str]:
    inner, step = window.nodes[block.products[0]].inputs[0].shape[1], g.lanes * g.width
    turn = _turn(window, block, arguments, g, has_rows, aligned)
    if not aligned:
        return [f"for (int p = member * {g.width}; p < {inner}; p += {step}) {{", *turn, "}"]
    whole = inner // step * step
    lines = [
        f"#pragma unroll {UNROLLED}",
        f"for (int from = 0; from < {whole}; from += {step}) {{",
        f"    const int p = from + member * {g.width};",
        *turn,
        "}",
    ]
    if whole < inner:
        lines += [f"if ({whole} + member * {g.width} < {inner}) {{"]
        lines += [f"    const int p = {whole} + member * {g.width};", *turn, "}"]
    return lines


def _turn(
    window: Window,
    block: Block,
    arguments: Arguments,
    g: ColumnSharing,
    has_rows: bool,
    aligned: bool,
) -> list[str]:
    """Return the statements of a loop's turn, which begins with item `p`."""
    a = window.nodes[block.products[0]].inputs[0]
    (rows, inner), kinds = a.shape, dtype_of(a.dtype)
    kind, lines = vectors.vector("float", g.width), list[str]()
    for r in range(rows):
        if has_rows:
            loaded = made_rows.load(f"{r * inner} + p", g.width)
        else:
            x, at = arguments.pointer(block.products[0], a), f"({r * a.strides[0]} + p)"
            loaded = vectors.load(kinds, x, at, "1", g.width, aligned)
        lines.append(f"    const {kind} x{r} = {loaded};")
    for s, i in enumerate(block.products):
        weights = arguments.pointer(i, window.nodes[i].inputs[1])
        for column in range(g.items):
            loaded = vectors.load(kinds, weights, f"(b{s}_{column} + p)", "1", g.width, aligned)
            lines.append(f"    const {kind} y{s}_{column} = {loaded};")
            lines += [
                f"    acc{s}_{column}_{r} = mad(x{r}, y{s}_{column}, acc{s}_{column}_{r});"
                for r in range(rows)
            ]
    return lines
