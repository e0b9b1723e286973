"""The charts that the page and the report show, made of what `tuned_db.views.browse` returns.

How a chart is drawn is `tuned_db.views.charts`; what the numbers mean is `tuned_db.views.analysis`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from oclgen.problem import PRODUCT_DTYPES
from tuned_db.database.models import MeasurementRow
from tuned_db.records.record import Record
from tuned_db.views.across import Pair
from tuned_db.views.analysis import (
    Effect,
    Grid,
    Timed,
    best_over_trials,
    peak_of,
    rate_of,
    roofs_of,
)
from tuned_db.views.charts import Bars, Chart, Heat, Series

MOST_BARS = 12
"""Parameters shown: those that matter least are left out."""


def dtypes_of(records: Iterable[Record]) -> list[str]:
    """Return the dtypes of problems, in the order of `PRODUCT_DTYPES`."""
    found = {rate.dtype for record in records if (rate := rate_of(record))}
    return [dtype for dtype in PRODUCT_DTYPES if dtype in found]


def roofline_chart(records: Iterable[Record], dtype: str) -> Chart:
    """Return rate over operations per byte of one device's winners, under the roof of their dtype.

    The roof is the lesser of the dtype's peak and of what the memory can feed; none is drawn where
    the peak of the dtype is unknown.

    Args:
        records: of one device; those of other dtypes are left out.
        dtype: a name of `PRODUCT_DTYPES`.
    """
    known = [
        (record, rate) for record in records if (rate := rate_of(record)) and rate.dtype == dtype
    ]
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record, rate in known:
        points[record.family].append((rate.intensity, rate.gflops))
    series = [Series(name, tuple(points[name])) for name in sorted(points)]
    title = f"{dtype}: winners, peak unknown"
    if known and (roofs := roofs_of(known[0][0])) and (peak := peak_of(known[0][0], dtype)):
        title = f"{dtype}: roof of {peak:.0f} GFLOP/s, {roofs.gbytes:.0f} GB/s"
        ridge = peak / roofs.gbytes
        ends = [ridge, *(rate.intensity for _, rate in known)]
        places = (min(ends) / 2, ridge, max(ends) * 2)
        roof = tuple((place, min(peak, place * roofs.gbytes)) for place in places)
        series.append(Series("roof", roof, style="line"))
    x = "operations per byte, every input read once"
    return Chart(title, x, "GFLOP/s", tuple(series), log_x=True, log_y=True)


def progress_chart(trials: Sequence[MeasurementRow]) -> Chart:
    """Return the best time so far over the trials, and every time that was measured."""
    times = [trial.ms for trial in trials]
    best = tuple((float(number), ms) for number, ms in best_over_trials(times))
    if best:
        best = (*best, (float(len(times)), best[-1][1]))
    dots = ((float(number), ms) for number, ms in enumerate(times, start=1) if ms is not None)
    series = (Series("measured", tuple(dots)), Series("best so far", best, style="steps"))
    return Chart("Best over trials", "trial", "ms", series, log_y=True)


def importance_chart(found: Sequence[Effect]) -> Bars:
    """Return how much of the variation of time each parameter explains, in percent."""
    bars = [(f"{one.family}.{one.parameter}", 100 * one.importance) for one in found[:MOST_BARS]]
    return Bars("What explains the differences", tuple(bars), "%")


def heat_chart(found: Grid) -> Heat:
    """Return what two parameters do to one problem, with the number of trials of each cell."""
    cells = tuple(
        tuple(cell and (cell[0], f"{cell[0]:.2f} ({cell[1]})") for cell in row)
        for row in found.cells
    )
    title = f"{found.family}: times longer (trials)"
    return Heat(title, found.x, found.y, found.columns, found.rows, cells)


def speedup_chart(pairs: Sequence[Pair]) -> Chart:
    """Return how many times faster the right side is over the time of the left, by operation."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        points[pair.problem.partition(":")[0]].append((pair.left.ms, pair.speedup))
    series = [Series(name, tuple(points[name])) for name in sorted(points)]
    if pairs:
        ends = [pair.left.ms for pair in pairs]
        even = ((min(ends), 1.0), (max(ends), 1.0))
        series.append(Series("equal", even, style="line"))
    title = "How many times faster the right device is"
    return Chart(title, "ms on the left", "times", tuple(series), log_x=True, log_y=True)


def variants_of(trials: Iterable[MeasurementRow]) -> list[Timed]:
    """Return the variants that went well, for `tuned_db.views.analysis.effects`."""
    return [(trial.family, trial.config, trial.ms) for trial in trials if trial.ms is not None]
