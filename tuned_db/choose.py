"""Chooses the variant for a problem from what is known, in memory, at dispatch.

It measures nothing, and reads the database in `refresh`, not while a problem waits; where a winner
of this very device cannot serve, its problem's other measurements are read then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from operator import itemgetter
from typing import Literal, Protocol

from oclgen.families import TRANSFORMING, ConfigError, preferred
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Cache
from oclgen.problem import Problem, ProblemError
from oclgen.variant import Variant
from tuned_db.database import DatabaseError
from tuned_db.digests import digest_of
from tuned_db.nearest import ALIKE, NEAR, distance, kind_of, without_driver
from tuned_db.plausible import why_implausible
from tuned_db.record import Record
from tuned_db.shipped import shipped_records

MOST_OUTDATED = 4
"""Measurements of other kernels than today's after which no further one is compared: each takes up
to 10 ms, while a problem waits."""

Rung = Literal["exact", "stale", "nearest", "architecture", "shipped", "default"]
"""Where a choice comes from. `exact`: measured on this device and driver, with the kernels that are
generated today; `stale`: on this device with another driver or other kernels; `nearest`: another
shape on this device; `architecture`: a device of the same architecture; `shipped`: the records that
come with the package; `default`: nothing is known, the family's `DEFAULT` serves."""


class NoVariantError(LookupError):
    """No family can compute the problem on this device; the message says why each cannot."""


