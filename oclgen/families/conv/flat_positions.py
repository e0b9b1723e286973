"""Positions of all results of a convolution in one line, in which a tap reads at one distance.

It knows sizes only. Rows of results lie as far apart as rows of images with their padding, so that
what a tap reads lies at the same distance from every result, also across rows and images. What
pads the end of a row pads the beginning of the next one, too; a strided axis is split into planes
of every `step`-th element (sub-pixel convolution, Shi et al. 2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from oclgen.families.conv.correlation import Axis, Correlation
from oclgen.plan import ceil_div, round_up

WORDS = 16
"""Words of a step: a tile has 16 pairs of positions."""


class Tap(NamedTuple):
    """Where a tap reads: a plane, and the distance from a result's position."""

    plane: int
    distance: int


@dataclass(frozen=True, slots=True)
class Side:
    """One axis: `positions` of a row, of which the first `results` are results.

    Plane `i` holds elements `origins[i]`, `origins[i] + step`, ... of the axis read. Each of `taps`
    reads a plane at a distance.
    """

    positions: int
    results: int
    origins: tuple[int, ...]
    taps: tuple[Tap, ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of the results of all images, and planes [rows of planes][columns of planes].

    A plane's words pair a position with the one `half` behind it, so that results make up half as
    many words, and no tap parts a pair.
    """

    batch: int
    rows: Side
    cols: Side

    @property
    def half(self) -> int:
        """Words of results, in whole steps."""
        rows, cols = self.rows, self.cols
        lines = (self.batch - 1) * rows.positions + rows.results - 1
        return round_up(ceil_div(lines * cols.positions + cols.results, 2), WORDS)

    @property
    def words(self) -> int:
        """Words of a plane, in whole steps: `half`, and what the farthest tap reads behind."""
        return self.half + round_up(max(tap.distance for tap in self.taps), WORDS)

    @property
    def planes(self) -> int:
        """Planes of an image's channel."""
        return len(self.rows.origins) * len(self.cols.origins)

    @property
    def taps(self) -> tuple[Tap, ...]:
        """All taps, those of a row side by side."""
        return tuple(
            Tap(
                row.plane * len(self.cols.origins) + col.plane,
                row.distance * self.cols.positions + col.distance,
            )
            for row in self.rows.taps
            for col in self.cols.taps
        )


@lru_cache(maxsize=64)
def positions_of(part: Correlation, spread: bool) -> Positions:
    """Return the positions of a forward correlation's results.

    Args:
        part: the correlation.
        spread: taps of a row have a plane each, and count as one: rows of results have no gaps.
    """
    cols = part.cols
    if not spread:
        return Positions(part.batch, _side(part.rows), _side(cols))
    gapless = Side(cols.results, cols.results, (cols.origin,), (Tap(0, 0),))
    return Positions(part.batch, _side(part.rows), gapless)


def _side(axis: Axis) -> Side:
    places = [tap * axis.tap_step for tap in range(axis.taps)]
    phases = sorted({place % axis.step for place in places})
    taps = [Tap(phases.index(place % axis.step), place // axis.step) for place in places]
    reached = axis.results + max(tap.distance for tap in taps)
    shared = -axis.origin // axis.step
    stored = ceil_div(axis.read - axis.origin, axis.step)
    positions = min(reached, max(stored, reached - shared, axis.results))
    origins = tuple(axis.origin + phase for phase in phases)
    return Side(positions, axis.results, origins, tuple(taps))
