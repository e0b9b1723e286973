"""A quick check of a variant from someone else's record, before it serves here.

It runs in processes that may crash, on random inputs, against the float64 reference of a small
excerpt. It refuses times that are far too long; `oclgen.measuring.measure` measures exactly.
"""

from __future__ import annotations

from threading import Lock, Timer

from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.measuring.child import Stage, WorkerError
from oclgen.measuring.worker import Worker
from oclgen.problem import Problem
from oclgen.variant import Variant

AFFORDABLE = 2e8
"""Work of a reference: 0.1 s in numpy."""
TIMEOUTS: dict[Stage, float] = {
    "starting": 120.0,
    "preparing": 60.0,
    "compiling": 30.0,
    "running": 10.0,
}
"""Seconds: a claim that takes longer is not worth its promise."""
FAR_SLOWER = 10.0
"""Times that a variant may take what was claimed: the device has other work meanwhile."""
IDLE_S = 10.0
"""Seconds without a question after which the processes, which hold memory, are ended."""


class Checker:
    """Checks variants on one device, one at a time; for many threads."""

    def __init__(self, index: int, info: DeviceInfo) -> None:
        """Start nothing yet."""
        self.info = info
        self._worker = Worker(index, info, dict(TIMEOUTS), builders=1, affordable=AFFORDABLE)
        self._lock = Lock()
        self._timer: Timer | None = None

    def check(
        self, problem: Problem, variant: Variant, claimed_ms: float | None
    ) -> tuple[str, bool]:
        """Return why a variant is not to serve, "" if it may, and whether that will hold tomorrow.

        Args:
            problem: what is computed.
            variant: how.
            claimed_ms: the time that was claimed for this very problem and device, None if none.
        """
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                found = self._worker.measure(problem, variant)
                if found.ok and _too_slow(found, claimed_ms):  # the device may have been busy
                    found = self._worker.measure(problem, variant)
            except WorkerError as error:
                return f"it cannot be checked: {error}", False
            finally:
                self._timer = Timer(IDLE_S, self.close)
                self._timer.daemon = True
                self._timer.start()
        if not found.ok:
            # a busy machine runs out of time or memory, which says nothing of the variant
            return f"{found.invalidity}: {found.reason}", found.invalidity == "correctness"
        return _too_slow(found, claimed_ms), True

    def close(self) -> None:
        """End the processes; they start again when they are needed."""
        with self._lock:
            self._worker.close()


def _too_slow(found: Measurement, claimed_ms: float | None) -> str:
    if claimed_ms is None or found.ms <= FAR_SLOWER * claimed_ms:
        return ""
    return f"claimed {claimed_ms:.4g} ms, takes {found.ms:.4g} ms"