class Winners(Protocol):
    """What a chooser reads: `tuned_db.store.Store` is one."""

    def relatives(self, info: DeviceInfo, /) -> list[Record]:
        """Return the winners of devices of the same architecture and kind."""
        ...

    def runners_up(self, info: DeviceInfo, problem: Problem, /) -> list[Record]:
        """Return what serves on this very device where a winner cannot, best ones first."""
        ...

    def unsettled(self, info: DeviceInfo, /) -> list[Record]:
        """Return the claims about this very device whose variant was not measured here."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant that serves a problem; it is valid for the problem and the device.

    `ms` is the time measured for this very problem on this device, None where it was not;
    `source_key` is the key of the problem whose record was used, empty for a `DEFAULT`. `verified`
    is False where the record was imported or pulled and was not measured here since. `step` counts
    the steps down the ladder: a rung has several, for shapes farther and farther apart. `cache` is
    cold where nothing on the same step was measured with warm caches.
    """

    problem: Problem
    variant: Variant
    rung: Rung
    ms: float | None
    source_key: str
    step: int
    verified: bool = True
    cache: Cache = "warm"

    @property
    def source(self) -> str:
        """The rung, and whether it rests on cold or unverified times: how people are told."""
        cold = ", cold" if self.cache == "cold" else ""
        return f"{self.rung}{cold}" if self.verified else f"{self.rung}{cold}, unverified"


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A record whose texts were read."""

    record: Record
    problem: Problem
    variant: Variant


class Chooser:
    """Climbs the ladder once per problem and remembers; one per device, for many threads.

    `skipped` says of each record that was left out why: no family reads it today, or it claims more
    than the device can do.
    """

    def __init__(self, store: Winners | None, info: DeviceInfo, limits: Limits) -> None:
        self.info, self.limits = info, limits
        self.skipped: list[str] = []
        self._store = store
        self._memo: dict[Problem, Choice] = {}
        self._claimed: list[Problem] = []
        self._rejected: set[tuple[Problem, Variant]] = set()
        self._conv_error: float | None = None
        self._ladder: list[tuple[Rung, _Look, _Pool]] = []
        self.refresh()

    def choose(self, problem: Problem) -> Choice:
        """Return the best variant known for `problem`.

        Raises:
            NoVariantError: no family serves it on this device.
        """
        choice = self._memo.get(problem)
        if choice is None:
            choice = next(self.candidates(problem), None)
            if choice is None:
                raise NoVariantError(self._why_none(problem))
            self._memo[problem] = choice
        return choice

    def starts(self, problem: Problem, count: int = 10) -> list[Variant]:
        """Return the `count` best records' variants for `problem`, to tune from.

        Reads the winners anew: what was tuned a minute ago is a good start for the next shape.
        """
        self.refresh()
        known = (choice for choice in self.candidates(problem) if choice.rung != "default")
        return list(dict.fromkeys(choice.variant for choice in known))[:count]

    def reject(self, choice: Choice) -> Choice:
        """Return the next best variant, after `choice` failed to build or to run here.

        Raises:
            NoVariantError: nothing is left.
        """
        self._rejected.add((choice.problem, choice.variant))
        self._memo.pop(choice.problem, None)
        return self.choose(choice.problem)

    def bound_conv_error(self, bound: float | None) -> None:
        """Serve convolutions only by variants whose error is known to be at most `bound`.

        The error is the relative L2 error against float64 that a record carries. Of the families'
        `DEFAULT`s, about which nothing is recorded, those are left that sum products directly.
        None takes whatever passed verification.
        """
        self._conv_error = bound
        self._memo = {}

    def refresh(self) -> None:
        """Read the winners anew and forget what was chosen, after a tuning or an import."""
        self.skipped = []
        mine = list(self._read(self._store.relatives(self.info) if self._store else ()))
        shipped = list(self._read(shipped_records()))
        here = _Pool(e for e in mine if _same_device(e.record.device, self.info))
        relatives = _Pool(mine)
        close = _Pool(e for e in shipped if self._is_relative(e.record.device))
        kin = _Pool(e for e in shipped if e.record.device.kind == self.info.kind)
        exact = _Pool(e for e in mine if e.record.device == self.info)
        self._ladder = [
            ("exact", _Pool.same, exact),
            ("exact", self._runners_up, exact),
            ("stale", _Pool.same, here),
            # this problem on a relative, before another one that happened to be tuned here
            ("nearest", _ALIKE, here),
            ("architecture", _ALIKE, relatives),
            ("shipped", _ALIKE, close),
            ("nearest", _NEAR, here),
            ("architecture", _NEAR, relatives),
            ("shipped", _NEAR, close),
            ("shipped", _ALIKE, kin),
            ("shipped", _NEAR, kin),
            # one odd shape that was tuned here must not hide what the package knows
            ("nearest", _FAR, here),
            ("architecture", _FAR, relatives),
            ("shipped", _FAR, close),
            ("shipped", _FAR, kin),
        ]
        self._claimed = [e.problem for e in mine if not e.record.verified]
        self._memo = {}

    def _runners_up(self, pool: _Pool, problem: Problem) -> list[_Entry]:
        """Return what was measured beside the winners in `pool`, none where there is no winner."""
        if self._store is None or not pool.same(problem):
            return []
        try:
            records = self._store.runners_up(self.info, problem)
        except DatabaseError as error:  # the rest of the ladder is in memory
            self.skipped.append(f"{problem.key()}: {error}")
            return []
        return list(self._read(records))

    def unverified(self) -> list[Choice]:
        """Return what was imported or pulled, was not checked here, and is worth checking.

        That is what would serve, and what claims to be faster than what serves and was measured
        here: one per problem, the fastest.
        """
        unsettled = self._read(self._store.unsettled(self.info) if self._store else ())
        problems = dict.fromkeys((*self._claimed, *(entry.problem for entry in unsettled)))
        found = (self._worth_checking(problem) for problem in problems)
        return [choice for choice in found if choice is not None]

    def _worth_checking(self, problem: Problem) -> Choice | None:
        candidates = self.candidates(problem)
        served = next(candidates, None)
        if served is None or not served.verified:
            return served
        claims = [
            one
            for one in takewhile(lambda one: one.rung == "exact", candidates)
            if not one.verified and one.cache == served.cache and _ms(one) < _ms(served)
        ]
        return min(claims, key=_ms, default=None)

    def _read(self, records: Iterable[Record]) -> Iterator[_Entry]:
        for record in records:
            try:
                problem = parse_key(record.problem)
                if (reason := why_implausible(record, problem)) is None:
                    yield _Entry(record, problem, record.variant)
                else:
                    self.skipped.append(f"{record.problem}: {reason}")
            except (ConfigError, ProblemError) as error:
                self.skipped.append(f"{record.problem} of generator {record.generator}: {error}")

    def _is_relative(self, device: DeviceInfo) -> bool:
        return device.architecture == self.info.architecture and device.kind == self.info.kind

    def candidates(self, problem: Problem) -> Iterator[Choice]:
        """Yield every variant that can serve, best rung first."""
        for step, (rung, look, pool) in enumerate(self._ladder):
            valid = (entry for entry in look(pool, problem) if self._is_valid(problem, entry))
            for entry in _of_today(valid) if rung == "exact" else valid:
                record = entry.record
                ms = record.ms if rung in ("exact", "stale") else None
                yield Choice(
                    problem,
                    entry.variant,
                    rung,
                    ms,
                    record.problem,
                    step,
                    record.verified,
                    record.cache,
                )
        for variant in self._defaults(problem):
            if self._is_close_enough(problem, variant.family, None) and self._fits(
                problem, variant
            ):
                yield Choice(problem, variant, "default", None, "", len(self._ladder))

    def _defaults(self, problem: Problem) -> list[Variant]:
        return [Variant(one.NAME, one.DEFAULT) for one in preferred(problem, self.limits)]

    def _is_valid(self, problem: Problem, entry: _Entry) -> bool:
        record = entry.record
        is_close_enough = self._is_close_enough(problem, record.family, record.error)
        return is_close_enough and self._fits(problem, entry.variant)

    def _is_close_enough(self, problem: Problem, family: str, error: float | None) -> bool:
        if self._conv_error is None or problem.op != "conv":
            return True
        return family not in TRANSFORMING if error is None else error <= self._conv_error

    def _fits(self, problem: Problem, variant: Variant) -> bool:
        rejected = (problem, variant) in self._rejected
        return not rejected and variant.why_not(problem, self.limits) is None

    def _why_none(self, problem: Problem) -> str:
        reasons = [
            f"{one.family}: {one.why_not(problem, self.limits) or 'failed here'}"
            for one in self._defaults(problem)
        ]
        why = "; ".join(reasons) or "no family serves it"
        return f"nothing computes {problem.key()} on {self.info.name}: {why}"


def _of_today(entries: Iterable[_Entry]) -> Iterator[_Entry]:
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


class _Pool:
    """Entries by problem and by kind of problem: warm ones first, of these those with a digest, of
    these faster ones. Whether kernels are today's is not asked here: a pool may hold thousands.
    """  # noqa: D205

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._same: dict[Problem, list[_Entry]] = {}
        self._kinds: dict[tuple[object, ...], list[_Entry]] = {}
        for entry in sorted(entries, key=_freshness):
            self._same.setdefault(entry.problem, []).append(entry)
            self._kinds.setdefault(kind_of(entry.problem), []).append(entry)

    def same(self, problem: Problem) -> list[_Entry]:
        """Return the entries for exactly this problem."""
        return self._same.get(problem, [])

    def apart(self, beyond: float, most: float, problem: Problem) -> list[_Entry]:
        """Return the entries whose problems are so far from this one, nearest first."""
        entries = self._kinds.get(kind_of(problem), [])
        distances = [(distance(entry.problem, problem), entry) for entry in entries]
        reached = [pair for pair in distances if beyond < pair[0] <= most]
        return [entry for _, entry in sorted(reached, key=itemgetter(0))]


_Look = Callable[[_Pool, Problem], list[_Entry]]


def _within(beyond: float, most: float) -> _Look:
    return lambda pool, problem: pool.apart(beyond, most, problem)


_ALIKE, _NEAR, _FAR = _within(-1.0, ALIKE), _within(ALIKE, NEAR), _within(NEAR, inf)
"""The entries for a problem, whatever its epilogue, and those hardly apart; for similar ones; and
for others of its kind."""


def _freshness(entry: _Entry) -> tuple[bool, bool, float]:
    record = entry.record
    return (record.cache == "cold", record.digest is None, record.ms)


def _ms(choice: Choice) -> float:
    return 0.0 if choice.ms is None else choice.ms


def _same_device(one: DeviceInfo, other: DeviceInfo) -> bool:
    """Say whether two infos name one device, whatever its driver."""
    return without_driver(one) == without_driver(other)
