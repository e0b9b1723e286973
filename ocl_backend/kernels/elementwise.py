"""Elementwise kernels: operands, scalars and a body in, OpenCL C and a prepared launch out.

The callers say what the body computes; this module says how items are walked. It serves pointwise
operators, indexing (an `address` is an item index that the body computes), random numbers and
ranges (a `position` is an index without a buffer).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ocl_backend.dtypes import DType, dtype_of, encode
from ocl_backend.kernels import vectors
from ocl_backend.kernels.accessors import accessors, at_once
from ocl_backend.kernels.dimensions import (
    Dimensions,
    Sizes,
    broadcast_strides,
    collapse,
    with_long_rows,
)
from ocl_backend.kernels.item_blocks import block_of_items, loads_ahead
from ocl_backend.runtime.launch import MOST_LAUNCHES, Argument, Pointer, Varying, prepare
from oclgen.limits import Limits
from oclgen.opencl.device import devices
from oclgen.render import render

Role = Literal["input", "output", "inout", "address", "position"]

CHUNK = 4096
"""Items one work-item of a CPU walks: some microseconds, against tenths for starting it."""


SHORT_ROW = 8
"""Items of a row that a processor walks as a row, though items of an operand lie apart."""

AHEAD = 4
"""Vectors that a work-item of a GPU loads before it computes, at most."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the kernel, or a position.

    `input` is loaded before the body, `output` stored after it, `inout` both; `address` gives the
    body an item index `name_at`, the pointer `name_data` and the macros `LOAD_name(at)` and
    `STORE_name(at, value)`, and for vectors of `items`, at multiples of `items` or `anywhere`,
    `LOADS_name` and `STORES_name`, which test where their pointer lies unless the caller promises
    that all are `aligned`; `position` gives the index alone, as the variable `name`.
    `value` is the C type in registers ("": the kernel's), `result` what is stored ("": `name`).
    Each item of an `input` or `output` that `is_pair` is two neighbours of `dtype`, as a complex
    number is: in registers `name_real` and `name_imaginary`.
    """

    name: str
    dtype: torch.dtype = torch.int64
    role: Role = "input"
    value: str = ""
    result: str = ""
    items: int = 1
    anywhere: bool = False
    aligned: bool = False
    is_pair: bool = False

    @property
    def type(self) -> DType:
        """How the dtype is stored."""
        return dtype_of(self.dtype)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number given at launch; `value` is its C type in the body."""

    name: str
    value: str

    @property
    def argument(self) -> Varying:
        """How it travels: a double as the bits of a long, every integer as a long."""
        return Varying("float" if self.value == "float" else "long")


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything but sizes and strides. In `body`, `T` is a register of `value`, `R` of `truth`.

    `parameters` are in the order of a launch's values (positions have none). The body must be
    right for scalars and vectors alike unless `scalar_only`. `work` is how many usual items'
    worth of time a body takes: work-items then walk fewer. `parts` work-items share out the
    first dimension alone and walk all others in the order given; 0: all are shared, in any order.
    """

    name: str
    value: str
    parameters: tuple[Operand | Scalar, ...]
    body: str
    helpers: str = ""
    scalar_only: bool = False
    truth: str = ""
    work: int = 1
    parts: int = 0

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The parameters that are walked."""
        return tuple(p for p in self.parameters if isinstance(p, Operand))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The parameters that are numbers."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar))

    def is_read_only(self, operand: Operand) -> bool:
        """Say whether the body writes nothing to an operand, which is then declared const.

        A command counts as one that writes to all other memory: what was made of weights is then
        made anew (csrc/runtime/kept.h).
        """
        if operand.role not in ("input", "address"):
            return False
        name, text = operand.name, self.body + self.helpers
        return not any(way in text for way in (f"STORE_{name}", f"STORES_{name}", f"{name}_data"))


@dataclass(frozen=True, slots=True)
class ItemSharing:
    """How the items are shared out: `local` work-items side by side, `steps` vectors each."""

    width: int
    local: tuple[int, int]
    steps: int
    rows_per_item: int

    @staticmethod
    def of(layout: Dimensions, limits: Limits, kernel: Kernel) -> ItemSharing:
        """Return long vector loops for CPUs, one vector or up to four items per work-item for GPUs.

        Args:
            layout: sizes and strides, collapsed.
            limits: of the device.
            kernel: whether it has vectors, and its operations per item.
        """
        if kernel.parts:
            first = layout.sizes[0]
            return ItemSharing(1, (1, 1), 0, -(-first // kernel.parts) * (layout.rows // first))
        if limits.kind == "cpu":
            width = 1 if kernel.scalar_only else vectors.width_of_walk(layout.inner, layout.rows)
            if any(operand.is_pair for operand in kernel.operands):
                width = min(width, vectors.CPU_WIDTHS[-1])  # a vector of pairs has twice as many
            steps = max(1, CHUNK // (width * kernel.work))
            return ItemSharing(width, (1, 1), steps, max(1, CHUNK // (layout.inner * kernel.work)))
        group = min(256, limits.max_work_group)
        width = _gpu_width(kernel, layout) if layout.inner * layout.rows >= 64 * group else 1
        across = vectors.work_items_across(-(-layout.inner // width), group)
        steps = 4 if width == kernel.work == 1 and layout.inner >= 64 * group else 1
        if width > 1 and kernel.work == 1 and layout.inner >= AHEAD * width * group:
            steps = _vectors_ahead(kernel, layout, width, limits)
        # one row has no second dimension: more work-items along it would walk the row again
        down = group // across if layout.rows > 1 else 1
        return ItemSharing(width, (across, down), steps, 1)

    def global_size(self, layout: Dimensions) -> tuple[int, int]:
        """Return the work-items to launch."""
        columns = -(-layout.inner // (self.local[0] * self.width * self.steps)) if self.steps else 1
        rows = -(-layout.rows // (self.local[1] * self.rows_per_item))
        return columns * self.local[0], rows * self.local[1]


def _gpu_width(kernel: Kernel, layout: Dimensions) -> int:
    """Return the most items that each operand reads or writes by one access; 1 if that cannot be.

    Rows of dense operands then begin with a whole vector: all are aligned where the first one is.
    """
    if kernel.scalar_only or any(steps[-1] not in (0, 1) for steps in layout.strides):
        return 1
    if any(operand.is_pair for operand in kernel.operands):
        return 1  # a pair is an access
    begins = [step for steps in layout.strides if steps[-1] == 1 for step in steps[:-1]]
    whole = [layout.inner, *begins] if layout.rows > 1 else []
    return vectors.width_at_once((operand.type for operand in kernel.operands), whole)


def _vectors_ahead(kernel: Kernel, layout: Dimensions, width: int, limits: Limits) -> int:
    """Return how many vectors a GPU's work-item loads at once: together as wide as an access.

    A vector of four 16-bit items is half an access, and half as many bytes are on their way.
    """
    widest = max(operand.type.item_bytes for operand in kernel.operands)
    steps = min(AHEAD, vectors.ACCESS_BYTES // (width * widest))
    busy = layout.inner * layout.rows // (width * vectors.busy_items(limits))
    return max(1, min(steps, 1 << busy.bit_length() >> 1))


Run = Callable[..., None]


def prepare_elementwise(device: int, kernel: Kernel, shape: Sizes, strides: Sequence[Sizes]) -> Run:
    """Return the launch of a kernel over a shape.

    Call it with a `data_ptr()` or a number per parameter, in order, positions left out.

    Args:
        device: its index.
        kernel: what is computed.
        shape: of the results, any rank; with a 0 the launch does nothing.
        strides: of each operand over `shape`, in items.

    Raises:
        NotImplementedError: a dtype has no kernel.
        BuildError: the compiler refused the text.
    """
    if 0 in shape:
        return lambda *_: None
    lead = [operand.role in ("output", "inout") for operand in kernel.operands]
    if kernel.parts:
        layout = Dimensions(tuple(shape), tuple(map(tuple, strides)))
    else:
        layout = collapse(shape, strides, lead.index(True) if any(lead) else 0)
    limits = devices()[device].limits
    if limits.kind == "cpu" and not (kernel.parts or kernel.scalar_only):
        layout = with_long_rows(layout, SHORT_ROW)
    geometry = ItemSharing.of(layout, limits, kernel)
    wide = layout.reach >= 2**31 - CHUNK
    inner = tuple(str(steps[-1]) if steps[-1] in (-1, 0, 1) else "s" for steps in layout.strides)
    alone = limits.kind == "cpu"
    text = source(kernel, len(layout.sizes), inner, geometry.width, geometry.steps, wide, alone)
    return prepare(
        device, text, f"{kernel.name}_kernel", geometry.global_size(layout),
        _arguments(kernel, layout, geometry, inner, np.int64 if wide else np.int32),
        geometry.local,
    )  # fmt: skip


def launch(
    kernel: Kernel,
    shape: Sizes,
    given: Sequence[Tensor | float],
    strides: Mapping[str, Sizes] | None = None,
) -> None:
    """Run a kernel over a shape.

    Args:
        kernel: what is computed.
        shape: of the results.
        given: tensors, broadcast to `shape`, and numbers in the order of the parameters.
        strides: how the named operands move instead, in items: addresses and positions need it.
    """
    run, values = found(kernel, shape, given, strides)
    run(*values)


def found(
    kernel: Kernel, shape: Sizes, given: Sequence[Tensor | float],
    strides: Mapping[str, Sizes] | None = None,
) -> tuple[Run, list[float]]:  # fmt: skip
    """Return what `launch` calls, and its values.

    Args:
        kernel: what is computed.
        shape: of the results.
        given: as `launch` takes it.
        strides: of the named operands, as `launch` takes them.
    """
    named = strides or {}
    tensors = [value for value in given if isinstance(value, Tensor)]
    rest, scalars = iter(tensors), iter(kernel.scalars)
    walked = []
    for operand in kernel.operands:
        tensor = None if operand.role == "position" else next(rest)
        if operand.name in named or tensor is None:
            walked.append(tuple(named[operand.name]))
        else:
            walked.append(broadcast_strides(shape, tensor.shape, tensor.stride()))
    run = _remembered(tensors[0].get_device(), kernel, tuple(shape), tuple(walked))
    return run, [
        v.data_ptr() if isinstance(v, Tensor) else encode(next(scalars).value, v) for v in given
    ]


@lru_cache(maxsize=MOST_LAUNCHES)
def _remembered(
    device: int, kernel: Kernel, shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> Run:
    return prepare_elementwise(device, kernel, shape, strides)


def _arguments(
    kernel: Kernel, layout: Dimensions, geometry: ItemSharing, inner: Sequence[str],
    number: type[np.int32] | type[np.int64],
) -> list[Argument]:  # fmt: skip
    """Return the arguments in the template's order."""
    given = [p for p in kernel.parameters if isinstance(p, Scalar) or p.role != "position"]
    numbers = [layout.inner]
    if len(layout.sizes) > 1:
        numbers += [layout.rows, geometry.rows_per_item, *layout.sizes[1:-1]]
    for kind, strides in zip(inner, layout.strides, strict=True):
        numbers += strides[:-1] if kind != "s" else strides
    return [
        *(p.argument if isinstance(p, Scalar) else Pointer(p.dtype.itemsize) for p in given),
        *(number(value) for value in numbers),
    ]


@cache
def source(
    kernel: Kernel, rank: int, inner: tuple[str, ...], width: int, steps: int, wide: bool,
    alone: bool = False,
) -> str:  # fmt: skip
    """Return the OpenCL C of a kernel.

    Args:
        kernel: what is computed.
        rank: collapsed dimensions.
        inner: how each operand moves along the innermost one: "0" (repeated), "1" (dense), "-1"
            (backwards) or "s" (a stride given at launch).
        width: items of a vector.
        steps: vectors of a work-item along the innermost dimension; 0: all of it.
        wide: whether indices need 64 bits.
        alone: whether a work-group is one work-item.
    """
    widths: dict[DType, int] = {}
    for operand in kernel.operands:
        if operand.role != "position":
            piece = at_once(operand, alone)
            widths[operand.type] = max(widths.get(operand.type, width), piece)
    has_ahead = not alone and width > 1 and steps > 1
    results = [
        o.type for o in kernel.operands if o.role != "position" and not kernel.is_read_only(o)
    ]
    return render(
        "elementwise", package="ocl_backend", kernel=kernel,
        prelude=vectors.narrow_quotients(results, kernel.body + kernel.helpers)
        + "".join(vectors.prelude(dtype, most) for dtype, most in widths.items()),
        outer=rank - 1,
        inner=dict(zip((operand.name for operand in kernel.operands), inner, strict=True)),
        width=width, steps=steps, index="long" if wide else "int", alone=alone,
        block=lambda width, ahead=False: block_of_items(kernel, inner, width, ahead),
        ahead=loads_ahead(kernel, inner, width, steps) if has_ahead else None,
        accessors=accessors(kernel, alone),
    )  # fmt: skip
