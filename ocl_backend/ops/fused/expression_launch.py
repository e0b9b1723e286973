"""Launches of expressions: parts side by side, prepared for the chain that needs them.

Parts in order are those of a single work-item, which computes one after the other: a later one may
read what an earlier one has written, and overwrite what it has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ocl_backend.dispatch.varying import Forms
from ocl_backend.kernels import vectors
from ocl_backend.kernels.places import PLACE
from ocl_backend.ops.fused.expression_arguments import Arguments
from ocl_backend.ops.fused.expression_text import NOTHING, Chain, Part, Writer
from ocl_backend.ops.fused.merged_dimensions import merged
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, KernelLaunch, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Window

MOST_BYTES = 960
"""Bytes of a kernel's arguments: OpenCL promises 1024."""
CPU_VECTORS = 64
"""Vectors that a work-item of a processor walks: enough to hide what starting it costs."""
GROUPS_IN_ORDER = 16
"""Work-groups of a processor whose work takes one work-item no longer than another launch does."""
GPU_ITEMS = 128
"""Work-items of a group that walks a flat part."""
MOST_GPU_ITEMS = 512
"""Those of a group that shares a long row."""


def width_of(chain: Chain, part: Part, limits: Limits, with_tail: bool = False) -> int:
    """Return how many items of the last dimension a step computes.

    Args:
        chain: the calls.
        part: of a launch.
        limits: of the device.
        with_tail: whether the last items of a row may be fewer.
    """
    axis = part.axis(chain.nodes) if with_tail else -1
    if axis != -1 and limits.kind != "cpu":
        return 1
    sizes, steps = [part.space[axis]], list[int]()
    for i in part.computed:
        node = chain.nodes[i]
        if node.kind == "cat" and node.axis == len(node.out.shape) - 1:
            sizes += [read.shape[-1] for read in node.inputs]
        sources = zip(node.inputs, chain.sources[i], strict=True)
        moved = [read for read, source in sources if source not in part.computed]
        for read in (*moved, node.out) if i in part.roots else moved:
            steps += read.rows
    if with_tail and limits.kind == "cpu" and _may_have_a_tail(chain, part, sizes[0]):
        return vectors.width_of_walk(sizes[0], prod(part.space) // sizes[0])
    widths = (16, 8, 4, 2) if limits.kind == "cpu" else (4, 2)
    return vectors.widest(widths, sizes, steps)


def _may_have_a_tail(chain: Chain, part: Part, row: int) -> bool:
    """Whether a row's last items may be computed one by one: it is long, and walked item by item.

    Else a processor computes rows of odd sizes one item at a time, which takes ten times as long.
    """
    if row < 2 * vectors.CPU_WIDTHS[-1] or part.products:
        return False
    return all(chain.nodes[i].kind == "pointwise" for i in part.computed)


def most_bytes(window: Window, parts: Sequence[Part], products: Sequence[int]) -> int | None:
    """Return how much the arguments of a launch of `parts` take, or None if it is too much."""
    reads = {
        (window.steps[i].values[read.place], read.dtype)
        for part in parts
        for i in part.computed
        for read in (*window.nodes[i].inputs, window.nodes[i].out)
    }
    numbers = sum(2 * len(window.nodes[i].numbers) for part in parts for i in part.computed)
    free = [part for part in parts if Writer(window, part, Arguments(window), 1).is_free]
    sizes = sum(
        2 * len(part.space)
        + sum(len(read.shape) + 2 for i in part.computed for read in window.nodes[i].inputs)
        for part in free
    )
    taken = 16 * (len(reads) + 3 * len(products)) + 8 * numbers + 4 * sizes
    return taken if taken <= MOST_BYTES else None


ROW_SUM = """
float row_sum(float value, const int lane, __local float *scratch)
{
    scratch[lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = LOCAL / 2; half_way > 0; half_way /= 2) {
        if (lane < half_way)
            scratch[lane] += scratch[lane + half_way];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    value = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}
"""
"""Adds the work-items' values of a row in a fixed order."""


_forms = Forms()


class Written(NamedTuple):
    """A kernel's text, its arguments, and its work-items: all, and those of a group."""

    text: str
    arguments: Arguments
    items: int
    local: int


def fit_in_order(window: Window, parts: Sequence[Part]) -> bool:
    """Say whether parts are so small that a processor computes them in order by one work-item."""
    limits = devices()[window.steps[0].rule.device].limits
    if limits.kind != "cpu" or any(part.by_rows(window.nodes) for part in parts):
        return False
    walks = [merged(window, part) for part in parts]
    widths = (width_of(*walk, limits, True) for walk in walks)
    groups = (
        _groups(part, part.axis(chain.nodes), width, CPU_VECTORS)
        for (chain, part), width in zip(walks, widths, strict=True)
    )
    return sum(groups) <= GROUPS_IN_ORDER and most_bytes(window, parts, []) is not None


def prepared(
    window: Window, parts: Sequence[Part], in_order: bool = False
) -> tuple[KernelLaunch, list[float]]:
    """Return the launch of parts, and the values to call it with.

    Sizes are constants of its text, until chains alike were met at more of them than have programs
    of their own.

    Args:
        window: the chain.
        parts: side by side, or one after the other.
        in_order: whether they are computed in order; they `fit_in_order`.
    """
    device = window.steps[0].rule.device
    walks = [merged(window, part) for part in parts]
    own, free = (_written(window, walks, is_free, in_order) for is_free in (False, True))
    fits = free.arguments.bytes <= MOST_BYTES
    made = free if fits and _forms.vary((device, free.text), own.text) else own
    kinds = tuple(made.arguments.kinds)
    launch = launch_of(device, made.text, "expressions", made.items, kinds, made.local)
    return launch, made.arguments.values


def _written(
    window: Window, walks: Sequence[tuple[Chain, Part]], is_free: bool, in_order: bool = False
) -> Written:
    """Write the kernel of `merged` parts, with sizes as arguments if it `is_free`."""
    device = window.steps[0].rule.device
    limits = devices()[device].limits
    on_cpu = limits.kind == "cpu"
    parts = [part for _, part in walks]
    rows = [part for part in parts if part.by_rows(window.nodes)]
    local = 1 if on_cpu else min(GPU_ITEMS, limits.max_work_group)
    copies = any(window.nodes[i].kind == "index_copy" for part in parts for i in part.roots)
    most = min(MOST_GPU_ITEMS, limits.max_work_group)
    while rows and not on_cpu and 2 * local <= min(most, *(p.space[-1] // 4 for p in rows)):
        local *= 2
    arguments, branches, first = Arguments(window), list[str](), 0
    for chain, part in walks:
        width = width_of(chain, part, limits, True)
        steps = CPU_VECTORS if on_cpu else 1
        axis = part.axis(chain.nodes)
        writer = Writer(chain, part, arguments, width, is_free, axis)
        lines = writer.lines(local, steps)
        work = prod(part.space[:-1]) if part in rows else _groups(part, axis, width, local * steps)
        past = first + work
        if in_order:
            count = arguments.size(work, writer.is_free)
            branches += [
                f"    for (int group = 0; group < {count}; ++group) {{",
                *(f"        {line}" for line in lines),
                "    }",
            ]
            continue
        groups = arguments.size(first, writer.is_free), arguments.size(past, writer.is_free)
        branches += [
            f"    {'else ' if first else ''}if (get_group_id(0) < {groups[1]}) {{",
            f"        const int group = (int)get_group_id(0) - {groups[0]};",
            *(f"        {line}" for line in lines),
            "    }",
        ]
        first = past
    text = "\n".join(
        [
            f"#define LOCAL {local}",
            NOTHING,
            arguments.prelude,
            PLACE if copies else "",
            ROW_SUM if rows else "",
            f"__kernel __attribute__((reqd_work_group_size({local}, 1, 1)))",
            f"void expressions(\n    {arguments.text})",
            "{",
            f"    __local float scratch[{local}];" if rows else "",
            "    const int lane = (int)get_local_id(0);",
            *arguments.moves,
            *branches,
            "}",
            "",
        ]
    )
    return Written(text, arguments, 1 if in_order else first * local, local)


@lru_cache(maxsize=MOST_LAUNCHES)
def launch_of(
    device: int, text: str, kernel: str, items: int, arguments: tuple[Argument, ...], local: int
) -> KernelLaunch:
    """Return a prepared launch, the same one for the same text and arguments: recipes compare it.

    Args:
        device: its index.
        text: OpenCL C.
        kernel: its name there.
        items: work-items of all groups.
        arguments: in the kernel's order.
        local: work-items of a group.
    """
    return prepare(device, text, kernel, (items,), arguments, (local,))


def _groups(part: Part, axis: int, width: int, at_once: int) -> int:
    row = part.space[axis]
    return ceil_div(prod(part.space) // row * ceil_div(row, width), at_once)
