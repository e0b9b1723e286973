"""Chooses the variant for a problem at dispatch, from winners that are in memory.

It measures nothing. It reads the database in `refresh`, and not while a problem waits. There is one
exception: if the winner for a problem on this device cannot serve, it reads the other measurements
of that problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, takewhile
from math import inf
from operator import attrgetter
from threading import Lock

from oclgen.families import default_of, is_transforming, preferred
from oclgen.limits import DeviceInfo, Limits
from oclgen.predictor.model import predict
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.choice import Choice, Rung, of_entry
from tuned_db.choosing.evidence import Evidence, Winners
from tuned_db.choosing.nearest import ALIKE, NEAR
from tuned_db.choosing.option import TRUST, Guesses, Option, joined, promising
from tuned_db.choosing.pools import Entry, Pool, of_today
from tuned_db.choosing.raced import won
from tuned_db.choosing.remembered_choices import RememberedChoices
from tuned_db.database.errors import DatabaseError
from tuned_db.records.digests import digest_of
from tuned_db.records.record import Record
from tuned_db.records.shipped import shipped_records

MOST_CHOICES = 8192
"""Bound of choices that are remembered: beyond it, all are forgotten."""
NEIGHBOURS = {"cpu": 8, "gpu": 4, "other": 4}
"""Records per origin whose variants the model ranks. On a GPU records give their tiles alone, and
families write guesses for the problem itself."""
FAR, UNRELATED = 1e5, 1e6
"""Added to the cost of records of problems beyond `NEAR`, and of records of unrelated devices, if
there is no model. Records of near problems cost their distance, and so come first: a
variant of attention over 200 keys takes 1.4 times as long as the guess over 4096."""


class NoVariantError(LookupError):
    """No family can compute the problem on this device; the message says why each cannot."""


class Chooser:
    """Climbs the ladder once per problem and remembers; one per device, for many threads.

    `skipped` says of each record that was left out why: no family reads it today, it claims more
    than the device can do, or its plan failed a check. What an earlier process chose by the same
    records, code and settings is not chosen again (`oclgen.remembered`).

    Args:
        store: what is read; None: nothing.
        info: the device.
        limits: what it allows.
        check: Says why a claim's plan is not to serve, "" if it may; asked before a claim serves
            whose plan was not checked on this device, and keeps what it says. None: claims serve
            unchecked.
        mark: Returns what names the lasting winners and the checks as they were read, None where
            nothing does. Choices that rest on what has a name are remembered for later processes.
    """

    def __init__(
        self,
        store: Winners | None,
        info: DeviceInfo,
        limits: Limits,
        check: Callable[[Choice], str] | None = None,
        mark: Callable[[], str | None] | None = None,
    ) -> None:
        self.info, self.limits = info, limits
        self._check = check
        self._remembered = RememberedChoices(info, limits, mark)
        self._lock = Lock()
        self._checks: dict[str, str] = {}
        self._store = store
        self._memo: dict[Problem, Choice] = {}
        self._looked_beyond: set[Problem] = set()
        self._rejected: set[tuple[Problem, Variant]] = set()
        self._conv_error: float | None = None
        self.serves_raced = True
        """Whether winners of races serve; to be set before the first choice."""
        self._evidence: Evidence | None = None
        self.refresh()

    @property
    def skipped(self) -> list[str]:
        """Why each record was left out that was."""
        return self._known.skipped

    @property
    def _known(self) -> Evidence:
        """The records by which to choose: sorted once a choice is asked for that no process made.

        To sort them takes 50 ms, as long as ten choices.
        """
        with self._lock:
            if self._evidence is None:
                self._evidence = Evidence(self.info, self._winners, shipped_records())
            return self._evidence

    def choose(self, problem: Problem) -> Choice:
        """Return the best variant known for `problem`.

        Raises:
            NoVariantError: no family serves it on this device.
        """
        choice = self._memo.get(problem)
        if choice is None:
            choice = self._remembered.get(problem, self._settings) or self._found(problem)
            if len(self._memo) >= MOST_CHOICES:
                self._memo.clear()
            self._memo[problem] = choice
        return choice

    @property
    def _settings(self) -> str:
        return f"{self._conv_error} {self.serves_raced}"

    def _found(self, problem: Problem) -> Choice:
        """Climb the ladder, and keep the choice if a later process would choose the same."""
        choice = next(filter(None, map(self._passed, self.candidates(problem))), None)
        if choice is None:
            raise NoVariantError(self._why_none(problem))
        if choice.verified and problem not in self._looked_beyond:
            self._remembered.put(choice, self._settings)
        return choice

    def _passed(self, choice: Choice) -> Choice | None:
        """Return a choice that may serve, None where its plan fails the check."""
        if choice.verified or choice.is_checked or self._check is None:
            return choice
        self._remembered.stop()  # what a check says here may not hold tomorrow
        reason = self._check(choice)
        self._checks[digest_of(choice.problem, choice.variant) or ""] = reason
        if not reason:
            return replace(choice, is_checked=True)
        self.skipped.append(f"{choice.problem.key()}: {choice.variant.family}: {reason}")
        return None

    def was_measured(self, problem: Problem) -> bool:
        """Say whether there is a winner of this device for exactly `problem`."""
        return bool(self._known.here.same(problem))

    def starts(self, problem: Problem, count: int = 10) -> list[Variant]:
        """Return variants to tune from: the first guess, and those of the `count` best records.

        The guess is what the model ranks first of what no record names: a search that tries it ends
        no worse than without records. Reads the winners anew: what was tuned a minute ago is a good
        start for the next shape.
        """
        self.refresh()
        known = [one for one in self.candidates(problem) if one.rung != "default"]
        first = (one.variant for one in known if one.rung == "guess")
        records = dict.fromkeys(one.variant for one in known if one.rung != "guess")
        return [*islice(first, 1), *islice(records, count)]

    def reject(self, choice: Choice) -> Choice:
        """Return the next best variant, after `choice` failed to build or to run here.

        Raises:
            NoVariantError: nothing is left.
        """
        self._remembered.stop()
        self._rejected.add((choice.problem, choice.variant))
        self._memo.pop(choice.problem, None)
        return self.choose(choice.problem)

    def note_race(self, record: Record) -> None:
        """Let the winner of a race serve its problem from now on, as one that was read does."""
        for entry in self._known.read([record]):
            self._known.raced[entry.problem] = entry
            self._remembered.note_race(record)
            self._memo.pop(entry.problem, None)

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
        store = self._store
        self._winners = store.relatives(self.info) if store else []
        self._remembered.take(self._winners)
        self._checks = dict(store.checks(self.info)) if store else {}
        self._remembered.confirm()
        if self._rejected:
            self._remembered.stop()
        self._evidence = None
        self._memo = {}

    def _runners_up(self, pool: Pool, problem: Problem) -> list[Entry]:
        """Return what was measured beside the winners in `pool`, none where there is no winner."""
        if self._store is None or not pool.same(problem):
            return []
        try:
            self._looked_beyond.add(problem)  # what is asked for is part of no name
            records = self._store.runners_up(self.info, problem)
        except DatabaseError as error:  # the rest of the ladder is in memory
            self.skipped.append(f"{problem.key()}: {error}")
            return []
        return list(self._known.read(records))

    def unverified(self) -> list[Choice]:
        """Return what was imported or pulled, was not checked here, and is worth checking.

        That is what would serve, and what claims to be faster than what serves and was measured
        here: one per problem, the fastest.
        """
        unsettled = self._known.read(self._store.unsettled(self.info) if self._store else ())
        problems = dict.fromkeys((*self._known.claimed, *(entry.problem for entry in unsettled)))
        found = (self._worth_checking(problem) for problem in problems)
        return [choice for choice in found if choice is not None]

    def _worth_checking(self, problem: Problem) -> Choice | None:
        candidates = self._candidates(problem)
        served = next(candidates, None)
        if served is None or not served.verified:
            return served
        claims = [
            one
            for one in takewhile(lambda one: one.rung == "exact", candidates)
            if not one.verified and one.cache == served.cache and _ms(one) < _ms(served)
        ]
        return min(claims, key=_ms, default=None)

    def candidates(self, problem: Problem) -> Iterator[Choice]:
        """Yield every variant that can serve, best first: measured ones, then predicted ones.

        A claim whose plan failed its check on this device is left out.
        """
        for choice in self._candidates(problem):
            said = None
            if self._checks and not choice.verified:
                said = self._checks.get(digest_of(problem, choice.variant) or "")
            if not said:
                yield replace(choice, is_checked=True) if said == "" else choice

    def _candidates(self, problem: Problem) -> Iterator[Choice]:
        known = self._known
        rungs: tuple[tuple[Rung, _Look, Pool], ...] = (
            ("exact", Pool.same, known.exact),
            ("exact", self._runners_up, known.exact),
            ("stale", Pool.same, known.here),
        )
        for step, (rung, look, pool) in enumerate(rungs):
            valid = (entry for entry in look(pool, problem) if self._is_valid(problem, entry))
            for entry in of_today(valid) if rung == "exact" else valid:
                yield of_entry(problem, rung, step, entry, ms=entry.record.ms)
        expected = self._expected(problem, len(rungs))
        raced = known.raced.get(problem) if self.serves_raced else None
        if raced is not None and any(of_today([raced])):
            yield from won(ranked := list(expected), raced)
            expected = iter(ranked)
        yield from expected

    def _expected(self, problem: Problem, steps: int) -> Iterator[Choice]:
        """Yield what can serve and was not measured for the problem itself, best first.

        Args:
            problem: what is to be computed.
            steps: of the ladder above.
        """
        for option in self._options(problem):
            if self._can_serve(problem, option):
                yield option.choice(problem, steps)
        step = steps + len(self._known.sources)
        for variant in self._defaults(problem):
            if self._may_serve(problem, variant):
                yield Choice(problem, variant, "default", None, "", step + 1)

    def _options(self, problem: Problem) -> Iterator[Option]:
        """Yield records' variants and families' guesses, the most promising first; some invalid.

        Where there is a model, all are ranked by it: a record is evidence, as `TRUST` says, and no
        step that wins. Of families that promise little by then, the guesses behind the first one
        are ranked once all others were asked for. Where there is no model for such problems or
        devices, records of alike problems come first, those of this device before those of related
        ones; then those of near problems of related devices by distance, and then guesses: other
        devices' records are of vectors and register files of their own, but tell which family wins.
        """
        guessed = Guesses(problem, self.limits)
        records, others = self._records(problem), self._unrelated(problem)
        last = len(self._known.sources)
        found = joined(records, guessed.first.values(), others, last)
        ranked = self._ranked(problem, found)
        if ranked is None:
            found = joined(records, guessed, others, last)
            yield from sorted(found.values(), key=attrgetter("step", "cost"))
            return
        likely = promising(ranked)
        for families in (likely, guessed.first.keys() - likely):
            more = (
                one for name in guessed.first if name in families for one in guessed.others(name)
            )
            unknown = joined({}, (one for one in more if one not in found), [], last)
            ranked += self._ranked(problem, unknown) or []
            yield from sorted(ranked, key=attrgetter("cost"))
            ranked = []

    def _ranked(self, problem: Problem, found: Mapping[Variant, Option]) -> list[Option] | None:
        """Return those that can be planned with their predicted times, None without a model."""
        times = predict(problem, list(found), self.limits)
        if times is None:
            return None
        trust = TRUST[self.limits.kind]
        pairs = zip(times, found.values(), strict=True)
        return [option.expected(ms, trust) for ms, option in pairs if ms < inf]

    def _records(self, problem: Problem) -> dict[Variant, Option]:
        """Return the variants of related devices' records for the nearest problems.

        A variant that several records name counts by the one of an alike problem. Beyond that a
        family may adapt it, on processors to all problems that are not alike: then it is a guess.
        """
        beyond = ALIKE if self.limits.kind == "cpu" else NEAR
        sources, found = self._known.sources, dict[Variant, Option]()
        near = [
            (apart, step, rung, entry)
            for step, (rung, pool) in enumerate(sources)
            for apart, entry in pool.nearest(problem, NEIGHBOURS[self.limits.kind])
        ]
        for apart, step, rung, entry in sorted(near, key=lambda one: one[0] > ALIKE):
            own, last = entry.variant.for_another(problem, self.limits), len(sources)
            cost = apart + FAR if apart > NEAR else apart
            if apart > beyond and own != entry.variant:
                found.setdefault(own, Option(cost, "guess", own, None, last))
            else:
                at = step if apart <= ALIKE else last
                found.setdefault(entry.variant, Option(cost, rung, entry.variant, entry, at))
        return found

    def _unrelated(self, problem: Problem) -> list[Option]:
        """Return the options of records of any device of the kind, adapted on processors."""
        last, count, found = len(self._known.sources), NEIGHBOURS[self.limits.kind], []
        for apart, entry in self._known.kin.nearest(problem, count):
            cost, own = UNRELATED + apart, entry.variant
            if self.limits.kind == "cpu" and apart > ALIKE:
                own = own.for_another(problem, self.limits)
            if own != entry.variant:
                found.append(Option(cost, "guess", own, None, last))
            else:
                found.append(Option(cost, "shipped", own, entry, last))
        return found

    def _can_serve(self, problem: Problem, option: Option) -> bool:
        if option.entry is None:
            return self._may_serve(problem, option.variant)
        return self._is_valid(problem, option.entry)

    def _defaults(self, problem: Problem) -> list[Variant]:
        found = preferred(problem, self.limits)
        return [Variant(one.NAME, default_of(one, problem, self.limits)) for one in found]

    def _may_serve(self, problem: Problem, variant: Variant) -> bool:
        """Say whether a variant can serve about which nothing is recorded."""
        is_close_enough = self._is_close_enough(problem, variant.family, None)
        return is_close_enough and self._fits(problem, variant)

    def _is_valid(self, problem: Problem, entry: Entry) -> bool:
        record = entry.record
        is_close_enough = self._is_close_enough(problem, record.family, record.error)
        return is_close_enough and self._fits(problem, entry.variant)

    def _is_close_enough(self, problem: Problem, family: str, error: float | None) -> bool:
        if self._conv_error is None or problem.op != "conv":
            return True
        return not is_transforming(family) if error is None else error <= self._conv_error

    def _fits(self, problem: Problem, variant: Variant) -> bool:
        rejected = (problem, variant) in self._rejected
        return not rejected and variant.why_not(problem, self.limits) is None

    def _why_none(self, problem: Problem) -> str:
        defaults = self._defaults(problem)
        asked = ((one.family, one.why_not(problem, self.limits)) for one in defaults)
        why = "; ".join(f"{name}: {why or 'failed here'}" for name, why in asked)
        why = why or "no family serves it"
        return f"nothing computes {problem.key()} on {self.info.name}: {why}"


_Look = Callable[[Pool, Problem], list[Entry]]


def _ms(choice: Choice) -> float:
    return 0.0 if choice.ms is None else choice.ms
