"""Compares two sets of winners problem by problem: two databases, two devices, two drivers.

Where the winners come from is `tuned_db.store` and `tuned_db.exchange`; printing is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean

from tuned_db.database import DatabaseError
from tuned_db.exchange import read_records
from tuned_db.record import Record
from tuned_db.store import open_existing


@dataclass(frozen=True, slots=True)
class Pair:
    """The fastest of either side for one problem."""

    left: Record
    right: Record

    @property
    def speedup(self) -> float:
        """How many times faster the right side is; a time of zero counts as a nanosecond."""
        return max(self.left.ms, 1e-6) / max(self.right.ms, 1e-6)


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


def compare(left: Iterable[Record], right: Iterable[Record]) -> Comparison:
    """Return what is faster where; of several records for a problem the fastest counts."""
    one, other = _fastest(left), _fastest(right)
    return Comparison(
        tuple(Pair(one[problem], other[problem]) for problem in sorted(one.keys() & other.keys())),
        tuple(sorted(one.keys() - other.keys())),
        tuple(sorted(other.keys() - one.keys())),
    )


def records_at(where: str | None, text: str = "") -> list[Record]:
    """Return the winners in a database or an export file (`.jsonl`) whose device has `text` in it.

    Raises:
        DatabaseError: it is not there, or cannot be read.
        ImportFileError: the export file is none.
    """
    if where and where.endswith(".jsonl"):
        try:
            with Path(where).open("rb") as stream:
                records = read_records(where, stream, check=False)
        except OSError as error:
            raise DatabaseError(f"cannot read {where}: {error.strerror}") from error
    else:
        records = open_existing(where).all_winners()
    return [record for record in records if matches(record, text)]


def matches(record: Record, text: str) -> bool:
    """Say whether the device's name, runtime, driver or another of its texts has `text` in it."""
    return text.lower() in " ".join(map(str, asdict(record.device).values())).lower()


def _fastest(records: Iterable[Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in records:
        if record.problem not in found or record.ms < found[record.problem].ms:
            found[record.problem] = record
    return found
