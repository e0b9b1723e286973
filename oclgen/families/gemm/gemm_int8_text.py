"""How `gemm_int8` reads its operands, as text: vectors of bytes along k, from wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Operand(NamedTuple):
    """A or B: rows of one, columns of the other, which are called lines here.

    Attributes:
        name: of the pointer in the kernel, "a" or "b".
        size: of the problem that counts the lines, "m" or "n".
        items: lines of a work-item.
        local: work-items that share a tile, and neighbouring lines.
        width: bytes along k that are read at once.
        strided: neighbouring bytes along k are a row of memory apart.
    """

    name: str
    size: str
    items: int
    local: int
    width: int
    strided: bool

    @property
    def lines(self) -> int:
        """Lines of a work-group."""
        return self.items * self.local

    def start(self, line: str, k: str) -> str:
        """Return the pointer to step k of a line."""
        ld = f"(long)ld_{self.name}"
        apart = f"{line} + ({k}) * {ld}" if self.strided else f"({line}) * {ld} + {k}"
        return f"{self.name} + {apart}"

    def along(self, item: int) -> str:
        """Return the pointer to step p of a work-item's line."""
        return f"{self.name}{item} + p" + (f" * (long)ld_{self.name}" if self.strided else "")

    def clamped(self, line: str, edge: bool) -> str:
        """Return a line of the matrix: past the edge the last one, which is not stored."""
        return f"min({line}, {self.size} - 1)" if edge else line

    def whole(self, pointer: str) -> str:
        """Return the load of all bytes at a pointer."""
        if self.strided:
            step = f"(long)ld_{self.name}"
            return self._vector(f"({pointer})[{s} * {step}]" for s in range(self.width))
        return f"load({pointer}, is_aligned_{self.name})"

    def part(self, pointer: str, rest: str) -> str:
        """Return the load of the first `rest` bytes at a pointer; the others are zero."""
        step = f" * (long)ld_{self.name}" if self.strided else ""
        return self._vector(
            f"{s} < {rest} ? ({pointer})[{s}{step}] : (char)0" for s in range(self.width)
        )

    def _vector(self, values: Iterable[str]) -> str:
        return f"(bytes_t)({', '.join(values)})"
