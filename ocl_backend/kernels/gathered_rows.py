"""Reading items at computed places on processors: rows by vectors, single items in short loops.

`scatter.read` finds a place for each item, which takes longer than to move it. Here a place serves
a whole row of neighbours. Items are moved as bits: to convert narrow floats takes longer, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ocl_backend.dispatch import faults
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels.dimensions import broadcast_strides
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Run, Scalar, prepare_elementwise
from ocl_backend.kernels.owners import SHORT, WIDTHS, Dim, are_possible, joined, with_long_rows
from ocl_backend.kernels.places import PLACE, Places, parameters_of, place_of
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The dtype that moves items, by their bytes."""

ROW = """\
INDICES
const long from = PLACE;
"""
VECTORS = """\
const long last = min(first + CHUNK, columns) - WIDTH;
for (long c = first; c < last; c += WIDTH)
    STORES_out(out_at + c, LOADS_target(from + c))
// the last vector may overlap the one before it
STORES_out(out_at + last, LOADS_target(from + last))
"""
FEW = """\
#pragma unroll
for (int c = 0; c < COLUMNS; ++c)
    STORE_out(out_at + c, LOAD_target(from + c));
"""
ITEMS = """\
const long last = LAST;
int is_wrong = 0;
long k = FIRST;
long begin = target_at;
STILL
MANY
UNROLLED
for (; k < last; ++k) {
    long from = begin + k * inner_target;
FIND
    STORE_out(out_at + k * inner_out, LOAD_target(from));
}
for (k = FIRST; is_wrong && k < last; ++k) {
INDICES
    NOTE
}
"""
MANY = """\
long8 beyond = 0;
for (; k + 8 <= last; k += 8) {
    PLACES from = ((STEP)k + (PLACES)(0, 1, 2, 3, 4, 5, 6, 7)) * (STEP)inner_target;
FIND
    STORES_out(out_at + k, (T8)(ITEMS));
}
is_wrong |= any(beyond);
"""
FIND_MANY = """\
    const long8 given_{k} = LOADS_index_{k}(index_{k}_at + k);
    const long8 index_{k} = given_{k} + ((given_{k} < 0) & (wraps ? size_of_{k} : 0L));
    beyond |= (index_{k} < 0) | (index_{k} >= size_of_{k});
    from += clamp(convert_PLACES(index_{k}), (STEP)0, (STEP)size_of_{k} - 1) * (STEP)step_of_{k};
"""
"""Eight dense items: a compiler makes no vectors where it does not know what pointers may meet.

AVX2 has no products, minima or arithmetic shifts of 64 bits: where they suffice, places have 32.
"""
FIND = """\
    long index_{k} = LOAD_index_{k}(index_{k}_at + k * inner_index_{k});
    if ((ulong)index_{k} >= (ulong)size_of_{k}) {{
        index_{k} += wraps && index_{k} < 0 ? size_of_{k} : 0;
        is_wrong |= index_{k} < 0 || index_{k} >= size_of_{k};
        index_{k} = clamp(index_{k}, 0L, size_of_{k} - 1);
    }}
    from += index_{k} * step_of_{k};
"""
"""No call, and a branch that is hardly ever taken: a core predicts it, and the sums that it spares
take as long as the item (4 ns, with it 1.9; EPYC with AVX2). Faults are noted afterwards."""


def found(body: str, steps: Sequence[int], place: str) -> str:
    """Return a loop over single items with statements that find their places.

    An index that stays along the loop is read before it: stores might change it, for all that a
    compiler knows.

    Args:
        body: with lines STILL before its loop, and FIND in it.
        steps: of each index along the loop.
        place: the variable that is found; `begin` is that of the loop.
    """
    still = moving = ""
    for k, step in enumerate(steps):
        text = FIND.format(k=k)
        if step == 0:
            text = text.replace(f" + k * inner_index_{k}", "")
            still += text.replace("from +=", "begin +=")
        else:
            text = text.replace(f"k * inner_index_{k}", "k") if step == 1 else text
            moving += text.replace("from +=", f"{place} +=")
    return body.replace("STILL\n", still).replace("FIND\n", moving)


class Form(NamedTuple):
    """What a kernel is made for: dtypes, and how many columns a row has (0: no row)."""

    source: torch.dtype
    indices: tuple[torch.dtype, ...]
    out: torch.dtype
    columns: int
    steps: tuple[int, ...]
    """How out and each index move along single items; 2: in a step given at launch."""
    narrow: bool
    """Whether the places fit 32 bits."""
    short: int = 0
    """How many single items there are, if so few that their loop is unrolled; else 0."""


def read_rows(source: Tensor, places: Places, out: Tensor) -> bool:
    """Write the items at places to `out`.

    Args:
        source: of any strides.
        places: in it.
        out: of the places' shape; written.

    Returns:
        False where nothing was done: the device is no processor.
    """
    device, shape = source.get_device(), places.shape
    if not are_possible(devices()[device].limits) or 0 in shape:
        return False
    lies = (out, *places.indices)
    strides = tuple(broadcast_strides(shape, each.shape, each.stride()) for each in lies)
    dtypes = source.dtype, out.dtype, *places.dtypes
    narrow = places.reach < 2**31
    run, numbers = _prepared(device, dtypes, tuple(shape), (places.strides, *strides), narrow)
    indices = (index.data_ptr() for index in places.indices)
    noted = faults.record(device).data_ptr()
    run(source.data_ptr(), *indices, *places.numbers, noted, out.data_ptr(), *numbers)
    faults.check(device)
    return True


