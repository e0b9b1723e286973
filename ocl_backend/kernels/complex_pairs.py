"""OpenCL C for complex numbers: `width` pairs of neighbours as two vectors, and back.

A pair's address is a multiple of its size, as that of every complex number of torch is.
"""

from __future__ import annotations

from ocl_backend.dtypes import DType
from ocl_backend.kernels import vectors

HALVES = {"real": "even", "imaginary": "odd"}
"""A vector's items that are one part of each of its pairs."""


def load(dtype: DType, name: str, stride: str, width: int) -> list[str]:
    """Return the statements that declare `name_real` and `name_imaginary`.

    Args:
        dtype: of a part; registers have its type.
        name: of the operand, whose first pair is `name_at`.
        stride: distance of the pairs: "0" (all are one), "1" (dense), or an expression.
        width: pairs, an OpenCL vector's width.
    """
    data, at, kept = f"{name}_data", f"2 * (long){name}_at", vectors.vector(dtype.value, width)
    lines = []
    if stride == "1" or width == 1:
        loaded = vectors.load(dtype, data, at, "1", 2 * width, aligned=width == 1)
        lines.append(f"const {vectors.vector(dtype.value, 2 * width)} {name}_pairs = {loaded};")
        parts = [f"{name}_pairs.{items}" for items in HALVES.values()]
    else:
        step = "0" if stride == "0" else f"2 * (long){stride}"
        parts = [vectors.load(dtype, data, f"{at} + {part}", step, width) for part in range(2)]
    return lines + [
        f"const {kept} {name}_{half} = {part};" for half, part in zip(HALVES, parts, strict=True)
    ]


def store(dtype: DType, name: str, stride: str, width: int) -> list[str]:
    """Return the statements that write `name_real` and `name_imaginary` as pairs.

    Args:
        dtype: of a part.
        name: of the operand, whose first pair is `name_at`.
        stride: distance of the pairs, as for `load`.
        width: pairs.
    """
    data, at = f"{name}_data", f"2 * (long){name}_at"
    if stride == "1" or width == 1:
        lines = [f"{vectors.vector(dtype.value, 2 * width)} {name}_pairs;"]
        lines += [f"{name}_pairs.{items} = {name}_{half};" for half, items in HALVES.items()]
        aligned = width == 1
        return lines + vectors.store(dtype, data, at, "1", f"{name}_pairs", 2 * width, aligned)
    step = "0" if stride == "0" else f"2 * (long){stride}"
    return [
        line
        for part, half in enumerate(HALVES)
        for line in vectors.store(dtype, data, f"{at} + {part}", step, f"{name}_{half}", width)
    ]
