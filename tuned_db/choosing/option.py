"""What the chooser ranks where nothing was measured for the problem itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
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


def guesses(problem: Problem, limits: Limits) -> Iterator[Variant]:
    """Yield the guesses of all families that are ranked, those of preferred families first.

    Args:
        problem: what is to be computed.
        limits: of the device.
    """
    for family in preferred(problem, limits):
        for config in islice(suitable_configs(family, problem, limits), GUESSES[limits.kind]):
            yield Variant(family.NAME, config)


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
