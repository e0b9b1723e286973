"""What a kernel of expressions takes, and what its text needs before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocl_backend.dtypes import BFLOAT16, DType, dtype_of
from ocl_backend.kernels import vectors
from ocl_backend.ops.fused.expressions import Read
from ocl_backend.runtime.launch import Argument, Pointer, Varying

if TYPE_CHECKING:
    from ocl_backend.ops.fused.window import Window


@dataclass
class Arguments:
    """What a kernel takes: pointers, numbers of its calls, and sizes that are no constants."""

    window: Window
    pointers: dict[tuple[int, torch.dtype], tuple[str, int]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    given: dict[tuple[int, int], tuple[str, str, float]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def pointer(self, step: int, read: Read, writes: bool = False) -> str:
        """Return the name of the pointer to what a call reads, or `writes`."""
        address = int(self.window.steps[step].values[read.place])
        new = f"data{len(self.pointers)}", address
        name, _ = self.pointers.setdefault((address, read.dtype), new)
        if writes:
            self.written.add(name)
        return name

    def number(self, step: int, place: int, kind: str) -> str:
        """Return the name of a number of a call."""
        new = f"given{len(self.given)}", kind, self.window.steps[step].values[place]
        return self.given.setdefault((step, place), new)[0]

    def size(self, value: int, is_free: bool) -> str:
        """Return a size or stride; as an argument where it varies from call to call."""
        if not is_free or value in (0, 1):
            return str(value)
        self.sizes.append(value)
        return f"size{len(self.sizes) - 1}"

    @property
    def bytes(self) -> int:
        """How much all arguments take."""
        return 16 * len(self.pointers) + 8 * len(self.given) + 4 * len(self.sizes)

    @property
    def text(self) -> str:
        """The parameters."""
        lines = []
        for (_, dtype), (name, _) in self.pointers.items():
            # what is made of weights is kept until a kernel takes them as other than const
            const = "" if name in self.written else "const "
            kind = dtype_of(dtype).storage
            lines.append(f"{const}__global {kind} *{name}, const long {name}_start")
        lines += [f"const {kind} {name}" for name, kind, _ in self.given.values()]
        lines += [f"const int size{i}" for i in range(len(self.sizes))]
        return ",\n    ".join(lines)

    @property
    def moves(self) -> list[str]:
        """The statements that let pointers point to the first item."""
        return [f"    {name} += {name}_start;" for name, _ in self.pointers.values()]

    @property
    def kinds(self) -> list[Argument]:
        """The arguments as a launch takes them."""
        pointers = [Pointer(dtype.itemsize) for _, dtype in self.pointers]
        numbers = (kind for _, kind, _ in self.given.values())
        varying = [Varying("float" if kind == "float" else "long") for kind in numbers]
        return [*pointers, *varying, *map(np.int32, self.sizes)]

    @property
    def values(self) -> list[float]:
        """The values that a launch is called with."""
        addresses = (address for _, address in self.pointers.values())
        return [*addresses, *(value for *_, value in self.given.values())]

    @property
    def prelude(self) -> str:
        """Text that loads, stores and rounding need, for all widths."""
        types: dict[DType, None] = {dtype_of(dtype): None for _, dtype in self.pointers}
        types |= {dtype_of(node.out.dtype): None for node in self.window.nodes}
        lines = ["#pragma OPENCL FP_CONTRACT OFF", "#define round_float(x) (x)"]
        for dtype in types:
            lines += [dtype.prelude, *_rounding(dtype, 1)]
            for width in (2, 4, 8, 16):
                if dtype is BFLOAT16:
                    own = vectors.prelude(dtype, width).removeprefix(dtype.prelude)
                    lines.append(own)
                lines += _rounding(dtype, width)
        return "\n".join(line for line in lines if line) + "\n"


def _rounding(dtype: DType, width: int) -> list[str]:
    """Return the function that rounds floats as a store and a load of `dtype` do."""
    if dtype.value != "float" or dtype.storage == "float":
        return []
    kind, kept = vectors.vector("float", width), vectors.vector("ushort", width)
    name, s = f"round_{dtype.storage}_{width}", "" if width == 1 else str(width)
    if dtype is BFLOAT16:
        to = "to_bfloat16" if width == 1 else f"to_bfloat16_{width}"
        return [
            f"{kind} {name}(const {kind} x) {{",
            f"    return as_float{s}(convert_uint{s}({to}(x)) << 16);",
            "}",
        ]
    return [
        f"{kind} {name}(const {kind} x) {{",
        f"    {kept} kept;",
        f"    vstore_half{s}_rte(x, 0, (half *)&kept);",
        f"    return vload_half{s}(0, (const half *)&kept);",
        "}",
    ]


def as_stored(dtype: torch.dtype, value: str, width: int) -> str:
    """Return `value` as it is after a store to `dtype` and a load."""
    kind = dtype_of(dtype)
    plain = kind.value != "float" or kind.storage == "float"
    return value if plain else f"round_{kind.storage}_{width}({value})"
