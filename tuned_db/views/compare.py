"""Compares two sets of winners problem by problem: two databases, two devices, two drivers.

The winners come from `tuned_db.storage` and `tuned_db.records.exchange`; the caller prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean

from tuned_db.choosing.nearest import without_driver
from tuned_db.database.errors import DatabaseError
from tuned_db.records.digests import is_of_today
from tuned_db.records.exchange import read_records
from tuned_db.records.record import Record
from tuned_db.storage.store import open_existing


@dataclass(frozen=True, slots=True)
class Pair:
    """The best of either side for one problem and state of the caches."""

    left: Record
    right: Record

    @property
    def speedup(self) -> float:
        """How many times faster the right side is."""
        return self.left.ms / self.right.ms


@dataclass(frozen=True)
class Comparison:
    """Pairs by problem, and the problems that only one side knows."""

    pairs: tuple[Pair, ...]
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]

    @property
    def speedup(self) -> float | None:
        """Geometric mean of the pairs' speedups, None without pairs."""
        if not self.pairs:
            return None
        return exp(fmean(log(pair.speedup) for pair in self.pairs))


def compare(left: Iterable[Record], right: Iterable[Record], *, across: bool = False) -> Comparison:
    """Return what is faster where, for each problem with warm and with cold caches.

    A device is compared with itself, whatever its driver; with `across`, a device on the left with
    another on the right. Of several records on a side, those of today's kernels come first, of
    these those that were measured, of these the fastest.

    Args:
        left: records of one side.
        right: records of the other.
        across: compare devices of different names.
    """
    one, other = _best(left, across), _best(right, across)
    return Comparison(
        tuple(Pair(one[key], other[key]) for key in sorted(one.keys() & other.keys())),
        tuple(sorted(record.problem for key, record in one.items() if key not in other)),
        tuple(sorted(record.problem for key, record in other.items() if key not in one)),
    )


def devices_of(records: Iterable[Record]) -> list[str]:
    """Return the devices of `records` by name and runtime, whatever their drivers."""
    known = {without_driver(one.device): one.device for one in records}
    return [f"{info.name} ({info.runtime})" for info in known.values()]


def records_at(where: str | None, text: str = "") -> list[Record]:
    """Return the winners in a database or an export file (`.jsonl`) whose device has `text` in it.

    Raises:
        DatabaseError: it is not there, or cannot be read, or no device there has `text` in it.
        ImportFileError: the export file is none.
    """
    if where and where.endswith(".jsonl"):
        try:
            with Path(where).open("rb") as stream:
                records = read_records(where, stream)
        except OSError as error:
            raise DatabaseError(f"cannot read {where}: {error.strerror}") from error
    else:
        records = open_existing(where).all_winners()
    found = [record for record in records if matches(record, text)]
    if text and not found:
        there = ", ".join(devices_of(records)) or "none"
        raise DatabaseError(
            f"no device of {where or 'the database'} has {text!r} in name, runtime or driver; "
            f"there are: {there}"
        )
    return found


def matches(record: Record, text: str) -> bool:
    """Say whether the device's name, runtime, driver or another of its texts has `text` in it."""
    return text.lower() in " ".join(map(str, asdict(record.device).values())).lower()


def _best(records: Iterable[Record], across: bool) -> dict[tuple[object, ...], Record]:
    found: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        device = () if across else without_driver(record.device)
        found.setdefault((record.problem, record.cache, *device), []).append(record)
    # a digest takes some 10 ms: it is asked for only where there is a choice
    return {
        key: min(several, key=_merit) if several[1:] else several[0]
        for key, several in found.items()
    }


def _merit(record: Record) -> tuple[bool, bool, float]:
    return (not is_of_today(record), not record.verified, record.ms)
