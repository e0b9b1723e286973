"""Draws charts as PNG files with matplotlib, which the extra `report` brings.

The same values are drawn as SVG by `tuned_db.charts`, for pages.
"""

from __future__ import annotations

from pathlib import Path

from tuned_db.charts import COLOURS, Bars, Chart


def write_png(chart: Chart | Bars, file: Path) -> None:
    """Write `chart` to `file`.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(chart.title)
    if isinstance(chart, Bars):
        names, values = zip(*reversed(chart.bars), strict=True) if chart.bars else ((), ())
        axes.barh(names, values, color=COLOURS[0])
        axes.set_xlabel(chart.unit)
    else:
        _series(axes, chart)
    figure.savefig(file, dpi=120, format="png")


def _series(axes: object, chart: Chart) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    for series, colour in zip(chart.series, COLOURS * len(chart.series), strict=False):
        xs, ys = zip(*series.points, strict=True) if series.points else ((), ())
        if series.style == "steps":
            axes.step(xs, ys, where="post", color=colour, label=series.name)
        else:
            axes.scatter(xs, ys, s=14, alpha=0.7, color=colour, label=series.name)
    axes.set(xlabel=chart.x, ylabel=chart.y)
    axes.set_xscale("log" if chart.log_x else "linear")
    axes.set_yscale("log" if chart.log_y else "linear")
    if chart.series:
        axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
