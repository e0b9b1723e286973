"""Tunes problems on one device: which variants to try, what to keep, when to stop.

The caller passes in how to measure a variant and where to store results.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean
from typing import Any

from oclgen.families import families_for
from oclgen.limits import Limits
from oclgen.measurement import PACE, Measurement, undisturbed
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces.contest import contest
from search_spaces.duel import duel, finalists
from search_spaces.epilogues import follow, together
from search_spaces.hangs import Hangs
from search_spaces.progress import (
    Best,
    Budget,
    Measure,
    OutOfTimeError,
    Progress,
    Results,
    Status,
    TuneResult,
)
from search_spaces.search import Search
from search_spaces.space import Space, seeds_of
from search_spaces.spaces import LateError, Spaces
from search_spaces.timing import RECENT, Durations

AHEAD_SHARE = 8
"""At most 1/AHEAD_SHARE of the trials that are left is asked for ahead: such a config rests on
fewer results. The first of a search rest on none, and are not limited."""
DUEL_SHARE = 0.1
"""Part of a problem's time that is kept for measuring the best side by side at the end."""
DUELISTS = 3
"""Variants that usually meet there; a round of them has to fit into the time that is kept."""
MOST_OUTSIDE = 2
"""Starts outside of the device's own space that one problem tries. They are other devices' configs,
and a family's own first seed, which comes before them, was faster in 18 of 20 problems."""

Starts = Callable[[Problem], Iterable[Variant]]
"""Variants to try before all others: first what serves now, then what won for similar problems and
on similar devices."""
BuildAhead = Callable[[Problem, Variant], None]
"""Begins to build a variant that will be measured soon."""


