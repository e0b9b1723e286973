"""Turns of a spread tuning that travel to other processes, and what such a process does with them.

`search_spaces.spread` decides which turn comes next, `search_spaces.crews` has the processes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from oclgen.keys import parse_key
from search_spaces.progress import Budget, TuneResult
from search_spaces.session import Session
from search_spaces.spread import Turn


@dataclass(frozen=True)
class Order:
    """A turn as it travels to another process: plain values.

    `ends` is the value of `time.monotonic` at which it is over, where that process is of the same
    machine; None: it is over when the budget's seconds are.
    """

    kind: str
    problems: tuple[str, ...]
    budget: Budget
    slice: int
    families: frozenset[str]
    where: str
    ends: float | None = None

    def turn(self) -> Turn:
        """Return the turn; its trials are not reported."""
        problems = tuple(map(parse_key, self.problems))
        return Turn(self.kind, problems, self.budget, self.slice, lambda _: None)


_sessions: dict[tuple[str, str], Session] = {}
"""Of a process that takes turns, by kind of device and store: the next turn finds a store that is
open, a process that measures, and spaces that are enumerated."""


def take(order: Order) -> list[TuneResult]:
    """Take a turn on a free device of the kind that is asked for.

    Raises:
        DeviceError: this machine has no such device any more.
    """
    ends = time.monotonic() + order.budget.seconds if order.ends is None else order.ends
    key = order.kind, order.where
    if key not in _sessions:
        _sessions[key] = Session.of_kind(*key, is_resident=True)
    _sessions[key].ends = ends
    try:
        with _sessions[key] as session:
            return session.take(order.turn(), order.families)
    except BaseException:
        _sessions.pop(key).close()  # a store that was lost is opened anew
        raise
