"""Products with packed weights beside the rate at which the device reads the same number of bytes.

    python -m benchmarks packed --rows 1,4,8 --drawn 12 --seed 7

Sizes, rows and formats are also drawn by a seed, today's date unless it is given. Ours is the
variant that dispatch takes from the database and the shipped records. It is verified against
float64 before it is timed, and what it makes of weights alone is made once, as dispatch does. Both
sides run in turns, and the best time of each counts, since other programs only make times longer.
With `--cold` no cache holds the bytes when either side begins: so it is for the layers of a model
that is larger than the caches. Without, what fits into a GPU's cache is read from there.
`of limit` compares with the rate of multiply-adds if that is the lower limit: 4-bit weights times 8
rows are bound by it on a processor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import geometric_mean

from benchmarks.tasks.draw import distinct, log_uniform
from oclgen.measuring import peak
from oclgen.measuring.measure import Bench, Flush, as_called
from oclgen.opencl.device import Device, PreparedPlan, select
from oclgen.problem import PackedProblem
from tuned_db import Chooser, open_store

SIZES = {"cpu": (8192, 4096), "gpu": (14336, 4096), "other": (4096, 4096)}
"""Outputs and weights of a row; of processors fewer, so that all ends in minutes."""
MOST_WEIGHTS = {"cpu": 2**24, "gpu": 2**26, "other": 2**23}
"""Weights of a drawn problem at most, so that its reference takes seconds."""
MOST_ROWS = 8
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
    drawn: bool = False

    @property
    def ratio(self) -> float:
        """Part of the read rate that is reached."""
        return self.gbytes / self.read

    @property
    def of_limit(self) -> float:
        """Part of the time that reading or multiplying takes at least, whichever is longer."""
        return max(self.ratio, self.gflops / self.peak_gflops)


def drawn(
    seed: int, count: int, formats: Sequence[str], dtype: str, most: int
) -> list[PackedProblem]:
    """Return products of few rows that a seed draws.

    Args:
        seed: equal seeds give equal problems.
        count: how many.
        formats: from which theirs are drawn.
        dtype: of x and y.
        most: weights at most.
    """

    def one(random: Random) -> PackedProblem | None:
        n, k = 8 * log_uniform(random, 64, 4096), 256 * log_uniform(random, 2, 64)
        m, form = random.randint(1, MOST_ROWS), random.choice(formats)
        return PackedProblem(m, n, k, dtype, form) if n * k <= most else None

    return distinct("packed", seed, count, one)


def measure(
    device: Device,
    chooser: Chooser,
    problem: PackedProblem,
    by_seed: bool = False,
    is_cold: bool = False,
) -> Row:
    """Return the rates of a product, verified first.

    Args:
        device: where it runs.
        chooser: says by which variant.
        problem: whose bytes are read.
        by_seed: whether a seed drew it.
        is_cold: whether caches hold other data when a launch begins.

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
    made = device.prepare(plan, {**bench.buffers, "y": out, **_spaces(device, plan.workspaces)})
    made.run()
    ours = as_called(made, problem)
    # other bytes are read, not written: caches would write them back during the launch
    other = peak.reading(device, Flush.bytes_of(device))[0] if is_cold else None

    def timed(launch: PreparedPlan) -> float:
        if other is not None:
            other.run()
        return launch.run()

    turns = [(timed(ours), timed(reads)) for _ in range(TURNS)]
    ms, read_ms = (min(times) for times in zip(*turns, strict=True))
    return Row(
        problem.key(),
        choice.variant.to_text(),
        choice.rung,
        problem.bytes / ms * 1e-6,
        size / read_ms * 1e-6,
        problem.flops / ms * 1e-6,
        peak.measure(device).gflops,
        by_seed,
    )


def _spaces(device: Device, workspaces: Sequence[tuple[str, int]]) -> dict[str, object]:
    return {role: device.empty(size) for role, size in workspaces}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| problem | GB/s | read rate | of it | GFLOP/s | of limit | variant from | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.problem} | {row.gbytes:.1f} | {row.read:.1f} | {row.ratio:.2f} "
        f"| {row.gflops:.0f} | {row.of_limit:.2f} | {row.rung} "
        f"| {'by a seed' if row.drawn else 'by us'} |"
        for row in rows
    ]
    for by_seed, chooser in ((False, "us"), (True, "a seed")):
        ratios = [row.ratio for row in rows if row.drawn == by_seed]
        if ratios:
            mean, count = geometric_mean(ratios), len(ratios)
            lines.append(
                f"\nchosen by {chooser}: {mean:.2f} of the read rate in the geometric mean of "
                f"{count}, {min(ratios):.2f} at worst"
            )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured.

    Attributes:
        device: index or part of the name.
        rows: of x, of the chosen products.
        formats: of the weights.
        dtype: of x and y.
        count: products that are drawn.
        seed: draws them.
        cold: whether caches hold other data when a launch begins.
        path: of a JSON file; None: none.
    """

    device: str
    rows: Sequence[int]
    formats: Sequence[str]
    dtype: str
    count: int
    seed: int
    cold: bool
    path: Path | None


def main(options: Options) -> None:
    """Measure all, print the table, and keep the rows."""
    target = select(options.device)
    chooser = Chooser(open_store(), target.info, target.limits)
    n, k = SIZES[target.limits.kind]
    dtype, most = options.dtype, MOST_WEIGHTS[target.limits.kind]
    problems = [
        PackedProblem(m, n, k, dtype, form) for form in options.formats for m in options.rows
    ]
    further = drawn(options.seed, options.count, options.formats, dtype, most)
    wanted = [(False, problem) for problem in problems] + [(True, problem) for problem in further]
    found = [
        measure(target, chooser, problem, by_seed, options.cold) for by_seed, problem in wanted
    ]
    caches = "cold" if options.cold else "warm"
    print(f"{target.name}, seed {options.seed}, {caches} caches\n\n{table(found)}")
    if options.path:
        content = {
            "device": target.name, "seed": options.seed, "cold": options.cold,
            "rows": [asdict(row) for row in found],
        }  # fmt: skip
        options.path.write_text(json.dumps(content, indent=1) + "\n")
