"""Spaces that a process keeps while it tunes, and the time until which it may enumerate them."""

from __future__ import annotations

from collections.abc import Callable

from oclgen.limits import Limits
from oclgen.problem import Problem
from search_spaces.progress import OutOfTimeError
from search_spaces.space import Space, space_of

MOST_SPACES = 64
"""Spaces that are kept: of the last few problems, since their turns come again."""


class LateError(OutOfTimeError):
    """The time for trials ended while a space was enumerated; that for a duel is still there."""


class Spaces:
    """The spaces of the last few problems of a device.

    Attributes:
        is_late: says whether the time for trials is over. An enumeration asks before each config,
            since it takes seconds beside other programs, and ends with `LateError`.
    """

    def __init__(self) -> None:
        self.is_late: Callable[[], bool] = lambda: False
        self._kept: dict[tuple[str, Problem], Space] = {}

    def of(self, family: str, problem: Problem, limits: Limits) -> Space:
        """Return the family's space for a problem, the same as before if it is still kept.

        Args:
            family: a name of `FAMILIES`.
            problem: which the family serves.
            limits: of the device.
        """
        key = family, problem
        if key not in self._kept:
            while len(self._kept) >= MOST_SPACES:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = space_of(family, problem, limits, self._be_in_time)
        return self._kept[key]

    def _be_in_time(self) -> None:
        if self.is_late():
            raise LateError
