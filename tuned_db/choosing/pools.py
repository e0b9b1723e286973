"""Records by problem and by kind of problem, to be looked up while a problem waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.nearest import Place, kind_of, place_of
from tuned_db.records.digests import digest_of
from tuned_db.records.record import Record

MOST_OUTDATED = 4
"""Measurements of other kernels than today's after which no further one is compared: each takes up
to 10 ms, while a problem waits."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A record whose texts were read."""

    record: Record
    problem: Problem
    variant: Variant


class Pool:
    """Entries by problem and by kind, those first that tell a device most.

    Warm ones come first, then those of the device's runtime, since another one has a compiler of
    its own; then those with a digest, then faster ones. Whether their kernels are today's is not
    asked here: a pool may hold thousands.
    """

    def __init__(self, entries: Iterable[Entry], runtime: str) -> None:
        def order(entry: Entry) -> tuple[bool, bool, bool, float]:
            record = entry.record
            is_foreign = record.device.runtime != runtime
            return (record.cache == "cold", is_foreign, record.digest is None, record.ms)

        self._same: dict[Problem, list[Entry]] = {}
        self._kinds: dict[tuple[object, ...], list[Entry]] = {}
        for entry in sorted(entries, key=order):
            self._same.setdefault(entry.problem, []).append(entry)
            self._kinds.setdefault(kind_of(entry.problem), []).append(entry)
        self._places: dict[tuple[object, ...], list[Place]] = {}

    def same(self, problem: Problem) -> list[Entry]:
        """Return the entries for exactly this problem."""
        return self._same.get(problem, [])

    def nearest(self, problem: Problem, count: int) -> list[tuple[float, Entry]]:
        """Return distance and entry of `count` variants for the nearest problems of its kind."""
        found: dict[Variant, tuple[float, Entry]] = {}
        for apart, entry in self._apart(problem):
            found.setdefault(entry.variant, (apart, entry))
            if len(found) == count:
                break
        return list(found.values())

    def _apart(self, problem: Problem) -> list[tuple[float, Entry]]:
        """Return distance and entry of each problem of the same kind, the nearest first."""
        kind, place = kind_of(problem), place_of(problem)
        entries = self._kinds.get(kind, [])
        if kind not in self._places:  # most kinds are never asked for
            self._places[kind] = [place_of(entry.problem) for entry in entries]
        pairs = zip(map(place.distance, self._places[kind]), entries, strict=True)
        return sorted(pairs, key=itemgetter(0))


def of_today(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield those that were measured with today's kernels, until `MOST_OUTDATED` were not.

    A digest is taken of what would serve, one by one; an entry without digest costs none.
    """
    outdated = 0
    for entry in entries:
        digest = entry.record.digest
        if digest is None:
            continue
        if digest == digest_of(entry.problem, entry.variant):
            yield entry
        elif (outdated := outdated + 1) == MOST_OUTDATED:
            return
