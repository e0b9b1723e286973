"""Macros with which the body of an elementwise kernel reads and writes items that it addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocl_backend.kernels import vectors

if TYPE_CHECKING:
    from ocl_backend.kernels.elementwise import Kernel, Operand


def at_once(operand: Operand, alone: bool) -> int:
    """Return how many of an operand's `items` are one access.

    Args:
        operand: an `address`.
        alone: whether a work-group is one work-item, as on CPUs, whose vectors lie anywhere.
    """
    if alone and operand.items in vectors.CPU_WIDTHS:
        return operand.items
    return vectors.width_at_once([operand.type], [operand.items])


def accessors(kernel: Kernel, alone: bool) -> list[str]:
    """Return the macros with which a body reads and writes items of `address` operands.

    Args:
        kernel: whose body it is.
        alone: as `at_once` takes it.
    """
    lines = []
    for operand in kernel.operands:
        if operand.role == "address":
            data, item = f"{operand.name}_data", operand.type
            value = operand.value or kernel.value
            load = vectors.convert(item.value, value, item.load(data, "(at)"), 1)
            kept = vectors.to_dtype(item, value, "(value)", 1)
            lines.append(f"#define LOAD_{operand.name}(at) ({load})")
            lines.append(
                f"#define STORE_{operand.name}(at, value) {item.store(data, '(at)', kept)}"
            )
            if operand.items > 1:
                lines += _vector_accessors(operand, value, alone)
    return lines


def _vector_accessors(operand: Operand, value: str, alone: bool) -> list[str]:
    """Return the macros for `items` at once: as many accesses as a GPU needs for them."""
    data, at, item, items = f"{operand.name}_data", "(at) + ", operand.type, operand.items
    if operand.anywhere:  # an access asks whether its pointer is aligned
        data, at = f"({data} + (at))", ""
    width, lies = at_once(operand, alone), operand.aligned
    starts = range(0, items, width)
    parts = ", ".join(vectors.load(item, data, f"{at}{k}", "1", width, lies) for k in starts)
    kept = vectors.vector(item.value, items)
    load = vectors.convert(item.value, value, f"({kept})({parts})", items)
    stores = [f"const {kept} stored = {vectors.to_dtype(item, value, '(value)', items)};"]
    for k in starts:
        digits = "".join(f"{k + i:x}" for i in range(width))
        stores += vectors.store(item, data, f"{at}{k}", "1", f"stored.s{digits}", width, lies)
    written = f"#define STORES_{operand.name}(at, value) {{ {' '.join(stores)} }}"
    return [f"#define LOADS_{operand.name}(at) {load}", written]
