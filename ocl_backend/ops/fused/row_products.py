"""Products of the same few rows with several weights as one launch, with calls that read them.

A token's query, key and value are three products of one row, its gate and up two. Each alone is
limited by the rate at which weights are read, and by the time of a launch. Calls that read the
results item by item, such as silu(gate) * up, are computed where the sums are. A single product
with a residual or an activation is left to the tuned products.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ocl_backend.dtypes import BFLOAT16, dtype_of
from ocl_backend.fusion.held import Step
from ocl_backend.kernels import vectors
from ocl_backend.ops.fused import made_rows, row_sums
from ocl_backend.ops.fused.expression_arguments import Arguments, as_stored
from ocl_backend.ops.fused.expression_launch import ROW_SUM, launch_of, most_bytes
from ocl_backend.ops.fused.expression_text import NOTHING, Part, Writer
from ocl_backend.ops.fused.expressions import Expression
from ocl_backend.ops.fused.fused_pointwise import Activating, Adding
from ocl_backend.ops.fused.row_sums import Block, ColumnSharing
from ocl_backend.runtime.launch import KernelLaunch
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Unit, Window

MOST_ROWS = 4
"""Rows whose sums fit in registers beside those of several columns."""
MOST_PRODUCTS = 4
PLAIN = ([Adding], [Activating], [Adding, Activating])
"""Steps after a product that can be part of a tuned product."""


def serves(node: Expression) -> bool:
    """Say whether a product has few rows, and weights that lie along what is added up."""
    a, b = node.inputs[:2]
    rows, inner = a.shape
    along = b.strides[0] == 1 and b.strides[1] >= inner and (a.strides[1] == 1 or inner == 1)
    return rows <= MOST_ROWS and along and inner > 1


def are_siblings(steps: Sequence[Step], products: Sequence[int]) -> bool:
    """Say whether products multiply the same few rows, so that one launch can do all."""
    rows: set[tuple[object, ...]] = set()
    for i in products:
        node = steps[i].rule.loose
        assert isinstance(node, Expression)
        if not serves(node):
            return False
        a = node.inputs[0]
        rows.add((steps[i].values[a.place], a.shape, a.strides, a.dtype))
    return len(rows) == 1 and len(products) <= MOST_PRODUCTS


def rows_part(window: Window, maker: int, products: Sequence[int]) -> Part | None:
    """Return the part that makes the rows of products in their launch; None: they are in memory.

    Args:
        window: the chain.
        maker: the call whose results are the rows.
        products: all calls that read them; one alone is a tuned product, which needs memory.
    """
    if len(products) < 2 or not are_siblings(window.steps, products):
        return None
    part = window.part([maker], window.tree(maker) or [])
    if (
        part is None
        or not part.by_rows(window.nodes)
        or most_bytes(window, [part], products) is None
    ):
        return None
    limits = devices()[window.steps[0].rule.device].limits
    whole, local = (
        window.nodes[maker].out.shape == part.space,
        ColumnSharing.of(limits, 1, 1, 1, [], BFLOAT16).local,
    )
    return part if whole and made_rows.has_room(limits, prod(part.space), local) else None


def joined(window: Window, unit: Unit, part: Part) -> list[Part] | None:
    """Return the parts after a unit's products with one more; None: it is another launch's."""
    nodes, products, parts = window.nodes, unit.products, unit.parts
    read = {
        j
        for i in part.computed
        for j in window.sources[i]
        if j is not None and nodes[j].kind == "product" and j in products
    }
    if any(nodes[i].kind != "pointwise" for i in part.computed):
        return None
    if not read:  # a counter has a group of its own; what has more items may have others next time
        beside = prod(part.space) == 1 and (len(products) > 1 or unit.rows)
        return [*parts, part] if beside else None
    made = part._replace(products=tuple(sorted(read)))
    outs = {nodes[j].out.shape for j in read}
    if outs != {(prod(part.space[:-1]), part.space[-1])}:
        return None
    if any(read & {*other.products} for other in parts):
        return None
    if len(products) == 1 and not parts and not unit.rows and _plain(window, products[0], made):
        return [made]
    return [*parts, made] if all(serves(nodes[i]) for i in products) else None


def _plain(window: Window, product: int, part: Part) -> list[Step] | None:
    """Return the steps after a product if a tuned one takes them in."""
    steps = [window.steps[i] for i in part.computed]
    last, after = product, list[Step]()
    for i, step in zip(part.computed, steps, strict=True):
        if window.sources[i].count(last) != 1:
            return None  # it reads something else, or a residual that is nowhere in memory
        after.append(step._replace(source=window.steps[last].result))
        last = i
    kept = product in window.stored or part.roots != part.computed[-1:]
    return None if kept or [type(step.rule) for step in steps] not in PLAIN else after


def _is_tuned(window: Window, product: int, after: Sequence[Step]) -> bool:
    """Say whether a single product is left to a tuned one, with the steps `after` it.

    One of several launches, as where sums of slices are added, takes longer than few rows do here.
    """
    return not serves(window.nodes[product]) or window.steps[product].rule.is_one_launch(after)


def run(window: Window, unit: Unit) -> None:
    """Enqueue a unit's products and what is computed of their results."""
    products, parts = unit.products, unit.parts
    step, alone = window.steps[products[0]], len(products) == 1 and not unit.rows
    after = _plain(window, products[0], parts[0]) if alone and parts else None
    if alone and (after or not parts) and _is_tuned(window, products[0], after or []):
        if after:
            step.rule.fuse(step, after)
        else:
            step.rule.alone(step)
    elif not all(serves(window.nodes[i]) for i in products):
        # a later launch was found to read the tuned product, so nothing is taken into it
        for i in (*products, *parts[0].computed):
            window.steps[i].rule.alone(window.steps[i])
    else:
        launch, values = _prepared(window, unit)
        launch(*values)


