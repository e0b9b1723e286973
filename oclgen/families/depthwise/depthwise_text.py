"""What the templates of depthwise convolutions write: stored columns, sums of lanes."""

from __future__ import annotations

from dataclasses import dataclass

from oclgen.families.parts.epilogue import plus_residual
from oclgen.families.parts.expressions import lane, vector_of
from oclgen.plan import ceil_div


@dataclass(frozen=True)
class Row:
    """A row of a patch of the output, as vectors `value0`, `value1`, ... of each phase's results.

    Attributes:
        patch_w: results of a phase.
        vec: lanes of a vector.
        store_w: phases, whose results take turns in the output.
        residual: what lies as the output does is added.
    """

    patch_w: int
    vec: int
    store_w: int
    residual: bool

    @property
    def vectors(self) -> range:
        """Vectors of a phase."""
        return range(ceil_div(self.patch_w, self.vec))

    def _place(self, x: int) -> tuple[int, int]:
        """Return the vector in which column x of the row lies, and its lane there."""
        result = x // self.store_w
        vector = x % self.store_w * len(self.vectors) + result // self.vec
        return vector, result % self.vec

    def columns(self, x: int, width: int) -> str:
        """Return the columns of the row from x on, as one vector."""
        places = [self._place(at) for at in range(x, x + width)]
        if len({vector for vector, _ in places}) == 1 and self.store_w == 1:
            vector, first = places[0]
            names = "".join(f"{i:x}" for i in range(first, first + width))
            return f"value{vector}" if width == self.vec else f"value{vector}.s{names}"
        return vector_of(lane(f"value{vector}", self.vec, at) for vector, at in places)

    def finished(self, x: int, width: int, value: str, load: str = "LOAD") -> str:
        """Return what is stored in column x: a residual is added where its place is known.

        Args:
            x: first column.
            width: columns of `value`.
            value: what was summed up; the activation is applied here only where a residual is
                added.
            load: macro, without its width, that reads the residual.
        """
        if not self.residual:
            return value
        return f"ACT({value}{plus_residual(True, width, f'row + {x}', load)})"


def total(value: str, width: int) -> str:
    """Return the sum of a vector's lanes, halves first."""
    if width == 1:
        return value
    if width == 2:
        return f"{value}.s0 + {value}.s1"
    return f"total{width // 2}({value}.lo + {value}.hi)"
