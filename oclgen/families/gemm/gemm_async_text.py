"""Text for the template of `gemm_async`: items that a work-item copies, places of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from oclgen.families.gemm.gemm_tiles import TileEdges, lies_along_k
from oclgen.families.parts.expressions import plus, some_items
from oclgen.families.parts.planes import FLOAT_BYTES

if TYPE_CHECKING:
    from oclgen.families.gemm.gemm_async import Config

Four = Callable[[int], str]
"""Text of the four sums of a chunk of columns."""
One = Callable[[int, int], str]
"""Text of one sum of a chunk of columns."""


class Side(NamedTuple):
    """An operand's tile, as rows of k in local memory, and where it comes from.

    Attributes:
        along_k: neighbours in memory are steps of k.
        packed: the operand was turned into whole tiles first.
        tile: elements of the tile along m or n.
        stride: elements from a row of the tile to the next.
        start: the tile's first element in local memory.
        first: the tile's first row or column of C.
        extent: the matrix's size along m or n.
        edge: the tile does not divide that size.
    """

    along_k: bool
    packed: bool
    tile: int
    stride: int
    start: int
    first: str
    extent: str
    edge: bool


@dataclass(frozen=True)
class Text(TileEdges):
    """The pieces of text that depend on a problem and a config."""

    config: Config

    @cached_property
    def sides(self) -> dict[str, Side]:
        """The operands."""
        problem, c = self.problem, self.config
        row_a, row_b = c.tile_m + c.pad_a, c.tile_n + c.pad_b
        along_a, along_b = (lies_along_k(problem, role) for role in "ab")
        return {
            "a": Side(
                along_a and not c.pack_a, c.pack_a, c.tile_m, row_a, 0, "tile_row", "m",
                self.edge_m,
            ),
            "b": Side(
                along_b and not c.pack_b, c.pack_b, c.tile_n, row_b, c.tile_k * row_a,
                "tile_column", "n", self.edge_n,
            ),
        }  # fmt: skip

    @property
    def gathers(self) -> bool:
        """Whether results pass through local memory, so that neighbours store to neighbours.

        Rows of C that are not aligned are stored word by word: four neighbours of one work-item
        would write each sector of memory four times.
        """
        c = self.config
        is_whole = not c.shared and c.local_k == 1
        return is_whole and not self.stores_vectors and self.gathered_rows > 0

    @property
    def gathered_rows(self) -> int:
        """Rows of a work-item that the tiles' memory holds at a time; 0 if it holds not one."""
        c = self.config
        row = FLOAT_BYTES * c.local_m * c.tile_n
        fits = (count for count in range(c.item_m, 0, -1) if c.item_m % count == 0)
        return next((count for count in fits if count * row <= c.local_bytes), 0)

    @property
    def vectors(self) -> list[str]:
        """Operands that are copied by vectors where they are aligned, by words elsewhere."""
        return [name for name, side in self.sides.items() if not side.along_k and not side.packed]

    @property
    def is_uneven(self) -> bool:
        """Whether rows of one of `vectors` have a length that no four divide.

        Such rows are aligned in a padded buffer alone, all others but in some views.
        """
        p = self.problem
        lengths = {"a": ("m", p.m), "b": ("n", p.n)}
        rows = (lengths[name] for name in self.vectors)
        return any(size not in p.free and length % 4 != 0 for size, length in rows)

    def row(self, i: int) -> str:
        """Return the row of C that is row i of the work-item."""
        return f"m0{plus(i // 4 * self.config.local_m * 4 + i % 4)}"

    def column(self, j: int, x: int = 0) -> str:
        """Return the column of C that is column x of the work-item's chunk j."""
        return f"n0{plus(j * self.config.local_n * 4 + x)}"

    def sums_of(self, i: int) -> tuple[Four, One]:
        """Return how to write four sums of row i, and one, that are still in their registers."""

        def one(j: int, x: int) -> str:
            return f"acc{i}_{4 * j + x} + 0.0f"

        return lambda j: f"(float4)({', '.join(one(j, x) for x in range(4))})", one

    def gathered_row(self, first: int) -> str:
        """Return the row of C, within the tile, of a `line` gathered from row `first` on."""
        local_m = self.config.local_m
        i = f"({first} + line / {local_m})" if first else f"(line / {local_m})"
        return f"line % {local_m} * 4 + {i} / 4 * {4 * local_m} + {i} % 4"

    def slices_of(self, r: int) -> Four:
        """Return how to write four sums of row r of those whose slices lie in local memory."""
        c = self.config
        items, chunks = c.local_m * c.local_n, c.item_n // 4

        def four(j: int) -> str:
            places = (((p * c.sum_rows + r) * chunks + j) * items for p in range(c.local_k))
            return " + ".join(f"slices[{place}]" for place in places)

        return four

    @property
    def word_of_slices(self) -> str:
        """Return the text of sum `at` of those whose slices lie in local memory, row by row."""
        c = self.config
        words = 4 * c.local_m * c.local_n
        part = words * c.sum_rows * (c.item_n // 4)
        places = (f"at / 4 * {words} + at % 4{plus(p * part)}" for p in range(c.local_k))
        return " + ".join(f"((__local const float *)slices)[{place}]" for place in places)

    def owner(self, i: int) -> tuple[str, ...]:
        """Return the condition under which a work-item has the sums of its row i, if any."""
        local_k = self.config.local_k
        return (f"part == {i % self.config.sum_rows % local_k}",) if local_k > 1 else ()

    def plus_terms(self, i: int, j: int) -> str:
        """Return what is added to the four results of chunk j in row i: bias and residual."""
        bias = {
            "none": "",
            "m": f" + bias[{self.row(i)}]",
            "n": f" + vload4(0, bias + {self.column(j)})",
        }[self.problem.bias]
        return f"{bias} + theirs{j}" if self.problem.residual else bias

    @property
    def plus_terms_there(self) -> str:
        """Return the same for the result at `row` and `column`, which is stored at `out`."""
        terms = {"none": "", "m": " + bias[row]", "n": " + bias[column]"}[self.problem.bias]
        return f"{terms}{' + *RESIDUAL(out)' if self.problem.residual else ''}"

    @property
    def stores_vectors(self) -> bool:
        """Whether rows of C may be aligned: they are words apart where no four divide n."""
        return "n" in self.problem.free or self.problem.n % 4 == 0

    @property
    def wide(self) -> list[str]:
        """Conditions under which whole vectors of C are stored."""
        matrices = ["c", *["residual"] * self.problem.residual]
        whole = ["n % 4 == 0"] * ("n" in self.problem.free)
        return [*(f"IS_ALIGNED({matrix}, ld_c, 4, 4)" for matrix in matrices), *whole]

    def within_n(self, j: int) -> str:
        """Return the beginning of a statement for chunk j, which may lie beyond the columns."""
        return f"if ({self.column(j)} < n) " if self.edge_n else ""

    def copies(self, aligned: bool) -> Callable[[str, str], list[str]]:
        """Return how to write the copying of one tile of each operand, zeros where not `more`."""
        return lambda slot, more: [
            statement
            for name in self.sides
            for statement in self._copies(name, slot, more, aligned)
        ]

    def _copies(self, name: str, slot: str, more: str, aligned: bool) -> Iterator[str]:
        """Yield the statements that copy a work-item's part of an operand's tile."""
        side, tile_k = self.sides[name], self.config.tile_k
        busy = self.config.copying(side.tile, side.along_k)
        guard = some_items(busy, self.config.work_items)
        for i in range(side.tile * tile_k // ((1 if side.along_k else 4) * busy)):
            if side.packed:
                to, pointer, valid = 16 * i * busy, f"from_{name}{plus(4 * i * busy)}", "4"
            else:
                apart = i * (busy // (tile_k if side.along_k else side.tile // 4))
                to = 4 * apart * (1 if side.along_k else side.stride)
                pointer = f"from_{name}" + (f" + {apart} * (long)ld_{name}" if apart else "")
                valid = (self._word if side.along_k else self._four)(name, apart)
            if side.along_k:
                valid = f"{valid} && {more}" if valid and not self.edge_k else valid or more
            elif side.packed or not self.edge_k:
                valid = f"{more} ? {valid} : 0"
            vectors = "copy_four" if side.packed or aligned else "copy_words"
            copy = "copy_word" if side.along_k else vectors
            yield f"{guard}{copy}(base + {slot} + to_{name}{plus(to)}, {pointer}, {valid});"
        yield f"from_{name} += step_{name};"
        if self.edge_k and not side.packed:
            yield f"k_{name} += {tile_k};"

    def _word(self, name: str, apart: int) -> str:
        """Return the condition under which a word is the operand's; nothing if it always is."""
        side = self.sides[name]
        valid = [f"x_{name}{plus(apart)} < {side.extent}"] * side.edge
        return " && ".join(valid + [f"k_{name} < k_last"] * self.edge_k)

    def _four(self, name: str, apart: int) -> str:
        """Return how many words of four are the operand's."""
        side = self.sides[name]
        valid = f"clamp({side.extent} - x_{name}, 0, 4)" if side.edge else "4"
        return f"k_{name}{plus(apart)} < k_last ? {valid} : 0" if self.edge_k else valid