@lru_cache(maxsize=MOST_LAUNCHES)
def _prepared(
    device: int, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...], narrow: bool,
) -> tuple[Run, tuple[int, ...]]:  # fmt: skip
    """Return a launch and its last numbers.

    Args:
        device: its index.
        dtypes: of source, out and indices.
        shape: of the places.
        strides: of source, out and indices over it.
        narrow: whether the places fit 32 bits.
    """
    source, out, *indices = dtypes
    if source is out and source.itemsize in BITS:
        source = out = BITS[source.itemsize]
    dims = [
        Dim(size, at, moved, tuple(others))
        for size, at, moved, *others in zip(shape, *strides, strict=True)
    ]
    ordered = joined(sorted(dims, key=lambda dim: -dim.value))
    inner = next((dim for dim in reversed(ordered) if dim.is_row and dim.value == 1), None)
    columns = inner.size if inner else 0
    if inner is None:
        ordered = with_long_rows(ordered)
        inner = ordered[-1] if ordered else Dim(1, 0, 0, tuple(0 for _ in indices))
    outer = [dim for dim in ordered if dim is not inner]
    chunks = ceil_div(inner.size, CHUNK) if columns == 0 or columns >= WIDTHS[-1] else 1
    sizes = [*(dim.size for dim in outer), chunks]
    walked = [
        [*(0 for _ in outer), CHUNK],
        [*(dim.target for dim in outer), 0],
        *([*(dim.indices[k] for dim in outer), 0] for k in range(len(indices))),
        [0 for _ in sizes],
        [*(dim.value for dim in outer), 0],
    ]
    steps = tuple(step if step in (0, 1) else 2 for step in (inner.value, *inner.indices))
    few = columns if columns < WIDTHS[-1] else max(w for w in WIDTHS if w <= columns)
    form = Form(source, tuple(indices), out, few, steps if not columns else (), narrow)
    if not columns and inner.size <= SHORT:
        form = form._replace(short=inner.size)
    work = min(CHUNK, 1 << (inner.size - 1).bit_length())
    run = prepare_elementwise(device, _kernel(form, work), sizes, walked)
    if columns:
        return run, (inner.size,)
    return run, (inner.size, inner.target, inner.value, *inner.indices)


@cache
def _kernel(form: Form, work: int) -> Kernel:
    register = dtype_of(form.source).value
    numbers = range(len(form.indices))
    width = form.columns if form.columns in WIDTHS else 1
    along = [
        f"inner_{name}" for name in ("size", "target", "out", *(f"index_{k}" for k in numbers))
    ]
    is_dense = bool(form.steps) and all(step == 1 for step in form.steps)
    if form.columns:
        body, along = ROW + (VECTORS if width > 1 else FEW), ["columns"]
        reads = [f"LOAD_index_{k}(index_{k}_at)" for k in numbers]
    else:
        many = MANY.replace("FIND\n", "".join(FIND_MANY.format(k=k) for k in numbers))
        items = (f"LOAD_target(begin + from.s{lane})" for lane in range(8))
        many = many.replace("ITEMS", ", ".join(items)).replace("PLACES", "STEP8")
        many = many.replace("STEP", "int" if form.narrow else "long")
        body = ITEMS.replace("MANY\n", many if is_dense else "")
        body = found(body, form.steps[1:], "from")
        reads = [f"LOAD_index_{k}(index_{k}_at + k * inner_index_{k})" for k in numbers]
        body = body.replace("k * inner_out", "k") if form.steps[0] == 1 else body
    texts = {
        "INDICES": "\n".join(f"const long index_{k} = {read};" for k, read in enumerate(reads)),
        "PLACE": place_of(len(form.indices)),
        "NOTE": f"{place_of(len(form.indices)).partition(' + ')[2]};",
        "FIRST": "0" if form.short else "first",
        "LAST": str(form.short or "min(first + CHUNK, inner_size)"),
        "UNROLLED": "#pragma unroll" if form.short else "",
        "CHUNK": str(CHUNK),
        "COLUMNS": str(form.columns),
        "WIDTH": str(width),
    }
    for name, text in texts.items():
        body = re.sub(rf"\b{name}\b", text, body)
    eight = 8 if is_dense else 1
    indices = [
        replace(p, items=eight, anywhere=True)
        if isinstance(p, Operand) and p.name.startswith("index_")
        else p
        for p in parameters_of(form.indices, "address")
    ]
    parameters = (
        Operand("first", role="position"),
        Operand("target", form.source, "address", items=width, anywhere=True),
        *indices,
        Operand("out", form.out, "address", items=max(width, eight), anywhere=True),
        *(Scalar(name, "long") for name in along),
    )
    return Kernel("gather_rows", register, parameters, body, PLACE, scalar_only=True, work=work)
