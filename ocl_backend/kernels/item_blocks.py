"""The statements by which an elementwise kernel loads, computes and stores `width` items."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ocl_backend.kernels import complex_pairs, vectors

if TYPE_CHECKING:
    from ocl_backend.kernels.elementwise import Kernel, Operand, Scalar

LOADED = "input", "inout"
"""Roles of operands that are read before the body."""


def block_of_items(
    kernel: Kernel, inner: Sequence[str], width: int, ahead: bool = False
) -> list[str]:
    """Return the statements that load, compute and store `width` items.

    Args:
        kernel: what is computed.
        inner: how each operand moves, as `elementwise.source` takes it.
        width: items of a vector.
        ahead: whether `loads_ahead` has loaded the items, and all vectors are aligned.
    """
    lines = []
    walked = list(zip(kernel.operands, inner, strict=True))
    for operand, kind in walked:
        at = _place(operand, kind)
        if operand.role == "position":
            lines.append(f"const long {operand.name} = {at};")
            continue
        lines.append(f"const INDEX {operand.name}_at = {at};")
        if operand.is_pair and operand.role == "input":
            stride = f"{operand.name}_stride_0" if kind == "s" else kind
            lines += complex_pairs.load(operand.type, operand.name, stride, width)
        elif operand.role in LOADED:
            loaded = f"{operand.name}_ahead[step]"
            if not ahead:
                loaded = _loaded(operand, kernel, kind, f"{operand.name}_at", width)
            kept = vectors.vector(_value(operand, kernel), width)
            lines.append(f"const {kept} {operand.name} = {loaded};")
    lines += [scalar_of(scalar, kernel.value, width) for scalar in kernel.scalars]
    lines += _body(kernel, width)
    for operand, kind in walked:
        if operand.role in ("output", "inout"):
            lines += _store(operand, kernel, kind, width, ahead)
    return lines


def loads_ahead(
    kernel: Kernel, inner: Sequence[str], width: int, steps: int
) -> tuple[list[str], list[str], list[str]]:
    """Return how a GPU's work-item loads several vectors before it computes with the first.

    Args:
        kernel: what is computed.
        inner: how each operand moves, as `elementwise.source` takes it.
        width: items of a vector.
        steps: vectors of a work-item.

    Returns:
        Tests that each dense operand is aligned, the arrays that are filled, and the statements of
        a step that fill them.
    """
    tests, arrays, loads = list[str](), list[str](), list[str]()
    for operand, kind in zip(kernel.operands, inner, strict=True):
        if kind == "1":
            tests.append(vectors.is_aligned(operand.type, f"{operand.name}_data", width))
        if operand.role in LOADED:
            kept = vectors.vector(_value(operand, kernel), width)
            arrays.append(f"{kept} {operand.name}_ahead[{steps}];")
            loaded = _loaded(operand, kernel, kind, _place(operand, kind), width, True)
            loads.append(f"{operand.name}_ahead[step] = {loaded};")
    return tests, arrays, loads


def _place(operand: Operand, kind: str) -> str:
    """Return the index of an operand's item `inner` of a row."""
    strided = f" + inner * {operand.name}_stride_0"
    moved = {"0": "", "1": " + inner", "-1": " - inner", "s": strided}
    return f"{operand.name}_row{moved[kind]}"


def _value(operand: Operand, kernel: Kernel) -> str:
    """Return the C type in registers of an operand that is loaded."""
    return kernel.value if operand.role == "inout" else operand.value or kernel.value


def _loaded(
    operand: Operand, kernel: Kernel, kind: str, at: str, width: int, aligned: bool = False
) -> str:
    stride = f"{operand.name}_stride_0" if kind == "s" else kind
    raw = vectors.load(operand.type, f"{operand.name}_data", at, stride, width, aligned)
    return vectors.convert(operand.type.value, _value(operand, kernel), raw, width)


def _store(operand: Operand, kernel: Kernel, kind: str, width: int, aligned: bool) -> list[str]:
    value = operand.value or kernel.value
    stride = f"{operand.name}_stride_0" if kind == "s" else kind
    if operand.is_pair:
        return complex_pairs.store(operand.type, operand.name, stride, width)
    name = f"{operand.name}_item"
    stored = vectors.to_dtype(operand.type, value, operand.result or operand.name, width)
    kept = vectors.vector(operand.type.value, width)
    writes = vectors.store(
        operand.type, f"{operand.name}_data", f"{operand.name}_at", stride, name, width, aligned
    )
    return [f"const {kept} {name} = {stored};", *writes]


def scalar_of(scalar: Scalar, value: str, width: int) -> str:
    """Return the declaration of a scalar in a kernel.

    Args:
        scalar: the parameter.
        value: the kernel's C type: a scalar of that type is a vector of equal numbers.
        width: of that vector.
    """
    given = f"{scalar.name}_given"
    if scalar.value == "double":
        given = f"as_double({given})"
    kept = vectors.vector(value, width) if scalar.value == value else scalar.value
    return f"const {kept} {scalar.name} = ({kept})({given});"


def _body(kernel: Kernel, width: int) -> list[str]:
    """Return the body with `T` replaced and floating literals in the kernel's precision."""
    text = re.sub(r"\bR\b", vectors.vector(kernel.truth, width), kernel.body)
    return textwrap.dedent(vectors.in_type(text, kernel.value, width)).strip().splitlines()
