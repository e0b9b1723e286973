"""Triangles of matrices: each row is a part that is copied and one of zeros.

A work-item of a processor walks rows. One of a GPU walks neighbours in memory, wherever rows end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ocl_backend.dispatch.outputs import into
from ocl_backend.dtypes import dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.kernels.elementwise import CHUNK, Kernel, Operand, Scalar, launch
from ocl_backend.kernels.gathered_rows import BITS
from ocl_backend.kernels.owners import are_possible
from oclgen.opencl.device import devices
from oclgen.plan import ceil_div


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep what is on and below a diagonal of each matrix."""
    return _triangle("tril", x, diagonal)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """Keep what is on and above a diagonal of each matrix."""
    return _triangle("triu", x, diagonal)


def tril_(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero what is above a diagonal of each matrix, in place."""
    return x.copy_(tril(x, diagonal))


def triu_(x: Tensor, diagonal: int = 0) -> Tensor:
    """Zero what is below a diagonal of each matrix, in place."""
    return x.copy_(triu(x, diagonal))


TURNED = {"tril": "triu", "triu": "tril"}


def _triangle(name: str, x: Tensor, diagonal: int) -> Tensor:
    if x.dim() < 2:
        raise RuntimeError(f"{name}: {[*x.shape]} is no matrix")
    out = torch.empty_like(x)
    if not x.numel():
        return out
    lines, columns = x.shape[-2:]
    none, bits = (0,) * (x.dim() - 2), BITS.get(x.dtype.itemsize, x.dtype)
    if not are_possible(devices()[x.get_device()].limits):
        if _neighbours_of_triangle(name, x, diagonal, out):
            return out
        strides = {"row": (*none, 1, 0), "column": (*none, 0, 1)}
        launch(_items_of_triangle(name, bits), x.shape, (x, diagonal, out), strides)
        return out
    along = x.dim() - 1
    if (x.stride(-2), out.stride(-2)) == (1, 1):  # a turned matrix: its columns are walked
        along, columns = along - 1, lines
        name, diagonal = TURNED[name], -diagonal
    dense = x.stride(along) == out.stride(along) == 1
    sizes = [*x.shape, ceil_div(columns, CHUNK)]
    sizes[along] = 1
    kernel = _rows_of_triangle(name, bits, 16 if dense else 1, min(CHUNK, columns))
    place = [0] * len(sizes)
    place[2 * x.dim() - 3 - along] = 1
    still = (0,) * x.dim()
    strides = {
        "row": tuple(place), "first": (*still, CHUNK), "self": (*x.stride(), 0),
        "out": (*out.stride(), 0),
    }  # fmt: skip
    given = (x, out, diagonal, columns, x.stride(along), out.stride(along))
    launch(kernel, sizes, given, strides)
    return out


@cache
def _items_of_triangle(name: str, bits: torch.dtype) -> Kernel:
    return Kernel(
        name,
        dtype_of(bits).value,
        (
            Operand("self", bits),
            Operand("row", role="position"),
            Operand("column", role="position"),
            Scalar("diagonal", "long"),
            Operand("out", bits, "output"),
        ),
        f"const T out = column - row {'<=' if name == 'tril' else '>='} diagonal ? self : (T)(0);",
        scalar_only=True,
    )


NEIGHBOURS = 4
"""Items of a GPU's work-item: one access, where they are aligned."""
WALK = """\
const INDEX line = first / (INDEX)across;
INDEX column = first - line * (INDEX)across, row = line % (INDEX)down;
uint kept = 0;
#pragma unroll
for (int i = 0; i < NEIGHBOURS; ++i) {
    kept |= (uint)(column - row KEEPS (INDEX)diagonal) << i;
    const bool ends = ++column == (INDEX)across;
    column = ends ? 0 : column;
    row += ends;
    row = row == (INDEX)down ? 0 : row;
}
if (first + NEIGHBOURS <= (INDEX)count) {
    KIND value = (KIND)(0);
    if (kept)  // what is zero is not read
        value = LOADS_self(self_at);
    STORES_out(out_at, (KIND)(LANES));
} else {
    for (int i = 0; first + i < (INDEX)count; ++i)
        STORE_out(out_at + i, kept >> i & 1 ? LOAD_self(self_at + i) : 0);
}
"""


def _neighbours_of_triangle(name: str, x: Tensor, diagonal: int, out: Tensor) -> bool:
    """Write a triangle where both tensors lie as one dense stack of matrices; else return False.

    Args:
        name: "tril" or "triu".
        x: [..., rows, columns], not empty.
        diagonal: between the matrix's corners, or just beyond them.
        out: as x.
    """
    down, across = x.shape[-2:]
    if not (x.is_contiguous() and out.is_contiguous()):
        if not (x.mT.is_contiguous() and out.mT.is_contiguous()):
            return False
        name, diagonal, down, across = TURNED[name], -diagonal, across, down
    bits, count = BITS.get(x.dtype.itemsize, x.dtype), x.numel()
    at_once = NEIGHBOURS * x.itemsize
    aligned = not (x.data_ptr() % at_once or out.data_ptr() % at_once)
    diagonal = max(-down, min(diagonal, across))  # beyond the corners all are alike
    kernel = _neighbours(name, bits, aligned)
    strides = dict.fromkeys(("first", "self", "out"), (NEIGHBOURS,))
    given = (x, out, across, down, diagonal, count)
    launch(kernel, (ceil_div(count, NEIGHBOURS),), given, strides)
    return True


@cache
def _neighbours(name: str, bits: torch.dtype, aligned: bool) -> Kernel:
    register = dtype_of(bits).value
    lanes = (f"kept >> {i} & 1 ? value.s{i} : 0" for i in range(NEIGHBOURS))
    texts = {
        "KIND": vectors.vector(register, NEIGHBOURS),
        "LANES": ", ".join(lanes),
        "KEEPS": "<=" if name == "tril" else ">=",
        "NEIGHBOURS": str(NEIGHBOURS),
    }
    body = WALK
    for label, text in texts.items():
        body = body.replace(label, text)
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("first", role="position"),
        Operand("self", bits, "address", items=NEIGHBOURS, anywhere=not aligned, aligned=aligned),
        Operand("out", bits, "address", items=NEIGHBOURS, anywhere=not aligned, aligned=aligned),
        *(Scalar(label, "long") for label in ("across", "down", "diagonal", "count")),
    )
    return Kernel(f"{name}_neighbours", register, parameters, body, scalar_only=True, work=4)


