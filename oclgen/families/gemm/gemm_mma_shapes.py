"""Which tiles `gemm_mma` guesses for a product, and in how many slices of k."""

from __future__ import annotations

from oclgen.families.gemm.gemm_mma_tiles import PANEL_BYTES
from oclgen.families.gemm.gemm_tiles import lies_along_k
from oclgen.families.parts.blocking import ITEMS_PER_UNIT, fill
from oclgen.families.parts.mma_shapes import Shape, narrow, ranked
from oclgen.limits import Limits
from oclgen.problem import DTYPES, GemmProblem

USUAL = (
    (Shape("wgmma", 128, 128, 32, 4, 1, 5, 1), "ab"),
    (Shape("wgmma", 128, 192, 32, 4, 1, 4, 0), "ab"),
    (Shape("wgmma", 128, 128, 64, 4, 1, 2, 0), ""),
    (Shape("wgmma", 128, 128, 32, 4, 1, 5, 1), "a"),
    (Shape("wgmma", 128, 64, 64, 4, 1, 3, 0), ""),
    (Shape("wgmma", 64, 64, 64, 4, 1, 5, 0), ""),
    (Shape("mma", 128, 128, 64, 2, 2, 2, 0), "ab"),
    (Shape("mma", 128, 128, 64, 2, 2, 2, 0), ""),
    (Shape("mma", 128, 64, 64, 2, 2, 3, 0), ""),
    (Shape("mma", 64, 64, 64, 2, 2, 4, 0), ""),
    (Shape("mma", 32, 64, 64, 1, 2, 4, 0), ""),
)
"""Shapes of up to 48 KiB, which hold few stages, and the operands that are packed: narrow steps of
packed ones are copied in the largest pieces; unpacked, rows of 64 bytes are."""


def shapes_of(problem: GemmProblem, limits: Limits) -> tuple[tuple[Shape, str], ...]:
    """Return shapes, best guess first, each with the operands that are packed.

    Where a kernel may declare much local memory, wide tiles in many stages come first. Products of
    few rows or columns read their other operand once, with tiles as narrow.
    """
    few = ((shape, "") for shape in _narrow(problem, limits))
    return (*few, *_wide(problem, limits), *USUAL)


def split_of(problem: GemmProblem, limits: Limits, tile_m: int, tile_n: int, tile_k: int) -> int:
    """Return the slices of k: a work-group fills a unit, and planes cost more than a short wait.

    Args:
        problem: a product.
        limits: of the device: its compute units.
        tile_m: rows of a tile.
        tile_n: columns of a tile.
        tile_k: steps of the reduction in a tile.
    """
    return fill(problem, limits, tile_m, tile_n, tile_k, ITEMS_PER_UNIT)


def _narrow(problem: GemmProblem, limits: Limits) -> list[Shape]:
    """Return shapes for few rows or columns; what does not lie along k comes in whole panels."""
    least = {
        role: 16 if lies_along_k(problem, role) else PANEL_BYTES // DTYPES[problem.dtype]
        for role in "ab"
    }
    is_wide = limits.declared_local_bytes > 0
    return narrow(problem.m, problem.n, least["a"], least["b"], is_wide)


def _wide(problem: GemmProblem, limits: Limits) -> list[tuple[Shape, str]]:
    """Return wide shapes, each with the operands that are packed: the third packs both."""

    def slices(shape: Shape) -> int:
        tile_k = shape.row_bytes // DTYPES[problem.dtype]
        return split_of(problem, limits, shape.tile_m, shape.tile_n, tile_k)

    first, second, *others = ranked(
        problem.m, problem.n, problem.batch, limits.compute_units, slices
    )
    return [(first, ""), (second, ""), (first, "ab"), *((shape, "") for shape in others)]
