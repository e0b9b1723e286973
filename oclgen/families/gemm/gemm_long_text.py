"""What `gemm_long` writes of A and of B: where a chunk comes from, goes to and is read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oclgen.families.parts.expressions import lane
from oclgen.plan import ceil_div

if TYPE_CHECKING:
    from oclgen.families.gemm.gemm_long import Side

FLOATS = {
    "fp32": "as_float4({})",
    "tf32": "as_float4({})",
    "fp16": "fp16_to_float8(as_ushort8({}))",
    "bf16": "bf16_to_float8(as_ushort8({}))",
}
"""Format of the text that makes floats of the 16 bytes of a copy."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The chunks of A or of B.

    Attributes:
        name: "a" or "b", of the matrix.
        axis: "m" or "n", of its rows or columns in C.
        side: how a chunk lies in local memory.
        width: elements of a copy.
        elem_bytes: bytes of an element.
        group: work-items of a work-group.
    """

    name: str
    axis: str
    side: Side
    width: int
    elem_bytes: int
    group: int

    @property
    def elements(self) -> int:
        """Elements of a chunk."""
        return self.side.runs * self.side.run

    @property
    def copies(self) -> int:
        """Copies of a work-item."""
        return ceil_div(self.elements // self.width, self.group)

    @property
    def is_even(self) -> bool:
        """Whether what lies side by side in memory is whole copies."""
        return self.side.run % self.width == 0

    @property
    def is_whole(self) -> str:
        """The condition under which all of a chunk is whole copies."""
        if self.is_even:
            aligned = f"IS_ALIGNED({self.name}, ld_{self.name}, {self.elem_bytes}, {self.width})"
        else:
            aligned = f"ld_{self.name} == {self.side.run} && ((size_t){self.name} & 15) == 0"
        return " && ".join(filter(None, (aligned, self.below(str(self.side.size - 1)))))

    def below(self, at: str) -> str:
        """Return the condition that a row or column of the tile is one of C, "" if all are."""
        if self.side.extent % self.side.size == 0:
            return ""
        return f"{self.axis}0 + {at} < {self.side.extent}"

    def guard(self, u: int) -> str:
        """Return the condition that a work-item has a copy number `u`, with its `if`."""
        last = self.elements // self.width
        return f"if (id + {u * self.group} < {last}) " if (u + 1) * self.group > last else ""

    def in_memory(self, s: str) -> str:
        """Return where copy `s` begins, behind the first element of a chunk."""
        if not self.is_even:
            return f"{s} * {self.width}"
        row = self.side.run // self.width
        return f"{s} / {row} * (long)ld_{self.name} + {s} % {row} * {self.width}"

    def in_local(self, s: str) -> str:
        """Return where the floats of copy `s` go if they stay side by side, else ""."""
        if self.is_even:
            row = self.side.run // self.width
            return f"{s} / {row} * {self.side.pitch} + {s} % {row} * {self.width}"
        return f"{s} * {self.width}" if self.side.pitch == self.side.run else ""

    def cell(self, element: str) -> str:
        """Return where an element of a chunk goes."""
        run, pitch = self.side.run, self.side.pitch
        return f"{element} / {run} * {pitch} + {element} % {run}"

    def vector(self, block: int) -> str:
        """Return where a work-item's vector of rows or columns lies, of step `s`."""
        first = f"({block * self.side.local} + lane_{self.name}) * {self.side.vec}"
        pitch = self.side.pitch
        return f"s * {pitch} + {first}" if self.side.across else f"{first} * {pitch} + s"

    def item(self, i: int) -> str:
        """Return row or column `i` of a work-item, of such vectors."""
        block, at = divmod(i, self.side.vec)
        return lane(f"{self.name}{block}", self.side.vec, at)
