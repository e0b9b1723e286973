"""OpenCL C for `width` items at once: vector types, loads, conversions and stores.

Expressions and statements of single operands; kernels are put together elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ocl_backend.dtypes import BFLOAT16, BOOL, DType
from oclgen.limits import Limits
from oclgen.plan import ceil_div, round_up
from oclgen.render import NARROW, bf16_keeping_nan, bf16_widened

CPU_GROUP_ITEMS = 16384
"""Items that a work-group of a processor walks: enough to hide what starting the group costs."""
ACCESS_BYTES, ACCESS_ITEMS = 16, 4
"""The widest access of a GPU, and the most items in one: those of more bytes are taken apart by
its compiler. Longer vectors are for CPUs, whose loads need no alignment."""
GROUP_ITEMS, ROW_ITEMS = 256, 64
"""Work-items of a GPU's work-group, and the most of them along the first dimension."""
LANES = 32
"""Work-items of a sub-group of many GPUs: where a row has several groups, these have whole ones."""
SIGNED = {"float": "int", "double": "long", "uchar": "char"}
"""The type of a vector's comparison by the type compared, where it is not the same."""


LITERAL = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:e[+-]?\d+)|\d+\.\d+)(?![\w.])")
"""A floating literal without a suffix."""
_EXACT = re.compile(r"\b(floor|ceil|trunc|rint|round|fmod|remainder|convert_|u?int|u?long)|[=!]=")
"""What makes a step of an error in a quotient's last place."""
CPU_WIDTHS = 16, 8
"""Items of a CPU's vectors, the widest first. Loads of four ask for alignment."""


class Spread(NamedTuple):
    """Sizes of a launch in whole work-groups, and those of a work-group; None: the runtime's."""

    sizes: tuple[int, ...]
    local: tuple[int, ...] | None


