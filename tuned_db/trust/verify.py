"""Settles claims: measures here what was imported or pulled, or replaces it by the next best.

The caller passes in how to measure a variant; `tuned_db.choosing.chooser` knows what is unverified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from oclgen.measurement import Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choosing.choice import Choice
from tuned_db.choosing.chooser import Chooser
from tuned_db.storage.store import DeviceStore

Measure = Callable[[Problem, Variant], Measurement]


SLOWER = 1.5
"""Times that a claim may take what was claimed for this device, and count as verified."""
VerdictKind = Literal["verified", "slower", "wrong", "failed", "compared"]


@dataclass(frozen=True)
class Verdict:
    """A claim and what this machine says to it; `choice.ms` is what was claimed, if for here."""

    choice: Choice
    measurement: Measurement

    @property
    def kind(self) -> VerdictKind:
        """The verdict.

        `verified`: right, and about as fast as claimed; `slower`: right, and slower than `SLOWER`
        times the claim; `wrong`: a false result; `failed`: it does not build or run. `compared` is
        no claim, but what would serve without one that was slower.
        """
        if self.choice.verified:
            return "compared"
        if not self.measurement.ok:
            return "wrong" if self.measurement.invalidity == "correctness" else "failed"
        claimed = self.choice.ms
        is_slower = claimed is not None and self.measurement.ms > SLOWER * claimed
        return "slower" if is_slower else "verified"


def verify(
    chooser: Chooser, results: DeviceStore, claims: Sequence[Choice], measure: Measure
) -> Iterator[Verdict]:
    """Measure claims, keep the result of each, and yield it.

    Where one fails, the next best of its problem is measured, until one works or nothing but the
    family's default is left. Where one is slower than claimed, what would serve without it is
    measured, too, and the faster stays. So a working variant is known for this device and problem.

    Args:
        chooser: of the device; it chooses the next best, and reads the results at the end.
        results: of the device.
        claims: choices whose records were measured elsewhere.
        measure: times a variant on the device.
    """
    for claim in claims:
        choice: Choice | None = claim
        tried: set[Variant] = set()
        while choice is not None:
            measurement = measure(choice.problem, choice.variant)
            results.record(choice.problem, choice.variant, measurement)
            tried.add(choice.variant)
            verdict = Verdict(choice, measurement)
            yield verdict
            choice = _next(chooser, verdict, tried)
    chooser.refresh()


def _next(chooser: Chooser, verdict: Verdict, tried: set[Variant]) -> Choice | None:
    """Return what is to be measured now for the verdict's problem, None if nothing is."""
    if verdict.kind in ("verified", "compared"):
        return None
    problem = verdict.choice.problem
    chooser.refresh()  # the database may have crowned another
    left = (one for one in chooser.candidates(problem) if one.variant not in tried)
    best = next(left, None)
    if best is None or not best.verified:
        return best
    # a failed claim is replaced by a measured or shipped record; a slow one by the faster of both
    return best if verdict.kind == "slower" and best.rung != "exact" else None
