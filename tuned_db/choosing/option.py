"""What the chooser ranks where nothing was measured for the problem itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.choice import Choice, Rung, of_entry
from tuned_db.choosing.nearest import NEAR
from tuned_db.choosing.pools import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A variant for a problem that was not measured here.

    `cost` is the time in ms that the model predicts, less for a record that many trials speak for;
    without a model the distance of the record's problem, or `GUESSED` or `UNRELATED` and more.
    `entry` is the record that it comes from, None for a family's guess. `predicted_ms` is None
    without a model.
    """

    cost: float
    rung: Rung
    variant: Variant
    entry: Entry | None
    predicted_ms: float | None = None

    def choice(self, problem: Problem, step: int) -> Choice:
        """Return the choice of this variant on a step of the ladder."""
        if self.entry is not None:
            made = of_entry(problem, self.rung, step, self.entry)
        else:
            made = Choice(problem, self.variant, self.rung, None, "", step)
        return replace(made, cost=self.cost, predicted_ms=self.predicted_ms)

    @property
    def is_near(self) -> bool:
        """Whether it won on this very device for a near problem; its cost is a distance."""
        return self.rung == "nearest" and self.cost <= NEAR