def in_groups(sizes: Sequence[int], limits: Limits) -> Spread:
    """Return how work-items of two or three dimensions, no more than `sizes`, form work-groups.

    On GPUs a work-group is 256 work-items: up to 64 along the first dimension, where neighbours
    access neighbours, the rest along the second. A runtime may choose groups of one work-item where
    a size is a prime. Kernels return at once beyond the sizes.

    Args:
        sizes: work-items that are wanted.
        limits: of the device.
    """
    if limits.kind != "gpu":
        return Spread(tuple(sizes), None)
    most = min(GROUP_ITEMS, limits.max_work_group)
    columns = min(ROW_ITEMS, 1 << (sizes[0] - 1).bit_length(), most)
    rows = min(1 << (sizes[1] - 1).bit_length(), most // columns)
    local = (columns, rows, *(1 for _ in sizes[2:]))
    return Spread(tuple(map(round_up, sizes, local)), local)


def work_items_across(columns: int, group: int) -> int:
    """Return the work-items of a GPU's group that are side by side in a row: few are idle.

    A sub-group may have the end of a row and the begin of the next.

    Args:
        columns: work-items that a row takes.
        group: work-items of a group.
    """
    if columns <= group:
        return columns
    return min(group, round_up(ceil_div(columns, ceil_div(columns, group)), LANES))


def vector(scalar: str, width: int) -> str:
    """Return the type of `width` items: `float`, `float16`."""
    return scalar if width == 1 else f"{scalar}{width}"


def busy_items(limits: Limits) -> int:
    """Return how many work-items keep all compute units of a device busy."""
    return limits.compute_units * (4 if limits.kind == "cpu" else 512)


def width_of_rows(items: int, limits: Limits) -> int:
    """Return how many items of a dense row are read at once; it divides the row's `items`."""
    widths = (16, 4, 1) if limits.kind == "cpu" else (4, 1)
    return next(width for width in widths if items % width == 0)


def width_of_walk(items: int, rows: int) -> int:
    """Return the vector with which a CPU walks a row in fewest steps; its rest is single items.

    Rows of sixteen vectors and more, and single rows, have the widest: their rest counts little.

    Args:
        items: of a row.
        rows: how many there are.
    """
    if rows == 1 or items >= 16 * CPU_WIDTHS[0]:
        return CPU_WIDTHS[0]
    return min(CPU_WIDTHS, key=lambda width: sum(divmod(items, width)))


def widest(widths: Iterable[int], sizes: Sequence[int], steps: Sequence[int]) -> int:
    """Return the first of some widths that serves all accesses of a kernel, 1 if none does.

    Args:
        widths: items of a vector.
        sizes: it divides them all.
        steps: from row to row of dense operands. A vector that may be one access (`at_once`)
            divides them, too: then all are aligned where the first one is.
    """
    return next(
        (
            width
            for width in widths
            if not any(size % width for size in sizes)
            and (width > ACCESS_ITEMS or not any(step % width for step in steps))
        ),
        1,
    )


def load(dtype: DType, name: str, at: str, stride: str, width: int, aligned: bool = False) -> str:
    """Return the expression that reads items of an array.

    A dense access of a GPU (`at_once`) needs an `at` that is a multiple of `width`: whether it is
    aligned depends on the pointer alone then. The kernel tests the pointer at each access, so that
    a loop's loads wait for each other, unless the caller promises that it is.

    Args:
        dtype: of the array.
        name: of the operand.
        at: index of the first item.
        stride: distance of the items: "0" (all are one), "1" (dense), "-1" (dense, the first one
            last), or an expression.
        width: items, an OpenCL vector's width.
        aligned: the promise.
    """
    if width == 1:
        return dtype.load(name, at)
    target = vector(dtype.value, width)
    if stride == "0":
        return f"({target})({dtype.load(name, at)})"
    if stride == "-1":
        backwards = "".join(f"{i:x}" for i in reversed(range(width)))
        return f"({load(dtype, name, f'{at} - {width - 1}', '1', width)}).s{backwards}"
    if stride != "1":
        items = [dtype.load(name, f"{at} + {i} * {stride}") for i in range(width)]
        return f"({target})(" + ", ".join(items) + ")"
    loaded = _load_dense(dtype, name, at, width, aligned)
    if dtype is BFLOAT16:
        return bf16_widened(loaded, width)
    return loaded


def convert(source: str, target: str, value: str, width: int) -> str:
    """Return `value`, whose items are `source`, as items of type `target`.

    Args:
        source: OpenCL C's type of the items of `value`.
        target: the wanted one.
        value: an expression.
        width: lanes.
    """
    return value if source == target else f"convert_{vector(target, width)}({value})"


def store(
    dtype: DType, name: str, at: str, stride: str, value: str, width: int, aligned: bool = False
) -> list[str]:
    """Return the statements that write items of an array.

    Args:
        dtype: of the array.
        name: of the operand.
        at: index of the first item.
        stride: distance of the items, as for `load`.
        value: an expression whose items are of type `dtype.value`.
        width: items, an OpenCL vector's width.
        aligned: as for `load`.
    """
    if width == 1:
        return [dtype.store(name, at, value)]
    if stride != "1":
        step = "" if stride == "0" else f" * {stride}"
        return [dtype.store(name, f"{at} + {i}{step}", f"{value}.s{i:x}") for i in range(width)]
    if dtype is BFLOAT16:
        value = f"to_bfloat16_{width}({value})"
    return _store_dense(dtype, name, at, value, width, aligned)


def at_once(dtype: DType, width: int) -> bool:
    """Whether `width` dense items of `dtype` are one access of a GPU where they are aligned."""
    return 1 < width <= ACCESS_ITEMS and width * dtype.item_bytes <= ACCESS_BYTES


def are_aligned(addresses: Iterable[float]) -> bool:
    """Whether any access of a GPU may begin at each of the addresses."""
    return not any(address % ACCESS_BYTES for address in addresses)


def is_aligned(dtype: DType, name: str, width: int) -> str:
    """Return the test of whether a GPU may read or write `width` items at a pointer at once.

    Args:
        dtype: of the items.
        name: of the pointer.
        width: items.
    """
    return f"(size_t)({name}) % {width * dtype.item_bytes} == 0"


def width_at_once(types: Iterable[DType], steps: Iterable[int]) -> int:
    """Return the most items of one access of a GPU, of each type, that divide all `steps`."""
    types, steps = list(types), list(steps)
    for width in (ACCESS_ITEMS, ACCESS_ITEMS // 2):
        if all(at_once(dtype, width) for dtype in types) and all(n % width == 0 for n in steps):
            return width
    return 1


def _load_dense(dtype: DType, name: str, at: str, width: int, aligned: bool) -> str:
    """Return the expression that reads `width` neighbours as they are stored.

    `vload4` promises an item's alignment alone, and compilers for GPUs make four loads of it.
    NVIDIA's makes four loads of `vloada_half4`, too, so the bits are loaded, and converted behind.
    """
    half = dtype.storage == "half"
    anywhere = f"vload{'_half' if half else ''}{width}(0, {name} + {at})"
    if aligned and dtype is BFLOAT16 and width * dtype.item_bytes == ACCESS_BYTES:
        return f"as_ushort{width}(*(const __global uint4 *)({name} + {at}))"
    if not at_once(dtype, width):
        return anywhere
    bits = vector("ushort" if half else dtype.storage, width)
    whole = f"*(const __global {bits} *)({name} + {at})"
    if half:
        whole = f"fp16_to_float{width}({whole})"
    if aligned:
        return whole
    return f"({is_aligned(dtype, name, width)} ? {whole} : {anywhere})"


def _store_dense(
    dtype: DType, name: str, at: str, value: str, width: int, aligned: bool
) -> list[str]:
    """Return the statements that write `value`, as it is stored, to neighbours."""
    half = dtype.storage == "half"
    suffix = f"_half{width}_rte" if half else str(width)
    anywhere = f"vstore{suffix}({value}, 0, {name} + {at});"
    if not at_once(dtype, width):
        return [anywhere]
    bits = vector("ushort" if half else dtype.storage, width)
    if half:  # as `_load_dense` has it
        value = f"fp16_from_float{width}({value})"
    whole = f"*(__global {bits} *)({name} + {at}) = {value};"
    if aligned:
        return [whole]
    test = is_aligned(dtype, name, width)
    return [f"if ({test})", f"    {whole}", "else", f"    {anywhere}"]


def to_dtype(dtype: DType, value_type: str, value: str, width: int) -> str:
    """Return `value`, items of `value_type`, as what `store` takes; a bool becomes 0 or 1.

    Args:
        dtype: of the array that `store` writes.
        value_type: OpenCL C's type of the items of `value`.
        value: an expression.
        width: lanes.
    """
    if dtype is not BOOL:
        return convert(value_type, dtype.value, value, width)
    # a vector's comparison is 0 or -1, of the width of what was compared
    truth = f"{value} != ({vector(value_type, width)})(0)"
    one = f"({vector(SIGNED.get(value_type, value_type), width)})(1)"
    return f"convert_{vector('uchar', width)}(({truth}) & {one})"


def prelude(dtype: DType, width: int) -> str:
    """Return what a program needs before it loads and stores `width` items of `dtype`."""
    if dtype is BFLOAT16 and width > 1:
        return dtype.prelude + bf16_keeping_nan(f"to_bfloat16_{width}", width)
    return dtype.prelude


def narrow_quotients(results: Sequence[DType], body: str) -> str:
    """Return the mark of a text whose quotients are all rounded to 16 bits, else nothing.

    Args:
        results: all that the kernel writes, at addresses, too.
        body: its expressions. Those that round to integers, or compare, need exact quotients.
    """
    is_narrow = bool(results) and all(
        dtype.value == "float" and dtype.item_bytes == 2 for dtype in results
    )
    return f"{NARROW}\n" if is_narrow and "/" in body and not _EXACT.search(body) else ""


def in_type(text: str, value: str, width: int = 1) -> str:
    """Return `text` with `T` replaced, also in `T2`, and floating literals in its precision.

    Args:
        text: OpenCL C of a scalar or vector type `T`.
        value: the scalar type.
        width: lanes of `T`.
    """
    text = re.sub(r"\bT\b", vector(value, width), text)
    text = re.sub(r"\bT(?=[248]\b)", value, text)
    return in_precision(text, value)


def in_precision(text: str, value: str) -> str:
    """Return `text` with floating literals of a scalar type's precision.

    Args:
        text: OpenCL C.
        value: the scalar type.
    """
    return LITERAL.sub(r"\1f", text) if value == "float" else text
