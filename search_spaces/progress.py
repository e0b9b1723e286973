"""What a tuning reports while it runs and when it ends, as plain values; it prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol

from oclgen.measurement import Cache, Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant

Status = Literal["tuned", "already done", "no variant", "interrupted", "not reached"]
"""`already done`: as many trials as asked for were made before; `no variant`: nothing worked;
`interrupted`: stopped by hand, what was measured is kept; `not reached`: stopped or out of time
before its first trial."""

FEW = 8
"""Trials that are enough for every family that serves a problem to show a first time."""
TRIAL_S = 1.0
"""Seconds of a trial where none was made yet: most take less, with a compiler's start more."""


class CrewError(RuntimeError):
    """A crew that cannot be had: the message names what is missing."""


class OutOfTimeError(Exception):
    """The tuning's time ended while a variant was measured: this says nothing of the variant."""


class Measure(Protocol):
    """How a variant is measured: `oclgen.measuring.measure` does it on a device."""

    def __call__(self, problem: Problem, variant: Variant, best_ms: float, /) -> Measurement:
        """Return times or why there are none; may give up on what is far slower than `best_ms`.

        A variant that fails is a value; an exception says that nothing can be measured at all,
        `OutOfTimeError` that the tuning's time is up.
        """
        ...


class Results(Protocol):
    """Where measurements of one device go and come from: `tuned_db.DeviceStore` is one."""

    def record(self, problem: Problem, variant: Variant, measurement: Measurement, /) -> bool:
        """Keep a measurement and say whether it is now the winner.

        Args:
            problem: what was computed.
            variant: what computed it.
            measurement: times, or a failure.
        """
        ...

    def promote(self, problem: Problem, variant: Variant, measurement: Measurement, /) -> None:
        """Keep a measurement and make it the winner.

        Args:
            problem: what was computed.
            variant: what computed it, fastest of those measured side by side.
            measurement: its times; no failure.
        """
        ...

    def measured(self, problem: Problem, /) -> Mapping[Variant, float]:
        """Return milliseconds by variant of all that was tried; failures: inf.

        They are over their `oclgen.measurement.PACE`.
        """
        ...

    def timeouts(self, problem: Problem, /) -> Collection[Variant]:
        """Return those variants of `measured` that timed out."""
        ...

    def trials(self, problem: Problem, /) -> int:
        """Return how many distinct variants were tried."""
        ...

    def incumbent(self, problem: Problem, /) -> tuple[Variant, float] | None:
        """Return the winner and its milliseconds."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tuning may spend: distinct variants per problem, seconds over all problems.

    `seed` makes the search repeatable, `cache` is the state of the caches that times are taken in,
    `study` the URL of a database where Optuna keeps the searches.
    """

    trials: int = 64
    seconds: float = inf
    seed: int = 0
    cache: Cache = "warm"
    study: str | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest variant so far."""

    variant: Variant
    ms: float


@dataclass(frozen=True, slots=True)
class Progress:
    """One trial of one problem was made; `index` of `count` problems, `trial` of `trials`."""

    problem: Problem
    index: int
    count: int
    trial: int
    trials: int
    variant: Variant
    measurement: Measurement
    best: Best | None
    outcomes: Mapping[str, int]
    seconds_left: float


@dataclass(slots=True)
class TuneResult:
    """The result of one problem. `best` is the winner in the results, `outcomes` counts this run's
    trials by invalidity ("none" for those that were timed), `reason` is the first failure's,
    `tried` counts the variants of all runs (0 if not counted), `notice` says what to keep in mind
    about the times, such as that other work ran on the device, `skipped` says by family why no
    other variant of it was tried.
    """  # noqa: D205

    problem: Problem
    status: Status
    best: Best | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    reason: str = ""
    tried: int = 0
    notice: str = ""
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Variants tried in this run."""
        return self.outcomes.total()

    def __str__(self) -> str:
        """Return problem, status, the winner and what was skipped in a line."""
        what = f"{self.problem.key()}: {self.status}"
        skipped = "".join(f"; {one}" for one in self.said_of_skipped)
        if self.best is None:
            return what + (f"; {self.reason}" if self.reason else "") + skipped
        rate = self.problem.flops / self.best.ms / 1e6
        winner = f"{self.best.variant.family} {self.best.ms:.4g} ms, {rate:.0f} GFLOP/s"
        return f"{what}, {winner}{skipped}"

    @property
    def said_of_skipped(self) -> list[str]:
        """A sentence for each family that was given up."""
        return [f"{family} was given up: {why}" for family, why in self.skipped.items()]


def shortage(results: Sequence[TuneResult], spent: float) -> str:
    """Say how many seconds would have reached every problem, after `spent`; "" if all were reached.

    It is an estimate: `FEW` trials more for each problem that has none, as long as trials took.
    """
    missed = sum(result.status == "not reached" for result in results)
    if not missed or any(result.status == "interrupted" for result in results):
        return ""
    trials = sum(result.trials for result in results)
    each = sum(result.seconds for result in results) / trials if trials else TRIAL_S
    return (
        f"The time budget ended before {missed} of {len(results)} problems had a trial: some "
        f"{spent + missed * FEW * each:.0f} s would give each of them {FEW}."
    )
