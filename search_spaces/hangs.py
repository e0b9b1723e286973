"""Which families a problem's search gives up, since their variants hang; it measures nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

from oclgen.measurement import Measurement
from oclgen.variant import Variant

MOST_TIMEOUTS = 2
"""Variants of a family that may time out before it is given up. One may be the fault of its config
or of another program; what hangs two is most often all of the family's."""


class Hangs:
    """The timeouts and times of one problem's variants, by family.

    A family is given up once `MOST_TIMEOUTS` of its variants timed out, and at least as many as
    were timed: in a family that serves, the search itself learns which configs hang.

    Args:
        measured: milliseconds of what was tried before; infinite for failures.
        timeouts: those of them that timed out.
    """

    def __init__(self, measured: Mapping[Variant, float], timeouts: Iterable[Variant]) -> None:
        self._timed = Counter(one.family for one, ms in measured.items() if ms < inf)
        self._late = Counter(one.family for one in timeouts)
        self._last: dict[str, str] = {}

    def note(self, variant: Variant, measurement: Measurement) -> None:
        """Take in a trial."""
        if measurement.ok:
            self._timed[variant.family] += 1
        elif measurement.invalidity == "timeout":
            self._late[variant.family] += 1
            self._last[variant.family] = measurement.reason

    def why_skipped(self, family: str) -> str:
        """Return why a family is given up, or "" if it is not."""
        late, timed = self._late[family], self._timed[family]
        if late < max(MOST_TIMEOUTS, timed):
            return ""
        last = self._last.get(family, "")
        return f"{late} variants timed out, {timed} were timed" + (f"; {last}" if last else "")