COPIED, ZEROED = "LOAD{many}_self(self_at + c * from)", "({kind})(0)"
PART = """\
for (; c + {width} <= {end}; c += {width})
    STORE{many}_out(out_at + c * to, {value}){semicolon}
"""


@cache
def _rows_of_triangle(name: str, bits: torch.dtype, width: int, work: int) -> Kernel:
    """Return the kernel of processors: each row is a copied part and zeros, or the reverse.

    Args:
        name: "tril" or "triu".
        bits: moves the items.
        width: of vectors; 1: rows are not dense.
        work: items of a row that a work-item walks.
    """
    register = dtype_of(bits).value
    behind = 1 if name == "tril" else 0
    body = "const long last = min(first + CHUNK, columns);\nlong c = first;\n"
    body += f"const long split = clamp(row + diagonal + {behind}, first, last);\n"
    parts = (COPIED, ZEROED) if name == "tril" else (ZEROED, COPIED)
    for part, end in zip(parts, ("split", "last"), strict=True):
        for items in dict.fromkeys((width, 1)):
            many = "S" if items > 1 else ""
            value = part.format(many=many, kind=vectors.vector(register, items))
            if many:
                value = value.replace(" * from", "")
            text = PART.format(
                width=items, end=end, many=many, value=value, semicolon="" if many else ";"
            )
            body += text.replace(" * to", "") if many else text
    parameters: tuple[Operand | Scalar, ...] = (
        Operand("row", role="position"),
        Operand("first", role="position"),
        Operand("self", bits, "address", items=width, anywhere=True),
        Operand("out", bits, "address", items=width, anywhere=True),
        *(Scalar(label, "long") for label in ("diagonal", "columns", "from", "to")),
    )
    body = body.replace("CHUNK", f"{CHUNK}L")
    return Kernel(f"{name}_rows", register, parameters, body, scalar_only=True, work=work)


OPERATORS: dict[str, Callable[..., Any]] = {
    "tril": tril,
    "tril_": tril_,
    "tril.out": into(tril),
    "triu": triu,
    "triu_": triu_,
    "triu.out": into(triu),
}
"""Implementations by aten name."""
