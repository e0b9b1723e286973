"""The variant that was chosen for a problem, and the evidence for it, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from oclgen.measurement import Cache
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.pools import Entry

Rung = Literal["exact", "stale", "raced", "nearest", "architecture", "shipped", "guess", "default"]
"""Where a choice comes from. `exact`: measured on this device and driver, with the kernels that are
generated today; `stale`: on this device with another driver or other kernels; `raced`: the fastest
of the few that the model expected most of, by a program on this device; `nearest`: another problem
on this device; `architecture`: a device of the same architecture; `shipped`: the records
that come with the package; `guess`: a family's guess for such a problem on such a device;
`default`: a family's `DEFAULT`, which is valid anywhere. What was not measured for a problem hardly
apart is ranked by the model of `oclgen.predictor`, wherever it comes from."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant that serves a problem; it is valid for the problem and the device.

    `ms` is the time measured for this very problem on this device, None where it was not;
    `source_key` is the key of the problem whose record was used, empty for a `DEFAULT`. `verified`
    is False where the record was imported or pulled and was not measured here since. `step` counts
    the steps down the ladder. `cache` is cold where nothing on the same step was measured with warm
    caches. `cost` orders what was not measured here, on one step: less is better.
    `predicted_ms` is the time that the model predicts, where it was asked: there is one for such
    devices, and the problem was not measured here. `is_checked` says of what is not verified that
    its plan was right in a quick check on this device, `origin` how it came. `beaten` is what would
    serve if there had been no race, of its winner.
    """

    problem: Problem
    variant: Variant
    rung: Rung
    ms: float | None
    source_key: str
    step: int
    verified: bool = True
    cache: Cache = "warm"
    cost: float = 0.0
    predicted_ms: float | None = None
    is_checked: bool = False
    origin: str = field(default="", compare=False)
    beaten: Choice | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[int, float]:
        """The order of choices: first the step, then the cost; less is better."""
        return self.step, self.cost

    @property
    def source(self) -> str:
        """The rung for people, with a note if its times are cold or unverified."""
        cold = ", cold" if self.cache == "cold" else ""
        claimed = ", checked" if self.is_checked else ", unverified"
        return f"{self.rung}{cold}{'' if self.verified else claimed}"

    def to_json(self) -> dict[str, Any]:
        """Return all but the problem as JSON has it."""
        values = {name: getattr(self, name) for name in _PLAIN}
        values["variant"] = [self.variant.family, self.variant.values()]
        values["beaten"] = None if self.beaten is None else self.beaten.to_json()
        return values

    @classmethod
    def from_json(cls, problem: Problem, values: Mapping[str, Any]) -> Choice:
        """Return what `to_json` wrote of a choice for `problem`.

        Raises:
            ConfigError: no family reads the variant.
        """
        beaten = values["beaten"]
        return cls(
            problem=problem,
            variant=Variant.from_values(*values["variant"]),
            beaten=None if beaten is None else cls.from_json(problem, beaten),
            **{name: values[name] for name in _PLAIN},
        )


_PLAIN = tuple(
    each.name for each in fields(Choice) if each.name not in ("problem", "variant", "beaten")
)
"""Fields that are numbers, texts or None."""


def of_entry(
    problem: Problem,
    rung: Rung,
    step: int,
    entry: Entry,
    ms: float | None = None,
) -> Choice:
    """Return the choice of a record's variant, with what the record says of itself.

    Args:
        problem: what is to be computed.
        rung: where the record comes from.
        step: steps down the ladder.
        entry: the record.
        ms: its time, if it is of this problem and device.
    """
    record = entry.record
    return Choice(
        problem=problem,
        variant=entry.variant,
        rung=rung,
        ms=ms,
        source_key=record.problem,
        step=step,
        verified=record.verified,
        cache=record.cache,
        origin=record.origin,
    )
