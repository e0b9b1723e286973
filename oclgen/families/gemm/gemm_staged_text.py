"""What the template of `gemm_staged` writes: places in C, reads of operands, terms, stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from oclgen.families.parts.epilogue import plus_residual
from oclgen.families.parts.expressions import vector_of
from oclgen.problem import GemmProblem
from oclgen.render import vector

if TYPE_CHECKING:
    from oclgen.families.gemm.gemm_staged import Config, Fetch


class Side(NamedTuple):
    """An operand's tile in local memory: extent along m or n, row of the tile, how it is copied."""

    tile: int
    stride: int
    fetch: Fetch


@dataclass(frozen=True)
class Text:
    """The pieces of text that depend on a problem and a config."""

    problem: GemmProblem
    config: Config

    @property
    def split(self) -> bool:
        """Whether results are planes of partial sums."""
        return self.config.split_k > 1

    @cached_property
    def sides(self) -> dict[str, Side]:
        """The operands that are copied to local memory."""
        c = self.config
        tiles = (
            ("a", c.stage_a, c.tile_m, c.tile_m + c.pad_a),
            ("b", c.stage_b, c.tile_n, c.tile_n + c.pad_b),
        )
        fetches = (
            (role, tile, row, c.fetch(self.problem, role)) for role, on, tile, row in tiles if on
        )
        return {role: Side(tile, row, how) for role, tile, row, how in fetches if how}

    def row(self, c: int, x: int) -> str:
        """Return the row of C that is row x of the work-item's chunk c."""
        return f"m0 + {c * self.config.local_m * self.config.vec_m + x}"

    def column(self, c: int, x: int) -> str:
        """Return the column of C that is column x of the work-item's chunk c."""
        return f"n0 + {c * self.config.local_n * self.config.vec_n + x}"

    def operand(self, side: str, c: int, k: int | str, guarded: bool) -> str:
        """Return the read of chunk c of an operand, at step k of the tile.

        Args:
            side: "a" or "b".
            c: chunk of the work-item's rows or columns.
            k: step of the tile, or the text of one.
            guarded: whether what lies outside of the matrix reads as 0, where it is read from
                global memory.
        """
        if side in self.sides:
            return self._local_read(side, c, k)
        return self._direct_read(side, c, f"p + {k}", guarded)

    def _local_read(self, side: str, c: int, k: int | str) -> str:
        config = self.config
        vec, local = (
            (config.vec_m, config.local_m) if side == "a" else (config.vec_n, config.local_n)
        )
        at = f"read_{side} + {k} * {self.sides[side].stride} + {c * local * vec}"
        return f"*({at})" if vec == 1 else f"*(__local const {vector(vec)} *)({at})"

    def _direct_read(self, side: str, c: int, k: str, guarded: bool) -> str:
        of_a = side == "a"
        vec = self.config.vec_m if of_a else self.config.vec_n
        trans = self.problem.trans_a if of_a else not self.problem.trans_b
        at, extent = (self.row, "m") if of_a else (self.column, "n")
        if guarded:
            return vector_of(
                f"element({side}, {k}, {at(c, x)}, k_last, {extent}, ld_{side})"
                if trans
                else f"element({side}, {at(c, x)}, {k}, {extent}, k_last, ld_{side})"
                for x in range(vec)
            )
        if trans:
            return f"LOAD{vec}({side} + ({k}) * (long)ld_{side} + {at(c, 0)})"
        return vector_of(
            f"LOAD1({side} + ({at(c, x)}) * (long)ld_{side} + {k})" for x in range(vec)
        )

    def plus_terms(self, width: int, i: int, j: int, x: int, load: str = "LOAD") -> str:
        """Return what is added to `width` results of row i, column x of chunk j.

        Args:
            width: neighbouring results of a row.
            i: row of the work-item.
            j: chunk of its columns.
            x: first column of the chunk.
            load: macro, without its width, that reads the residual.
        """
        residual = self.problem.residual and not self.split
        place = f"out + {self.column(j, x)}"
        return self._plus_bias(width, i, j, x) + plus_residual(residual, width, place, load)

    def _plus_bias(self, width: int, i: int, j: int, x: int) -> str:
        if self.problem.bias == "none" or self.split:
            return ""
        of_rows, vec = self.problem.bias == "m", self.config.vec_m
        index = self.row(i // vec, i % vec) if of_rows else self.column(j, x)
        return f" + LOAD{1 if of_rows else width}(bias + {index})"

    def store(self, pointer: str) -> str:
        """Return what stores `value`, a vector of results."""
        width = self.config.vec_n
        if self.split:
            return f"*(__global {vector(width)} *)({pointer}) = value"
        return f"ALIGNED_STORE{width}(ACT(value), {pointer})"
