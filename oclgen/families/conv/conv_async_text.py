"""What the template of `conv_async` writes: a work-item's places in C, and what is stored there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from oclgen.families.gemm.gemm_async import WARP, Config
from oclgen.families.parts.expressions import below

TOGETHER = 8
"""A residual's vectors that are read together: one by one, each would wait for memory."""


class Place(NamedTuple):
    """Where four neighbours of C are stored: under which condition, the pointer, their values."""

    guard: str
    pointer: str
    value: str


@dataclass(frozen=True)
class Text:
    """The pieces of text that depend on the product's config and the epilogue.

    Attributes:
        bias: each row of C has a `shift`.
        act: the function that is applied to sums: none where planes, or a residual, are added.
        edge_m: C has rows beyond the product.
        edge_n: C has columns beyond the product.
    """

    config: Config
    bias: bool
    residual: bool
    act: str
    edge_m: bool
    edge_n: bool

    @cached_property
    def rows(self) -> list[int]:
        """Rows of a work-item after its first."""
        return [i // 4 * self.config.local_m * 4 + i % 4 for i in range(self.config.item_m)]

    @cached_property
    def columns(self) -> list[int]:
        """First columns of a work-item's chunks of four, after its first column."""
        return [j * self.config.local_n * 4 for j in range(self.config.item_n // 4)]

    @property
    def every_column(self) -> list[int]:
        """Columns of a work-item after its first."""
        return [column + x for column in self.columns for x in range(4)]

    @property
    def warp_n(self) -> int:
        """Work-items of a warp along n."""
        return WARP // self.config.warp_m

    @property
    def row_words(self) -> int:
        """Words of a row of a warp's chunk: its vectors of one i and j, every fourth row of C."""
        return 4 * self.warp_n

    @property
    def words(self) -> list[tuple[int, int, int]]:
        """The words of a chunk that a lane stores: place, rows and columns after the first."""
        return [
            (WARP * t, WARP * t // self.row_words * 4, WARP * t % self.row_words) for t in range(4)
        ]

    @property
    def lane_columns(self) -> range:
        """Columns of these words."""
        return range(0, self.row_words, WARP)

    @cached_property
    def exchanged(self) -> dict[tuple[int, int], int]:
        """Where in local memory chunk j of each row r that is exchanged at a time lies."""
        chunks, work_items = len(self.columns), self.config.work_items
        return {
            (r, j): (r * chunks + j) * work_items
            for r in range(self.config.sum_rows)
            for j in range(chunks)
        }

    def copies(self, *aligned: str) -> Callable[[str, str], list[str]]:
        """Return how to write the copying of one tile of each operand, zeros where not `more`."""
        tail = ", ".join((*aligned, "id"))
        return lambda slot, more: [f"copy(&at, base + {slot}, {more}, {tail});"]

    def rows_of(self, i: int, j: int, x: int | None) -> str:
        """Return four neighbours of column j, from row i of a work-item on, or one of them.

        Args:
            i: row of the work-item's results, below `item_m`; neighbours follow it.
            j: column of the work-item's results, below `item_n`.
            x: which of the four to return alone; None: all, as a `float4`.
        """
        sums = [self._sum(i + y, j) for y in range(4)]
        return f"{self.act}((float4)({', '.join(sums)}))" if x is None else f"{self.act}({sums[x]})"

    def results(self, i: int, j: int) -> str:
        """Return four neighbours of row i, from a work-item's chunk j of columns."""
        sums = ", ".join(self._sum(i, 4 * j + x) for x in range(4))
        return f"{self.act}((float4)({sums}))"

    def _sum(self, i: int, j: int) -> str:
        return f"acc{i}_{j} + {f'shift{i}' if self.bias else '0.0f'}"

    def stored(self, value: str, theirs: str) -> str:
        """Return what is stored where a residual, if any, lies at `theirs`."""
        return f"ACT({value} + {theirs})" if self.residual else value

    def places_along_m(self) -> list[Place]:
        """Return the places of four neighbouring rows."""
        return [
            Place(
                self._inside(self.rows[i], column),
                f"c + c_column(phase, group, n0 + {column}) + m0 + {self.rows[i]}",
                self.rows_of(i, j, None),
            )
            for j, column in enumerate(self.every_column)
            for i in range(0, self.config.item_m, 4)
        ]

    def places_along_n(self, j: int) -> list[Place]:
        """Return the places of the four neighbouring columns of chunk j."""
        return [
            Place(
                self._inside(row, self.columns[j]),
                f"column{j} + (index_t)(m0 + {row}) * C_ROW",
                self.results(i, j),
            )
            for i, row in enumerate(self.rows)
        ]

    @staticmethod
    def together(places: list[Place]) -> Iterator[list[Place]]:
        """Yield the places whose residual is read together."""
        return (places[at : at + TOGETHER] for at in range(0, len(places), TOGETHER))

    def _inside(self, row: int, column: int) -> str:
        ends = [(f"n0 + {column}", "N")] * self.edge_n + [(f"m0 + {row}", "M")] * self.edge_m
        return below(*ends)
