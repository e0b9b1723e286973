"""Which problems of a recording a tuning helps most: no record, and far above the roofline.

Of each problem the model predicts the time of what would serve; what lies above the roofline of the
device's measured rates, times the calls, is what a better variant could save. The model's times
have a common factor that is not reliable, so that the order counts, not the milliseconds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from oclgen import recording
from oclgen.measuring import peak
from oclgen.opencl.device import select
from oclgen.problem import Problem
from oclgen.roofline import Roofs
from tuned_db import Choice, Chooser, NoVariantError, open_if_any


class Row(NamedTuple):
    """A problem without a record of its own: calls, the choice, and what the roofline allows."""

    calls: int
    choice: Choice
    roof_ms: float

    @property
    def lost_ms(self) -> float:
        """Milliseconds of all calls above the roofline, as predicted."""
        return self.calls * max((self.choice.predicted_ms or 0.0) - self.roof_ms, 0.0)


def main(path: Path, count: int, device: str) -> None:
    """Print the problems that lose most, and how many have records.

    Args:
        path: of a recording.
        count: lines.
        device: index or part of the name.
    """
    target = select(device)
    measured = peak.measure(target)
    roofs = Roofs(measured.gflops, measured.gbytes, peak.matrix_gflops(target))
    chooser = Chooser(open_if_any(None), target.info, target.limits)
    with path.open(encoding="utf-8") as file:
        met = recording.load(file)
    rows = ranked(met, chooser, roofs)
    lost = sum(row.lost_ms for row in rows)
    print(f"{len(met)} problems, {len(met) - len(rows)} with records or without a variant")
    print(f"{'lost ms':>9}{'sum':>6}{'calls':>7}{'roof/ms':>9}  family, problem")
    so_far = 0.0
    for row in rows[:count]:
        so_far += row.lost_ms
        part = row.roof_ms / (row.choice.predicted_ms or row.roof_ms)
        print(f"{row.lost_ms:9.3g}{so_far / lost:6.0%}{row.calls:7}{part:9.2f}  "
              f"{row.choice.variant.family}, {row.choice.problem.key()}")  # fmt: skip


def ranked(met: Counter[Problem], chooser: Chooser, roofs: Roofs) -> list[Row]:
    """Return the problems without a record of their own, those first that lose most.

    Args:
        met: problems with their calls.
        chooser: of the device.
        roofs: the device's rates.
    """
    rows = []
    for problem, calls in met.items():
        try:
            choice = chooser.choose(problem)
        except NoVariantError:
            continue
        if choice.source_key != problem.key():  # the package's records are another rung
            roof = roofs.over(problem.flops, problem.bytes, problem.dtype)
            rows.append(Row(calls, choice, roof.ms))
    return sorted(rows, key=lambda row: (-row.lost_ms, row.choice.problem.key()))