@dataclass(frozen=True)
class Tuner:
    """What all problems of a tuning share; `families` narrows what is tried (None: all).

    Up to `ahead` variants are asked for before they are measured, and `build_ahead` gets them;
    `drop_ahead` gets those that will not be measured after all.
    With `overlap` they are built while others are measured; without, as where the device is the
    CPU that compiles, some are built and then all of them measured. `label` names the device in
    the searches' studies.
    """

    limits: Limits
    measure: Measure
    results: Results
    budget: Budget
    families: frozenset[str] | None = None
    starts: Starts = lambda _: ()
    report: Callable[[Progress], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    build_ahead: BuildAhead = lambda _problem, _variant: None
    drop_ahead: BuildAhead = lambda _problem, _variant: None
    ahead: int = 0
    overlap: bool = True
    label: str = ""
    spaces: Spaces = field(default_factory=Spaces)
    """Of the last problems: tuners that are made of this one by `replace` have the same."""
    took: Durations = field(default_factory=Durations)
    """Times of the last trials, of all problems."""

    def space(self, family: str, problem: Problem) -> Space:
        """Return the family's space for a problem.

        Args:
            family: a name of `FAMILIES`.
            problem: which the family serves.
        """
        return self.spaces.of(family, problem, self.limits)

    def own_times(self, samples: Sequence[float]) -> tuple[float, ...]:
        """Return the samples that count where several measurements of a variant are compared."""
        return undisturbed(samples) if self.limits.kind == "cpu" else tuple(samples)

    def fits(self, measurements: int, end: float) -> bool:
        """Whether some measurements will be over at `end`, by how long the last ones took."""
        left = end - self.clock()
        return left > 0 and measurements * self.took.expected <= left

    def serving(self, problem: Problem) -> list[str]:
        """Return the names of the families to try."""
        names = [family.NAME for family in families_for(problem)]
        return [name for name in names if self.families is None or name in self.families]

    def tried(self, problem: Problem) -> int:
        """Return how many variants were tried before, among the families to try."""
        if self.families is None:
            return self.results.trials(problem)
        return sum(one.family in self.families for one in self.results.measured(problem))

    def incumbent(self, problem: Problem) -> Best | None:
        """Return the winner that is known."""
        known = self.results.incumbent(problem)
        return Best(*known) if known else None


def tune(tuner: Tuner, problems: Sequence[Problem]) -> list[TuneResult]:
    """Tune each of `problems` and return the results, in their order.

    Of problems that differ in their epilogue alone the first is searched, and what is best there
    meets on the others. Trials count per problem and over all runs; seconds are dealt out evenly
    among the problems that are left. A `KeyboardInterrupt` ends the tuning: what was measured is
    kept, and the results so far are returned. What `tuner.measure` and `tuner.results` raise is
    passed on: it is not the fault of a variant, and is not held against one.
    """
    end = tuner.clock() + tuner.budget.seconds
    groups = together(problems)
    done = [tuner.tried(lead) >= tuner.budget.trials for lead, *_ in groups]
    found: dict[Problem, TuneResult] = {}
    stopped = False
    for index, (lead, *others) in enumerate(groups):
        now = tuner.clock()
        if done[index] or stopped or now >= end:
            status: Status = "already done" if done[index] else "not reached"
            found[lead] = TuneResult(lead, status, tuner.incumbent(lead))
        else:
            share = (end - now) / done[index:].count(False)
            place = problems.index(lead), len(problems)
            found[lead] = _Run(tuner, lead, place, now + share, 1 + len(others)).run()
        stopped = stopped or found[lead].status == "interrupted"
        for other in others:
            found[other] = follow(tuner, found[lead], other, -inf if stopped else end)
            stopped = stopped or found[other].status == "interrupted"
    return [found[problem] for problem in problems]


class _Run:
    """One problem while it is tuned; the last seconds are for `duels`, its own among them."""

    def __init__(
        self, tuner: Tuner, problem: Problem, place: tuple[int, int], end: float, duels: int
    ) -> None:
        self.tuner, self.problem = tuner, problem
        (self.index, self.count), self.end = place, end
        self.begin = self.since = tuner.clock()
        self.duels = duels
        self.took: list[float] = []
        self.before = tuner.tried(problem)
        self.incumbent = tuner.incumbent(problem)
        self.pace = 1.0
        self.known: list[Best] = []
        self.hangs = Hangs({}, ())
        self.result = TuneResult(problem, "no variant", self.incumbent)

    def run(self) -> TuneResult:
        """Try, then let the best meet side by side; return its result."""
        try:
            with suppress(LateError):  # what was tried until then meets side by side
                self._try()
            if self.result.trials:
                self._settle()
            self.result.status = self._status()
        except OutOfTimeError:
            self.result.status = self._status() if self.result.trials else "not reached"
        except KeyboardInterrupt:
            self.result.status = "interrupted"
        self.result.best = self.tuner.incumbent(self.problem)
        self.result.seconds = self.tuner.clock() - self.begin
        return self.result

    def _left(self) -> float:
        """Return the seconds that are left for trials; the duel's are kept."""
        return self.end - self._reserve() - self.tuner.clock()

    def _reserve(self) -> float:
        """Return the seconds that are kept for duels: a part, and enough for a round of one.

        Where a round takes more than half of the time, trials have all of it.
        """
        whole = self.end - self.begin
        if whole == inf:
            return 0.0
        part = min(DUEL_SHARE * self.duels, 0.5)
        a_round = DUELISTS * self._expected()
        return max(part * whole, a_round) if a_round <= whole / 2 else 0.0

    def _expected(self) -> float:
        """Return the seconds of the next trial; a problem's first also makes its inputs."""
        if len(self.took) > 1:
            return fmean(self.took[1:][-RECENT:])
        return min(*self.took, self.tuner.took.expected) if self.took else 0.0

    def _spare(self) -> float:
        """Return the seconds for trials that are left beyond the next one's."""
        return self._left() - self._expected()

    def _status(self) -> Status:
        if not self.result.trials and self._left() <= 0:
            return "not reached"
        if not any(best.ms < inf for best in self.known):
            return "no variant"
        return "tuned" if self.result.trials else "already done"

    def _try(self) -> None:
        last = self.end - self._reserve()
        self.tuner.spaces.is_late = lambda: self.tuner.clock() >= last
        searches = self._searches()
        left = self.tuner.budget.trials - self.before
        asked: deque[Variant] = deque()
        self.since = self.tuner.clock()
        for name in contest(searches, left, self._spare):
            ahead = self.tuner.ahead
            if not searches[name].starting:
                ahead = min(ahead, left // AHEAD_SHARE)
            asked.append(Variant(name, searches[name].ask()))
            if ahead:
                self.tuner.build_ahead(self.problem, asked[-1])
            if len(asked) > ahead:
                self._measure(searches, asked, keep=ahead if self.tuner.overlap else 0)
        self._measure(searches, asked, keep=0)

    def _measure(self, searches: Mapping[str, Search], asked: deque[Variant], keep: int) -> None:
        """Measure what was asked for first, until `keep` are left or no other ends in time."""
        while len(asked) > keep and self._spare() > 0:
            variant = asked.popleft()
            best_ms = min((best.ms for best in self.known), default=inf)
            measurement = self._time(variant, best_ms)
            searches[variant.family].tell(variant.config, measurement.ms)
            self.tuner.results.record(self.problem, variant, measurement)
            self._count(Best(variant, measurement.ms), measurement)
            self.hangs.note(variant, measurement)
            if why := self.hangs.why_skipped(variant.family):
                self._give_up(variant.family, why, searches, asked)
            now = self.tuner.clock()
            self.took.append(now - self.since)
            self.tuner.took.note(self.took[-1])
            self.since = now

    def _give_up(
        self, family: str, why: str, searches: Mapping[str, Search], asked: deque[Variant]
    ) -> None:
        """Try no other variant of a family that hangs, nor those that were asked for already."""
        self.result.skipped[family] = why
        searches[family].close()
        for variant in [one for one in asked if one.family == family]:
            asked.remove(variant)
            self.tuner.drop_ahead(self.problem, variant)

    def _searches(self) -> dict[str, Search]:
        """Return a search per family that knows what was measured before, if it is not given up.

        Families that won nearby come first: they have their turn even if seconds are short.
        """
        tuner, problem = self.tuner, self.problem
        measured = tuner.results.measured(problem)
        self.hangs = Hangs(measured, tuner.results.timeouts(problem))
        starts = self._starts()
        searches: dict[str, Search] = {}
        for name, first in starts.items():
            if self._left() <= 0:
                break
            if why := self.hangs.why_skipped(name):
                self.result.skipped[name] = why
                continue
            searches[name] = Search(
                tuner.space(name, problem),
                [*first, *seeds_of(name, problem, tuner.limits)],
                tuner.budget.seed,
                f"{tuner.label} {problem.key()} {name} {tuner.budget.cache}",
                tuner.budget.study,
            )
        self.pace = self._pace(measured)
        for variant, ms in measured.items():
            if variant.family in searches:
                searches[variant.family].tell(variant.config, ms * self.pace)
                self.known.append(Best(variant, ms * self.pace))
        return searches

    def _pace(self, measured: Mapping[Variant, float]) -> float:
        """Return how many times as long variants take as when the problem's tuning began.

        The incumbent, or else the fastest, tells: it is measured again before anything is tried.
        """
        worked = {variant: ms for variant, ms in measured.items() if ms < inf}
        if not worked:
            return 1.0
        variant = min(worked, key=worked.__getitem__)
        if self.incumbent is not None and self.incumbent.variant in worked:
            variant = self.incumbent.variant
        again = self.tuner.measure(self.problem, variant, inf)
        return again.ms / worked[variant] if again.ok else 1.0

    def _time(self, variant: Variant, best_ms: float) -> Measurement:
        """Measure, and note the pace with the times, for a tuning that goes on later."""
        measurement = self.tuner.measure(self.problem, variant, best_ms)
        if self.pace == 1.0 or not measurement.ok:
            return measurement
        return replace(measurement, conditions={**measurement.conditions, PACE: self.pace})

    def _starts(self) -> dict[str, list[Any]]:
        """Return by family the configs to try before its own seeds, families that won nearby first.

        The first, which serves now, is tried wherever it lies. Of the others outside of the
        family's space `MOST_OUTSIDE` are left, after its own first seed.
        """
        tuner, problem = self.tuner, self.problem
        serving = self._serving()
        starts: dict[str, list[Any]] = {}
        outside = 0
        for index, variant in enumerate(tuner.starts(problem)):
            name, config = variant.family, variant.config
            if name not in serving or variant.why_not(problem, tuner.limits) is not None:
                continue
            first = starts.setdefault(name, [])
            if config not in tuner.space(name, problem):
                outside += 1
                if outside > MOST_OUTSIDE:
                    continue
                if index > 0:
                    first += seeds_of(name, problem, tuner.limits)[:1]
            first.append(config)
        return starts | {name: [] for name in serving if name not in starts}

    def _serving(self) -> list[str]:
        """Return the families to try; on a CPU those that stage in local memory come last.

        A CPU has none: it lies in the caches as all else does, and its barriers cut loops in two.
        """
        names = self.tuner.serving(self.problem)
        return sorted(names, key=self._stages) if self.tuner.limits.kind == "cpu" else names

    def _stages(self, name: str) -> bool:
        for config in seeds_of(name, self.problem, self.tuner.limits)[:1]:
            return any(frame.local_bytes for frame in config.needs(self.problem).frames)
        return True

    def _count(self, tried: Best, measurement: Measurement) -> None:
        self.known.append(tried)
        self.result.outcomes[measurement.invalidity] += 1
        self.result.reason = self.result.reason or measurement.reason
        best = min(self.known, key=lambda one: one.ms)
        self.tuner.report(
            Progress(
                problem=self.problem,
                index=self.index,
                count=self.count,
                trial=self.before + self.result.trials,
                trials=self.tuner.budget.trials,
                variant=tried.variant,
                measurement=measurement,
                best=best if best.ms < inf else None,
                outcomes=dict(self.result.outcomes),
                seconds_left=self.end - self.tuner.clock(),
            )
        )

    def _settle(self) -> None:
        """Measure the best variants and the incumbent in turns, and promote the fastest."""
        ranked = sorted((one for one in self.known if one.ms < inf), key=lambda one: one.ms)
        today = min(self.known[-self.result.trials :], key=lambda one: one.ms)
        contenders = finalists(ranked, (self.incumbent, today if today.ms < inf else None))

        def is_time() -> bool:
            left = self.end - self.tuner.clock()
            return left > 0 and len(contenders) * self._expected() <= left

        if len(contenders) < 2 or not is_time():
            return
        won = duel(
            contenders, lambda one: self._time(one.variant, inf), is_time, self.tuner.own_times
        )
        if won is not None:
            best, measurement = won
            self.tuner.results.promote(self.problem, best.variant, measurement)
