"""Divides one problem's trials among the families that serve it; it measures nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import ceil, inf, isfinite, log2
from typing import Protocol

FAR_BEHIND = 3.0
"""A family whose best time is this many times the best of all waits until the others have had
their part of the round: of a short tuning it takes no trial more than its first guess."""

FIRST_TURNS = 2
"""Turns that the first round has even if trials or seconds are few: one for what serves now, one
for what the model ranks first, which may be of another family."""


class Contestant(Protocol):
    """What counts of a search: `search_spaces.search.Search` is one."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to try."""
        ...

    @property
    def best_ms(self) -> float:
        """The best time so far."""
        ...


def contest(
    searches: Mapping[str, Contestant], trials: int, seconds_left: Callable[[], float]
) -> Iterator[str]:
    """Yield the family that may try next, until trials or seconds are spent or all is tried.

    Successive halving (Jamieson and Talwalkar 2016): in each round the families left take turns,
    one that is `FAR_BEHIND` takes its last, then the slower half retires. Every round has the same
    part of trials and seconds, so the last family has at least 1 / (ceil(log2 n) + 1) of the trials
    for itself. If the last are exhausted, retired families take over what is left.

    Args:
        searches: one for each family, by name.
        trials: to share out.
        seconds_left: of the time for them; infinity if there is no bound.
    """
    alive = [name for name, search in searches.items() if not search.exhausted]
    rounds = ceil(log2(len(alive))) + 1 if alive else 0
    for remaining in range(rounds, 0, -1):
        least = min(trials, FIRST_TURNS) if remaining == rounds else 0
        share = max(ceil(trials / remaining), least)
        seconds = seconds_left()
        pause = seconds * (remaining - 1) / remaining if isfinite(seconds) else 0.0
        turns = dict.fromkeys(searches, 0)
        for turn in count():
            ready = _ready(searches, alive)
            if not ready or seconds_left() <= 0:
                return
            if turn >= share or (turn >= least and seconds_left() < pause):
                break
            trials -= 1
            name = _next(searches, ready, turns, share / len(ready))
            turns[name] += 1
            yield name
        alive = sorted(alive, key=lambda name: searches[name].best_ms)[: ceil(len(alive) / 2)]


def _next(
    searches: Mapping[str, Contestant], ready: list[str], turns: Mapping[str, int], part: float
) -> str:
    """Return whose turn it is.

    Fewest turns first: one that is exhausted must not take the others' place in the row.

    Args:
        searches: all of them.
        ready: names of those that may try, in their order.
        turns: how many each had in this round.
        part: turns of this round for each that is ready.
    """
    bound = FAR_BEHIND * min(searches[name].best_ms for name in ready)

    def order(name: str) -> tuple[bool, bool, int]:
        is_late = bound < searches[name].best_ms < inf
        return turns[name] >= part, is_late, turns[name]

    return min(ready, key=order)


def _ready(searches: Mapping[str, Contestant], alive: list[str]) -> list[str]:
    ready = [name for name in alive if not searches[name].exhausted]
    return ready or [name for name, search in searches.items() if not search.exhausted]
