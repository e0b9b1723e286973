"""Chooses family and config for a problem from what is known, in memory, at dispatch.

It measures nothing and never reads the database while a problem waits; `refresh` does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any, Literal, Protocol

from oclgen import GENERATOR_VERSION
from oclgen.families import (
    FAMILIES,
    TRANSFORMING,
    ConfigError,
    config_from_dict,
    preferred,
)
from oclgen.keys import parse_key
from oclgen.limits import DeviceInfo, Limits
from oclgen.problem import Problem, ProblemError
from tuned_db.nearest import ALIKE, NEAR, distance, kind_of
from tuned_db.record import Record
from tuned_db.shipped import shipped_records

Rung = Literal["exact", "stale", "nearest", "architecture", "shipped", "default"]
"""Where a choice comes from. `exact`: measured on this device, driver and generator; `stale`: on
this device with another driver or generator; `nearest`: another shape on this device;
`architecture`: a device of the same architecture; `shipped`: the records that come with the
package; `default`: nothing is known, the family's `DEFAULT` serves."""


class NoVariantError(LookupError):
    """No family can compute the problem on this device; the message says why each cannot."""


class Winners(Protocol):
    """What a chooser reads: `tuned_db.store.Store` is one."""

    def relatives(self, info: DeviceInfo, /) -> list[Record]:
        """Return the winners of devices of the same architecture and kind."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant for a problem. `config` is the family's `Config` and valid for the problem.

    `ms` is the time measured for this very problem on this device, None where it was not;
    `source_key` is the key of the problem whose record was used, empty for a `DEFAULT`. `verified`
    is False where the record was imported or pulled and was not measured here since. `step` counts
    the steps down the ladder: a rung has several, for shapes farther and farther apart.
    """

    problem: Problem
    family: str
    config: Any
    rung: Rung
    ms: float | None
    source_key: str
    step: int
    verified: bool = True

    @property
    def source(self) -> str:
        """The rung, and whether what it rests on is unverified: how people are told."""
        return self.rung if self.verified else f"{self.rung}, unverified"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record whose texts were read."""

    record: Record
    problem: Problem
    config: Any


class Chooser:
    """Climbs the ladder once per problem and remembers; one per device, for many threads.

    `skipped` says of each record that was left out why; other generators wrote most of them.
    """

    def __init__(self, store: Winners | None, info: DeviceInfo, limits: Limits) -> None:
        self.info, self.limits = info, limits
        self.skipped: list[str] = []
        self._store = store
        self._memo: dict[Problem, Choice] = {}
        self._claimed: list[Problem] = []
        self._rejected: set[tuple[Problem, str, Any]] = set()
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

    def starts(self, problem: Problem, count: int = 10) -> list[tuple[str, Any]]:
        """Return the `count` best records' family and config for `problem`, to tune from.

        Reads the winners anew: what was tuned a minute ago is a good start for the next shape.
        """
        self.refresh()
        known = (choice for choice in self.candidates(problem) if choice.rung != "default")
        return list(dict.fromkeys((choice.family, choice.config) for choice in known))[:count]

    def reject(self, choice: Choice) -> Choice:
        """Return the next best variant, after `choice` failed to build or to run here.

        Raises:
            NoVariantError: nothing is left.
        """
        self._rejected.add((choice.problem, choice.family, choice.config))
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
        self._ladder = [
            ("exact", _Pool.same, _Pool(e for e in mine if self._is_exact(e.record))),
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
        self._claimed = list(dict.fromkeys(e.problem for e in mine if not e.record.verified))
        self._memo = {}

    def unverified(self) -> list[Choice]:
        """Return the choices that rest on what was imported or pulled and was not checked here."""
        choices = (next(self.candidates(problem), None) for problem in self._claimed)
        return [choice for choice in choices if choice and not choice.verified]

    def _read(self, records: Iterable[Record]) -> Iterator[_Entry]:
        for record in records:
            try:
                config = config_from_dict(record.family, json.loads(record.config))
                yield _Entry(record, parse_key(record.problem), config)
            except (ConfigError, ProblemError) as error:
                self.skipped.append(f"{record.problem} of generator {record.generator}: {error}")

    def _is_exact(self, record: Record) -> bool:
        return record.device == self.info and record.generator == GENERATOR_VERSION

    def _is_relative(self, device: DeviceInfo) -> bool:
        return device.architecture == self.info.architecture and device.kind == self.info.kind

    def candidates(self, problem: Problem) -> Iterator[Choice]:
        """Yield every variant that can serve, best rung first."""
        for step, (rung, look, pool) in enumerate(self._ladder):
            for entry in look(pool, problem):
                record = entry.record
                if self._is_close_enough(problem, record.family, record.error) and self._fits(
                    problem, record.family, entry.config
                ):
                    ms = record.ms if rung in ("exact", "stale") else None
                    yield Choice(
                        problem,
                        record.family,
                        entry.config,
                        rung,
                        ms,
                        record.problem,
                        step,
                        record.verified,
                    )
        for family in preferred(problem, self.limits):
            if self._is_close_enough(problem, family.NAME, None) and self._fits(
                problem, family.NAME, family.DEFAULT
            ):
                last = len(self._ladder)
                yield Choice(problem, family.NAME, family.DEFAULT, "default", None, "", last)

    def _is_close_enough(self, problem: Problem, family: str, error: float | None) -> bool:
        if self._conv_error is None or problem.op != "conv":
            return True
        return family not in TRANSFORMING if error is None else error <= self._conv_error

    def _fits(self, problem: Problem, family: str, config: Any) -> bool:
        return (
            FAMILIES[family].serves(problem)
            and config.why_not(problem, self.limits) is None
            and (problem, family, config) not in self._rejected
        )

    def _why_none(self, problem: Problem) -> str:
        reasons = [
            f"{family.NAME}: {family.DEFAULT.why_not(problem, self.limits) or 'failed here'}"
            for family in preferred(problem, self.limits)
        ]
        why = "; ".join(reasons) or "no family serves it"
        return f"nothing computes {problem.key()} on {self.info.name}: {why}"


class _Pool:
    """Entries by problem and by kind of problem, faster ones first."""

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


def _freshness(entry: _Entry) -> tuple[bool, float]:
    return (entry.record.generator != GENERATOR_VERSION, entry.record.ms)


def _same_device(one: DeviceInfo, other: DeviceInfo) -> bool:
    """Say whether two infos name one device, whatever its driver."""
    return _without_driver(one) == _without_driver(other)


def _without_driver(info: DeviceInfo) -> tuple[object, ...]:
    return (info.name, info.vendor, info.kind, info.architecture, info.runtime, info.compute_units)
