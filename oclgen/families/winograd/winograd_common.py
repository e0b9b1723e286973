"""What the Winograd families share: the text of their transforms, and the product between them.

It is no family itself; the families are `winograd_staged`, `winograd_blocked`, `winograd_fused`
and `winograd_weights`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from oclgen.families.winograd.winograd_geometry import Geometry
from oclgen.families.winograd.winograd_matrices import Matrix, Transforms, cook_toom, statements
from oclgen.limits import Limits
from oclgen.plan import Needs
from oclgen.problem import GemmProblem
from oclgen.render import vector
from oclgen.variant import Nested, Variant

Workspaces = tuple[tuple[str, int], ...]
"""Role and bytes of each."""
PRODUCT = Nested(("gemm_register", "gemm_staged", "gemm_async"))
"""The families that can do the product between the transforms."""
ProductText = Annotated[str, PRODUCT]
FLOAT = 4
"""Bytes of a workspace element: transformed data is fp32 whatever the problem stores."""


def axis_function(name: str, matrix: Matrix, kind: str) -> str:
    """Return a function that multiplies one row or column of a private tile by `matrix` in place.

    Called for every column and then for every row of an in_tile x in_tile array, it transforms
    the whole tile; elements are `step` apart.

    Args:
        name: of the function.
        matrix: of a transform, as exact fractions.
        kind: type of an element: float or a vector of floats.
    """
    inputs = [f"x{i}" for i in range(len(matrix[0]))]
    outputs = [f"v[{i} * step]" for i in range(len(matrix))]
    body = [f"const {kind} {x} = v[{i} * step];" for i, x in enumerate(inputs)]
    body += statements(matrix, inputs, outputs, kind)
    lines = "\n".join(f"    {line}" for line in body)
    return f"static inline void {name}({kind} *v, const int step)\n{{\n{lines}\n}}"


def input_axis(geo: Geometry, width: int) -> str:
    """Return `input_axis`, B^T along one axis, on vectors of `width` floats."""
    return axis_function("input_axis", matrices(geo).input, vector(width))


def output_axis(geo: Geometry, width: int) -> str:
    """Return `output_axis`, A^T along one axis, on vectors of `width` floats."""
    return axis_function("output_axis", matrices(geo).output, vector(width))


def matrices(geo: Geometry) -> Transforms:
    """Return the matrices of its tiles."""
    return cook_toom(geo.out_tile, geo.taps)


@lru_cache(maxsize=4096)
def product_why_not(text: str, product: GemmProblem, limits: Limits) -> str | None:
    """Say why the variant of this text cannot do the product of all points, or None.

    Args:
        text: family and config, as `Variant.to_text` writes them.
        product: the batched product of all points.
        limits: of the device.
    """
    if reason := PRODUCT.why_not(text):
        return f"gemm={text!r}; it must be {reason}"
    variant = Variant.from_text(text)
    # what its plan needs is asked with the plan around it
    if variant.serves(product):
        reason = variant.config.why_not(product, limits)
    else:
        reason = f"it does not compute {product.key()}"
    return f"the product by {variant.family}: {reason}" if reason else None


@lru_cache(maxsize=4096)
def product_needs(text: str, product: GemmProblem) -> Needs:
    """Return what the variant of this text asks of a device for the product of all points."""
    needs: Needs = Variant.from_text(text).config.needs(product)
    return needs