def _prepared(window: Window, unit: Unit) -> tuple[KernelLaunch, list[float]]:
    """Return the launch of all products and parts, and the values to call it with."""
    products, parts = unit.products, unit.parts
    device = window.steps[0].rule.device
    limits = devices()[device].limits
    taken = {i for part in parts for i in part.products}
    blocks = [Block(part.products, part) for part in parts if part.products]
    blocks += [Block((i,), None) for i in products if i not in taken]
    a = window.nodes[products[0]].inputs[0]
    rows, inner = a.shape
    most = max(len(block.products) for block in blocks)
    b = [window.nodes[i].inputs[1] for i in products]
    steps = [a.strides[0] if rows > 1 else 0, *(weights.strides[1] for weights in b)]
    columns = [window.nodes[block.products[0]].out.shape[1] for block in blocks]
    geometry = ColumnSharing.of(limits, most, rows, inner, steps, dtype_of(a.dtype))
    geometry = geometry.in_turns(limits, columns)
    arguments = Arguments(window)
    before = unit.rows and made_rows.statements(window, unit.rows, arguments, geometry.local)
    branches, groups = _branches(window, unit, blocks, arguments, geometry)
    sums = most * geometry.items * rows
    shared = geometry.lanes > 1
    text = "\n".join(
        [
            arguments.prelude,
            *(f"#define SUM{w}(v) {_sum(w)}" for w in (1, 2, 4, 8, 16)),
            f"#define LOCAL {geometry.local}",
            NOTHING,
            ROW_SUM if before else "",
            f"__kernel __attribute__((reqd_work_group_size({geometry.local}, 1, 1)))",
            f"void row_products(\n    {arguments.text})",
            "{",
            "    const int lane = (int)get_local_id(0);",
            f"    const int member = lane % {geometry.lanes}, team = lane / {geometry.lanes};",
            f"    __local float sums[{geometry.teams}][{sums}][{geometry.lanes}];" * shared,
            "    __local float (*mine)[" + f"{geometry.lanes}] = sums[team];" if shared else "",
            f"    __local float rows[{rows * inner}], scratch[LOCAL];" if before else "",
            *arguments.moves,
            *(f"    {line}" for line in before or ()),
            *branches,
            "}",
            "",
        ]
    )
    items, kinds = groups * geometry.local, tuple(arguments.kinds)
    launch = launch_of(device, text, "row_products", items, kinds, geometry.local)
    return launch, arguments.values


def _branches(
    window: Window, unit: Unit, blocks: Sequence[Block], arguments: Arguments, g: ColumnSharing
) -> tuple[list[str], int]:
    """Return the statements of each block's groups, and of a group for each counter, and how many.

    Args:
        window: the chain.
        unit: of the launch.
        blocks: columns of its products.
        arguments: of the kernel.
        g: how columns are shared out.
    """
    lines, first = list[str](), 0
    for block in blocks:
        columns = window.nodes[block.products[0]].out.shape[1]
        past = first + g.groups(columns)
        lines += [
            f"    {'else ' if first else ''}if (get_group_id(0) < {past}) {{",
            f"        const int group = (int)get_group_id(0) - {first};",
            *(f"        {line}" for line in _block(window, block, arguments, g, bool(unit.rows))),
            "    }",
        ]
        first = past
    for part in (part for part in unit.parts if not part.products):
        counted = Writer(window, part, arguments, 1).lines(g.local, 1)
        lines += [
            f"    else if (get_group_id(0) == {first}) {{",
            "        const int group = 0;",
            *(f"        {line}" for line in counted),
            "    }",
        ]
        first += 1
    return lines, first


