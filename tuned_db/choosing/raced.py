"""Races: few variants for a problem without a record, timed in turns beside a program.

The winner is kept as a record with an origin of its own: it was measured on this device, but by few
samples and against few others. `ocl_backend.dispatch.racing` runs the races.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from oclgen import GENERATOR_VERSION
from oclgen.limits import DeviceInfo
from oclgen.variant import Variant
from tuned_db.choosing.choice import Choice
from tuned_db.choosing.pools import Entry
from tuned_db.records.digests import digest_of
from tuned_db.records.record import Record

if TYPE_CHECKING:
    from tuned_db.choosing.chooser import Chooser

RACED = "raced"
"""Origin of winners of races. It gives way to a tuning, and to a faster claim about the problem."""
HOPELESS = 2.0
"""A variant that is predicted to take this many times as long as the serving one is not raced. This
is twice the model's usual error."""


def rivals(chooser: Chooser, served: Choice, count: int) -> list[Choice]:
    """Return the variants for which the model predicts the least times, without the serving one.

    Claims that were not checked are left out.

    Args:
        chooser: of the device.
        served: the choice; one that was measured, or without a predicted time, has no rivals.
        count: at most as many.
    """
    if served.ms is not None or served.predicted_ms is None:
        return []
    found: dict[Variant, Choice] = {}
    for one in chooser.candidates(served.problem):
        if one.predicted_ms is not None and (one.verified or one.is_checked):
            found.setdefault(one.variant, one)
    found.pop(served.variant, None)
    ranked = sorted(found.values(), key=attrgetter("predicted_ms"))
    bound = HOPELESS * served.predicted_ms
    return [one for one in ranked if (one.predicted_ms or 0.0) <= bound][:count]


def record_of(info: DeviceInfo, winner: Choice, samples: Sequence[float], raced: int) -> Record:
    """Return the record of a race.

    Args:
        info: the device.
        winner: the fastest.
        samples: its milliseconds.
        raced: how many variants took part.
    """
    from tuned_db.records.fields import LEAST_MS
    from tuned_db.storage import rows  # a choice needs neither SQLAlchemy nor pydantic

    return Record(
        problem=winner.problem.key(),
        family=winner.variant.family,
        config=winner.variant.to_json(),
        samples=tuple(max(sample, LEAST_MS) for sample in samples),
        error=None,
        trials=raced,
        device=info,
        generator=GENERATOR_VERSION,
        created=rows.now(),
        version=rows.version_here(),
        digest=digest_of(winner.problem, winner.variant),
        origin=RACED,
    )


def won(ranked: Sequence[Choice], raced: Entry) -> Iterator[Choice]:
    """Yield the one of `ranked` that won a race, if it is there, in place of the first."""
    one = next((each for each in ranked if each.variant == raced.variant), None)
    if one is not None:
        yield replace(one, rung="raced", ms=raced.record.ms, step=ranked[0].step, beaten=ranked[0])
