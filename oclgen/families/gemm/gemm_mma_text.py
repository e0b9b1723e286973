"""What the template of `gemm_mma` writes: which elements of an operand a work-item copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oclgen.families.gemm.gemm_tiles import TileEdges
from oclgen.families.parts.expressions import plus
from oclgen.families.parts.packing import CHUNK_BYTES

if TYPE_CHECKING:
    from oclgen.families.gemm.gemm_mma import Config
    from oclgen.families.gemm.gemm_mma_tiles import Pieces


@dataclass(frozen=True)
class Text(TileEdges):
    """The pieces of text that depend on a problem and a config."""

    config: Config
    pieces: Mapping[str, Pieces]

    def chunk(self, side: str, i: int) -> tuple[str, str]:
        """Return the pointer to a work-item's i-th chunk of a tile, and how much of it is there.

        The second counts elements of the chunk, or piece, that lie in the operand.
        """
        lay = self.config.layout(self.problem, side)
        size = self.pieces[side].bytes if side in self.pieces else CHUNK_BYTES
        extent, edge = "m" if side == "a" else "n", self.edge(side)
        across, along = lay.neighbour(i, self.config.work_items, size)
        row = across if lay.along_k else along
        pointer = f"from_{side}" + (f" + {row} * (long)ld_{side}" if row else "")
        if lay.along_k:
            there = f"x_{side}{plus(across)} < {extent}" if edge else ""
            count = f"k_last - k_{side}" if self.edge_k else ""
        else:
            pointer += plus(across)
            there = f"k_{side}{plus(along)} < k_last" if self.edge_k else ""
            left = f" - {across}" if across else ""
            count = f"{extent} - x_{side}{left}" if edge else ""
        chunk = size // lay.elem_bytes
        valid = f"clamp({count}, 0, {chunk})" if count else f"{chunk}"
        return pointer, f"{there} ? {valid} : 0" if there else valid

    def edge(self, side: str) -> bool:
        """Whether tiles do not divide the rows of C for side a, or its columns for side b."""
        return self.edge_m if side == "a" else self.edge_n