def _sum(width: int) -> str:
    return "(v)" if width == 1 else f"SUM{width // 2}((v).lo + (v).hi)"


def _block(
    window: Window, block: Block, arguments: Arguments, g: ColumnSharing, has_rows: bool
) -> list[str]:
    """Return the statements that compute a group's columns of a block; `group` is its number in it.

    Args:
        window: the chain.
        block: its products, and what follows them.
        arguments: of the kernel.
        g: how columns are shared out.
        has_rows: the rows are in local memory, and not where the products read them.
    """
    nodes = [window.nodes[i] for i in block.products]
    rows, columns = nodes[0].inputs[0].shape[0], nodes[0].out.shape[1]
    elements = rows * g.items
    counted = "turn" if g.turns > 1 else "group"
    lines = [f"const int first = ({counted} * {g.teams} + team) * {g.items};"]
    names = [
        (s, i, r) for s in range(len(nodes)) for i in range(g.items) for r in range(rows)
    ]  # fmt: skip
    kind = vectors.vector("float", g.width)
    lines += [f"{kind} acc{s}_{i}_{r} = 0;" for s, i, r in names]
    lines += [
        f"const long b{s}_{i} = min(first + {i}, {columns - 1}) * {node.inputs[1].strides[1]}L;"
        for s, node in enumerate(nodes)
        for i in range(g.items)
    ]
    lines += row_sums.loops(window, block, arguments, g, has_rows)
    lines += _added(names, g, elements)
    lines += _stored(window, block, arguments, g, elements)
    if g.turns == 1:
        return lines
    past = f"min((group + 1) * {g.turns}, {ceil_div(columns, g.items * g.teams)})"
    return [
        f"for (int turn = group * {g.turns}; turn < {past}; ++turn) {{",
        *(f"    {line}" for line in lines),
        *(["    barrier(CLK_LOCAL_MEM_FENCE);"] if g.lanes > 1 else []),
        "}",
    ]


def _added(names: Sequence[tuple[int, int, int]], g: ColumnSharing, elements: int) -> list[str]:
    """Return the statements that add up what lanes have: `total(s, e)` is of element e."""
    places = [(s * elements + r * g.items + i, s, i, r) for s, i, r in names]
    sums = [(place, f"SUM{g.width}(acc{s}_{i}_{r})") for place, s, i, r in places]
    if g.lanes == 1:
        total = ", ".join(text for _, text in sorted(sums))
        return [f"const float totals[] = {{{total}}};"]
    return [
        *(f"mine[{place}][member] = {text};" for place, text in sums),
        f"for (int half_way = {g.lanes // 2}; half_way > 0; half_way /= 2) {{",
        "    barrier(CLK_LOCAL_MEM_FENCE);",
        "    if (member < half_way)",
        f"        for (int e = 0; e < {len(sums)}; ++e)",
        "            mine[e][member] += mine[e][member + half_way];",
        "}",
        "barrier(CLK_LOCAL_MEM_FENCE);",
    ]


def _stored(
    window: Window, block: Block, arguments: Arguments, g: ColumnSharing, elements: int
) -> list[str]:
    """Return the statements that round sums, compute what reads them, and write what is needed."""
    node = window.nodes[block.products[0]]
    part = block.part or Part([], [], node.out.shape, block.products)
    writer = Writer(window, part, arguments, 1)
    lines = [
        f"const int row = e / {g.items}, c = first + e % {g.items};",
        f"if (c >= {node.out.shape[1]})",
        "    continue;",
        "int rest = row;",
        *(writer.position() if block.part else ()),
    ]
    for s, i in enumerate(block.products):
        total = f"totals[{s * elements} + e]" if g.lanes == 1 else f"mine[{s * elements} + e][0]"
        if len(window.nodes[i].inputs) > 2:
            bias = window.nodes[i].inputs[2]
            total += f" + {writer.load(i, bias, ('c',), 1)}"
        lines.append(f"const float sum{s} = {as_stored(node.out.dtype, total, 1)};")
        writer.made[i, ()] = f"sum{s}"
        if i in window.stored or block.part is None:
            index = tuple("0" if n == 1 else k for n, k in zip(node.out.shape, ("row", "c"),
                                                              strict=True))  # fmt: skip
            lines += writer.store(i, index, f"sum{s}", 1)
    if block.part:
        lines += writer.roots(False, dict(writer.made))
    return [
        f"for (int e = member; e < {elements}; e += {g.lanes}) {{",
        *(f"    {line}" for line in lines),
        "}",
    ]
