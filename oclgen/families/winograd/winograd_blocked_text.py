"""How `winograd_blocked` stores a row of a tile: pixels of filters that are lanes of vectors."""

from __future__ import annotations

from dataclasses import dataclass

from oclgen.families.parts.expressions import lane, store_result


@dataclass(frozen=True)
class Pixels:
    """Pixels y0, y1, ... of a row of `out_tile`, each a vector of `vec_k` filters.

    Attributes:
        edge: the last filters of the vector may be none.
        residual: what lies as the pixels do is added.
        left: pixels of a row's last tile; 0 where it is whole.
    """

    out_tile: int
    vec_k: int
    edge: bool
    residual: bool
    left: int

    @property
    def transposed(self) -> bool:
        """Whether a filter's pixels are gathered in vectors q0, q1, ... before they are stored."""
        return self.out_tile in (2, 4) and self.vec_k >= self.out_tile

    def run(self, s: int) -> list[str]:
        """Return the statements that store the row of filter s."""
        if not self.transposed:
            return self._guarded(s, self._single(s))
        return self._guarded(s, [self._stored(self.out_tile, self._gathered(s), _plane(s))])

    def rest(self, s: int) -> list[str]:
        """Return the statements that store what is left of the row in its last tile."""
        return self._guarded(s, self._single(s)[: self.left])

    def _single(self, s: int) -> list[str]:
        return [
            self._stored(1, lane(f"y{j}", self.vec_k, s), f"{_plane(s)} + {j}")
            for j in range(self.out_tile)
        ]

    def _gathered(self, s: int) -> str:
        filters = self.vec_k // self.out_tile  # in one vector
        if filters == 1:
            return f"q{s}"
        first = s % filters * self.out_tile
        lanes = "".join(f"{first + j:x}" for j in range(self.out_tile))
        return f"q{s // filters}.s{lanes}"

    def _stored(self, width: int, value: str, place: str) -> str:
        return store_result(width, value, place, self.residual)

    def _guarded(self, s: int, statements: list[str]) -> list[str]:
        if not self.edge:
            return statements
        return [f"if (k + {s} < FILTERS) {{", *(f"    {each}" for each in statements), "}"]


def _plane(s: int) -> str:
    return f"to + {s} * (OUT_H * OUT_W)"
