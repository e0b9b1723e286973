"""A matrix repacked as the tiles that a kernel puts into local memory, one behind the other.

Each family defines the layout inside a tile, and brings the kernel that packs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oclgen.families.gemm import gemm_parts as parts
from oclgen.plan import Arg, Launch, LazyText, Scalar, ceil_div, round_up
from oclgen.problem import DTYPES, GemmProblem

WORK_ITEMS = 256
"""Work-items per group of a kernel that packs, on GPUs."""


def lies_along_k(problem: GemmProblem, role: str) -> bool:
    """Say whether neighbours of matrix a or b in memory are steps of the reduction."""
    return not problem.trans_a if role == "a" else problem.trans_b


@dataclass(frozen=True, slots=True)
class Tiles:
    """Operand a or b as [batch][tiles][steps of k][tile], zeros past the edge."""

    problem: GemmProblem
    role: str
    tile: int
    tile_k: int

    @property
    def workspace(self) -> str:
        """Role of the workspace, and name of the kernel that fills it."""
        return f"packed_{self.role}"

    @property
    def bytes(self) -> int:
        """Bytes of the workspace."""
        return self._batch * self._item * DTYPES[self.problem.dtype]

    @property
    def _batch(self) -> int:
        shared = self.problem.shared_a if self.role == "a" else self.problem.shared_b
        return 1 if shared else self.problem.batch

    @property
    def _extent(self) -> int:
        return self.problem.m if self.role == "a" else self.problem.n

    @property
    def _steps(self) -> int:
        return round_up(self.problem.k, self.tile_k)

    @property
    def _item(self) -> int:
        return round_up(self._extent, self.tile) * self._steps

    def argument(self) -> tuple[Arg, ...]:
        """Return the packed operand; its row stride is the distance between rows of tiles."""
        batch_stride = self._item if self._batch > 1 else 0
        return parts.operand(self.workspace, self.tile * self._steps, batch_stride)

    def launch(self, text: LazyText, rows: int, steps: int, work_items: int = WORK_ITEMS) -> Launch:
        """Return the launch that fills the workspace, `rows` x `steps` of k per work-group."""
        return Launch(
            text=text,
            kernel=self.workspace,
            global_size=(
                work_items * ceil_div(self._steps, steps),
                ceil_div(round_up(self._extent, self.tile), rows),
                self._batch,
            ),
            local_size=(work_items, 1, 1),
            args=(
                *parts.matrix(self.problem, self.role),
                *self.argument(),
                Scalar(self._extent),
                Scalar(self.problem.k),
            ),
        )


def packed_operands(problem: GemmProblem, tile_k: int, **tiles: int) -> dict[str, Tiles]:
    """Return packed operands by role, with `tiles[role]` rows a tile; 0 leaves one as it lies."""
    return {role: Tiles(problem, role, tile, tile_k) for role, tile in tiles.items() if tile}


def sizes_of(packed: Mapping[str, Tiles]) -> tuple[tuple[str, int], ...]:
    """Return role and bytes of the packed operands' workspaces."""
    return tuple((tiles.workspace, tiles.bytes) for tiles in packed.values())
