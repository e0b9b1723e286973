"""Products with packed weights beside the rate at which the device reads the same number of bytes.

    python -m benchmarks packed --rows 1,4,8

Ours is the variant that dispatch takes from the database and the shipped records. It is verified
against float64 before it is timed. Both sides run in turns, and the best time of each counts, since
other programs only make times longer. `of limit` compares with the rate of multiply-adds if that is
the lower limit: 4-bit weights times 8 rows are bound by it on a processor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oclgen.measuring import peak
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device, select
from oclgen.problem import PackedProblem
from tuned_db import Chooser, open_store

SIZES = {"cpu": (8192, 4096), "gpu": (14336, 4096), "other": (4096, 4096)}
"""Outputs and weights of a row; of processors fewer, so that all ends in minutes."""
TURNS = 15


@dataclass(frozen=True, slots=True)
class Row:
    """A product: its rates in GB/s and GFLOP/s, and what the device gave meanwhile."""

    problem: str
    variant: str
    rung: str
    gbytes: float
    read: float
    gflops: float
    peak_gflops: float

    @property
    def ratio(self) -> float:
        """Part of the read rate that is reached."""
        return self.gbytes / self.read

    @property
    def of_limit(self) -> float:
        """Part of the time that reading or multiplying takes at least, whichever is longer."""
        return max(self.ratio, self.gflops / self.peak_gflops)


def measure(device: Device, chooser: Chooser, problem: PackedProblem) -> Row:
    """Return the rates of a product, verified first.

    Args:
        device: where it runs.
        chooser: says by which variant.
        problem: whose bytes are read.

    Raises:
        ValueError: the variant is wrong.
    """
    choice = chooser.choose(problem)
    bench, plan = Bench(device, problem), choice.variant.plan(problem)
    found = bench.measure(plan)
    if not found.ok:
        raise ValueError(f"{problem.key()} by {choice.variant.to_text()}: {found.reason}")
    reads, size = peak.reading(device, problem.bytes)
    out = device.empty(4 * problem.m * problem.n)
    ours = device.prepare(plan, {**bench.buffers, "y": out, **_spaces(device, plan.workspaces)})
    turns = [(ours.run(), reads.run()) for _ in range(TURNS)]
    ms, read_ms = (min(times) for times in zip(*turns, strict=True))
    return Row(
        problem.key(),
        choice.variant.to_text(),
        choice.rung,
        problem.bytes / ms * 1e-6,
        size / read_ms * 1e-6,
        problem.flops / ms * 1e-6,
        peak.measure(device).gflops,
    )


def _spaces(device: Device, workspaces: Sequence[tuple[str, int]]) -> dict[str, object]:
    return {role: device.empty(size) for role, size in workspaces}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| problem | GB/s | read rate | of it | GFLOP/s | of limit | variant from |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.problem} | {row.gbytes:.1f} | {row.read:.1f} | {row.ratio:.2f} "
        f"| {row.gflops:.0f} | {row.of_limit:.2f} | {row.rung} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(
    device: str, rows: Sequence[int], formats: Sequence[str], dtype: str, path: Path | None
) -> None:
    """Measure all, print the table, and keep the rows.

    Args:
        device: index or part of the name.
        rows: of x.
        formats: of the weights.
        dtype: of x and y.
        path: of a JSON file; None: none.
    """
    target = select(device)
    chooser = Chooser(open_store(), target.info, target.limits)
    n, k = SIZES[target.limits.kind]
    problems = [PackedProblem(m, n, k, dtype, form) for form in formats for m in rows]
    found = [measure(target, chooser, problem) for problem in problems]
    print(f"{target.name}\n\n{table(found)}")
    if path:
        content = {"device": target.name, "rows": [asdict(row) for row in found]}
        path.write_text(json.dumps(content, indent=1) + "\n")
