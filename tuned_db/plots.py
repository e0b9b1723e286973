"""The charts that the page and the report show, made of what `tuned_db.browse` returns.

How a chart is drawn is `tuned_db.charts`; what the numbers mean is `tuned_db.analysis`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tuned_db.analysis import Effect, Variant, best_over_trials, rate_of
from tuned_db.charts import Bars, Chart, Series
from tuned_db.models import MeasurementRow
from tuned_db.record import Record

MOST_BARS = 12
"""Parameters shown: those that matter least are left out."""


def peak_chart(records: Iterable[Record]) -> Chart:
    """Return rate over size, one colour per family: of fp32 as part of the peak, if it is known.

    Where no winner is of fp32, or the peak is unknown, all are shown by their rate.
    """
    known = [(record, rate) for record in records if (rate := rate_of(record))]
    of_peak = [(record, rate) for record, rate in known if rate.of_peak is not None]
    relative = bool(of_peak)
    known = of_peak or known
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record, rate in known:
        height = (rate.of_peak or 0.0) if relative else rate.gflops
        points[record.family].append((float(rate.flops), height))
    series = [Series(name, tuple(points[name])) for name in sorted(points)]
    unit = "part of the fp32 peak" if relative else "GFLOP/s"
    title = "Winners of fp32: how near the peak" if relative else "Winners: rate"
    return Chart(title, "floating-point operations of the problem", unit, tuple(series), log_x=True)


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


def variants_of(trials: Iterable[MeasurementRow]) -> list[Variant]:
    """Return the variants that went well, for `tuned_db.analysis.effects`."""
    return [(trial.family, trial.config, trial.ms) for trial in trials if trial.ms is not None]
