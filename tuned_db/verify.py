"""Settles claims: what was imported or pulled is measured here, or gives its place to the next.

How a variant is measured is handed in; what is unverified, `tuned_db.choose` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oclgen.measurement import Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.choice import Choice
from tuned_db.choose import Chooser, NoVariantError
from tuned_db.store import DeviceStore

Measure = Callable[[Problem, Variant], Measurement]


@dataclass(frozen=True)
class Verdict:
    """A claim and what this machine says to it; `choice.ms` is what was claimed, if for here."""

    choice: Choice
    measurement: Measurement


def verify(
    chooser: Chooser, results: DeviceStore, claims: Sequence[Choice], measure: Measure
) -> Iterator[Verdict]:
    """Measure claims, keep what comes of each, and yield it.

    Where one fails, the next best of its problem is measured, until one works or nothing but the
    family's default is left. What works is then known for this very device and problem.

    Args:
        chooser: of the device; it chooses the next best, and reads the results at the end.
        results: of the device.
        claims: choices whose records were measured elsewhere.
        measure: times a variant on the device.
    """
    for claim in claims:
        choice: Choice | None = claim
        while choice is not None and not choice.verified:
            measurement = measure(choice.problem, choice.variant)
            results.record(choice.problem, choice.variant, measurement)
            yield Verdict(choice, measurement)
            choice = None if measurement.ok else _next(chooser, choice)
    chooser.refresh()


def _next(chooser: Chooser, failed: Choice) -> Choice | None:
    """Return what serves now that `failed` lost its place, None if nothing does."""
    try:
        chooser.reject(failed)
        chooser.refresh()  # the database has crowned another
        return chooser.choose(failed.problem)
    except NoVariantError:
        return None
