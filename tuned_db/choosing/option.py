"""What the chooser ranks where nothing was measured for the problem itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import NamedTuple

from oclgen.families import preferred, suitable_configs
from oclgen.limits import Limits
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.choice import Choice, Rung, of_entry
from tuned_db.choosing.nearest import ALIKE, NEAR
from tuned_db.choosing.pools import Entry


class Trust(NamedTuple):
    """How much slower than what was never measured a winner may be predicted to be, and serve.

    It won against many trials: for a problem hardly apart on this device and on a related one, and
    for a near problem on this device.
    """

    alike_here: float
    alike_there: float
    near_here: float


GPUS = Trust(2.0, 2.0, 1.25)
TRUST = {"cpu": Trust(1.5, 1.25, 1.1), "gpu": GPUS, "other": GPUS}
"""By the kind of device. In the tables of processors, winners of near problems were 1.04 times as
fast as the model's choice where they were predicted to take up to 1.1 times as long, and 0.92 times
where they were predicted to take 1.1 to 1.25 times as long. An H100 ran the tuned networks by an
H200's records with the bounds for GPUs."""

GUESSES = {"cpu": 6, "gpu": 5, "other": 5}
"""Guesses of a family that are ranked, by the kind of device."""
GUESSED = 1e3
"""Added to the cost of guesses, if there is no model."""
PROMISING = 2.0
"""A family whose best candidate so far is predicted to take more times as long as the best of all
hardly ever has the best guess behind its first one: in 3 of 2,663 problems of the tables."""


class Guesses:
    """The guesses of all families that are ranked, those of preferred families first.

    The first of each family is made at once, the others are made when they are asked for: each
    costs the host up to a tenth of a millisecond while an operator waits.

    Attributes:
        first: guess of each family, by name.

    Args:
        problem: what is to be computed.
        limits: of the device.
    """

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self._left = {
            family.NAME: islice(suitable_configs(family, problem, limits), GUESSES[limits.kind])
            for family in preferred(problem, limits)
        }
        self.first = {
            name: Variant(name, config)
            for name, configs in self._left.items()
            for config in islice(configs, 1)
        }

    def others(self, family: str) -> Iterator[Variant]:
        """Yield the guesses of a family that were not asked for yet.

        Args:
            family: its name; one without guesses has none.
        """
        for config in self._left.get(family, ()):
            yield Variant(family, config)

    def __iter__(self) -> Iterator[Variant]:
        for name, first in self.first.items():
            yield first
            yield from self.others(name)


def guesses(problem: Problem, limits: Limits) -> Iterator[Variant]:
    """Yield the guesses of all families that are ranked, as `Guesses` has them."""
    yield from Guesses(problem, limits)


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A variant for a problem that was not measured here.

    `cost` is the distance of the record's problem, or `GUESSED` or `UNRELATED` and more; where
    there is a model (`expected`), the time in ms that it predicts, less for a record that many
    trials speak for. `entry` is the record that it comes from, None for a family's guess. `step`
    counts from the first source of records of alike problems; all others share the last one.
    `predicted_ms` is None without a model.
    """

    cost: float
    rung: Rung
    variant: Variant
    entry: Entry | None
    step: int
    predicted_ms: float | None = None

    def expected(self, ms: float, trust: Trust) -> Option:
        """Return this option, whose cost is still a distance, with the time that is predicted."""
        cost = ms / self._bound(trust)
        return Option(cost, self.rung, self.variant, self.entry, self.step, ms)

    def _bound(self, trust: Trust) -> float:
        """Return how many times the best predicted time it may be predicted to take, and serve."""
        if self.entry is None or self.cost > NEAR:
            return 1.0
        is_here = self.rung == "nearest"
        if self.cost > ALIKE:
            return trust.near_here if is_here else 1.0
        return trust.alike_here if is_here else trust.alike_there

    def choice(self, problem: Problem, steps: int) -> Choice:
        """Return the choice of this variant, on a ladder with `steps` steps above the first."""
        step = steps + self.step
        if self.entry is not None:
            made = of_entry(problem, self.rung, step, self.entry)
        else:
            made = Choice(problem, self.variant, self.rung, None, "", step)
        return replace(made, cost=self.cost, predicted_ms=self.predicted_ms)


def joined(
    records: Mapping[Variant, Option],
    guessed: Iterable[Variant],
    others: Sequence[Option],
    last: int,
) -> dict[Variant, Option]:
    """Return options by variant; one that is known from several sources counts by the first.

    Args:
        records: options of related devices' records.
        guessed: variants that families guess.
        others: options of records of any device; the families that they name are guessed first.
        last: step of guesses.
    """
    found, winners = {**records}, [option.variant.family for option in others]
    for variant in guessed:
        if variant not in found:
            wins = winners.index(variant.family) if variant.family in winners else len(winners)
            found[variant] = Option(GUESSED + wins, "guess", variant, None, last)
    for option in others:
        found.setdefault(option.variant, option)
    return found


def promising(ranked: Iterable[Option]) -> set[str]:
    """Return the families whose best candidate is predicted to be nearly as fast as the best."""
    times: dict[str, float] = {}
    for one in ranked:
        if one.predicted_ms is not None:
            family = one.variant.family
            times[family] = min(times.get(family, inf), one.predicted_ms)
    bound = PROMISING * min(times.values(), default=inf)
    return {family for family, ms in times.items() if ms <= bound}
