"""Operands of GEMM repacked: as panels for registers, or as the tiles of local memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oclgen.families.gemm import gemm_parts as parts
from oclgen.families.parts.packing import CHUNK_BYTES, Packing, packed_elements
from oclgen.plan import Launch, LazyText
from oclgen.problem import DTYPES, GemmProblem, divided_by
from oclgen.render import dtype_preamble, render


@dataclass(frozen=True)
class TileEdges:
    """Says which sizes of a product the tiles of a config do not divide."""

    problem: GemmProblem
    config: Any

    @property
    def edge_m(self) -> bool:
        """Whether tiles do not divide the rows."""
        return not divided_by(self.problem, "m", self.config.tile_m)

    @property
    def edge_n(self) -> bool:
        """Whether tiles do not divide the columns."""
        return not divided_by(self.problem, "n", self.config.tile_n)

    @property
    def edge_k(self) -> bool:
        """Whether tiles do not divide the steps of the reduction."""
        return not divided_by(self.problem, "k", self.config.tile_k)


def lies_along_k(problem: GemmProblem, role: str) -> bool:
    """Say whether neighbours of matrix a or b in memory are steps of the reduction."""
    return not problem.trans_a if role == "a" else problem.trans_b


def uneven_rows(problem: GemmProblem) -> dict[str, int]:
    """Return the bytes of a row by role, of dense operands where 16 do not divide them.

    A row of free size may have any length, and is not among them.
    """
    found = {}
    for role, across in (("a", "m"), ("b", "n")):
        length = "k" if lies_along_k(problem, role) else across
        row_bytes = getattr(problem, length) * DTYPES[problem.dtype]
        if length not in problem.free and row_bytes % CHUNK_BYTES:
            found[role] = row_bytes
    return found


def tiles_of(problem: GemmProblem, role: str, tile: int, tile_k: int) -> Packing:
    """Return operand a or b as [batch][tiles][steps of k][tile], stored as it was.

    Args:
        problem: whose operand it is.
        role: "a" or "b".
        tile: rows of A, or columns of B, of a tile.
        tile_k: steps of k of a tile.
    """
    batch, extent = _batch(problem, role), _extent(problem, role)
    return Packing(
        f"packed_{role}", parts.matrix(problem, role), problem.dtype, lies_along_k(problem, role),
        batch, extent, problem.k, tile, tile_k, DTYPES[problem.dtype],
        batch_stride=packed_elements(extent, problem.k, tile, tile_k) if batch > 1 else 0,
    )  # fmt: skip


def panels_of(problem: GemmProblem, role: str, width: int) -> Packing:
    """Return operand a or b in fp32 as [batch][panels][k][width].

    Args:
        problem: whose operand it is.
        role: "a" or "b".
        width: rows of A, or columns of B, of a panel.
    """
    shared, extent = _is_shared(problem, role), _extent(problem, role)
    return Packing(
        f"packed_{role}", parts.matrix(problem, role), problem.dtype, lies_along_k(problem, role),
        _batch(problem, role), extent, problem.k, width,
        batch_stride=0 if shared else packed_elements(extent, problem.k, width),
    )  # fmt: skip


@lru_cache(maxsize=64)
def pack_panels(panels: Packing, pairs: bool = False) -> Launch:
    """Return the launch that packs an operand as panels: of fp32, or of pairs as `tiles_of` it."""

    @LazyText
    def text() -> str:
        return render(
            "gemm_pack",
            name=panels.workspace,
            preamble="" if pairs else dtype_preamble(panels.dtype),
            width=panels.tile,
            steps=parts.PACK_STEPS,
            along_k=panels.along_k,
            pairs=pairs,
        )

    return panels.launch(text, rows=panels.tile, steps=parts.PACK_STEPS)


def packed_operands(problem: GemmProblem, tile_k: int, **tiles: int) -> dict[str, Packing]:
    """Return operands by role, packed as tiles of `tiles` rows; 0 leaves an operand as it lies."""
    return {role: tiles_of(problem, role, tile, tile_k) for role, tile in tiles.items() if tile}


def _is_shared(problem: GemmProblem, role: str) -> bool:
    return problem.shared_a if role == "a" else problem.shared_b


def _batch(problem: GemmProblem, role: str) -> int:
    return 1 if _is_shared(problem, role) else problem.batch


def _extent(problem: GemmProblem, role: str) -> int:
    return problem.m if role == "a" else problem.n
