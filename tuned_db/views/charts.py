"""Charts as plain values, and their drawing with matplotlib (extras `serve` and `report`).

`analysis` and the callers decide what is drawn. The background is transparent and text is grey, so
that charts can be read on white and on dark pages.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import cycle, product
from math import log2
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from oclgen.texts import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 8.125, 3.3
"""Inches of a chart: 780 pixels of a page are as wide."""
BAR, FRAME, CELL = 0.24, 0.5, 0.32
"""Inches of a bar with its gap, of the space above and below all bars, and of a row of cells."""
Colour = tuple[float, float, float]
BEST, PALE, INK = (0.31, 0.65, 0.88), (0.96, 0.92, 0.86), "#111111"
"""Colours of cells and their text: dark on light, on a white and on a dark page."""
WORST = 8.0
"""Times longer than the best that have the palest colour."""
LEAST, MOST = 1e-12, 1e30
"""A number beyond these has no place: a false record would flatten all others."""
LONGEST = 48
"""Characters of a text: a longer one would leave no room for the axes."""
GREY = "#808080"
COLOURS = ("#2f8fd0", "#e07b39", "#3aa76d", "#c44e52", "#9a6fd0", "#14a3a3", "#b8860b", "#e05fa0")
MARKERS = ("o", "^", "s", "D")
REMEDY = "Charts need matplotlib: pip install 'oclgen[report]'"
"""The message if charts cannot be drawn."""
SETTINGS: Any = {
    "svg.fonttype": "none",  # text as text: it can be searched, and a browser has the fonts
    "svg.hashsalt": "oclgen",  # the same file for the same values
    "text.parse_math": False,  # a name may hold dollar signs
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DRAWING = Lock()
"""matplotlib's settings belong to the process, so one thread draws; others keep their cores."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour, each (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]
    style: Literal["dots", "steps", "line"] = "dots"


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over two axes, each linear from zero or logarithmic."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Named values from zero on, drawn from top to bottom; `unit` stands after each number."""

    title: str
    bars: tuple[tuple[str, float], ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Heat:
    """Numbers by row and column, the least the best; each has a text, None has neither."""

    title: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[tuple[float, str] | None, ...], ...]


AnyChart = Chart | Bars | Heat


def can_draw() -> bool:
    """Say whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@lru_cache(maxsize=64)
def draw(chart: AnyChart, form: Literal["svg", "png"] = "svg") -> bytes:
    """Return the chart as a file; equal charts give equal bytes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with _DRAWING, rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have further fonts
        figure = Figure(figsize=(WIDTH, _height(chart)), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(_plain(chart.title), loc="left", fontweight="bold")
        if isinstance(chart, Bars):
            _draw_bars(axes, chart)
        elif isinstance(chart, Heat):
            _draw_heat(axes, chart)
        else:
            _draw_series(axes, chart)
        metadata: dict[str, str | None] = {"Title": _plain(chart.title)}
        if form == "svg":
            metadata |= dict.fromkeys(("Date", "Creator"))  # these differ from run to run
        figure.savefig(file, format=form, dpi=120, transparent=True, metadata=metadata)
    return file.getvalue()


def _height(chart: AnyChart) -> float:
    if isinstance(chart, Bars):
        return FRAME + BAR * max(len(chart.bars), 1)
    return HEIGHT if isinstance(chart, Chart) else 2 * FRAME + CELL * max(len(chart.rows), 3)


def _draw_heat(axes: Axes, chart: Heat) -> None:
    from matplotlib.patches import Rectangle

    for y, row in enumerate(chart.cells):
        for x, cell in enumerate(row):
            if cell is not None:
                value, text = cell
                times = max(1.0, min(WORST, value))  # in this order NaN is the worst
                colour = _between(BEST, PALE, log2(times) / log2(WORST))
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, linewidth=0))
                axes.text(x, y, _plain(text), ha="center", va="center", fontsize=7, color=INK)
    axes.set(xlabel=_plain(chart.x), ylabel=_plain(chart.y))
    axes.set_xlim(-0.5, len(chart.columns) - 0.5)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(chart.columns)), [_plain(one) for one in chart.columns])
    axes.set_yticks(range(len(chart.rows)), [_plain(one) for one in chart.rows])


def _between(first: Colour, last: Colour, part: float) -> Colour:
    red, green, blue = (a + (b - a) * part for a, b in zip(first, last, strict=True))
    return red, green, blue


def _draw_bars(axes: Axes, chart: Bars) -> None:
    values = [value if 0.0 <= value <= MOST else 0.0 for _, value in chart.bars]
    drawn = axes.barh(range(len(values)), values, color=COLOURS[0])
    axes.bar_label(drawn, [f"{value:.3g}{_plain(chart.unit)}" for value in values], padding=4)
    axes.set_yticks(range(len(values)), [_plain(name) for name, _ in chart.bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1 * max([*values, LEAST]))
    axes.xaxis.set_visible(False)
    axes.tick_params(left=False)
    axes.spines["bottom"].set_visible(False)


def _draw_series(axes: Axes, chart: Chart) -> None:
    looks = cycle(product(MARKERS, COLOURS))
    empty = True
    axes.set(xlabel=_plain(chart.x), ylabel=_plain(chart.y))
    for series, (marker, colour) in zip(chart.series, looks, strict=False):
        points = [point for point in series.points if _has_place(chart, *point)]
        xs, ys = zip(*points, strict=True) if points else ((), ())
        label, empty = _plain(series.name), empty and not points
        if series.style == "steps":
            axes.step(xs, ys, where="post", color=colour, label=label)
        elif series.style == "line":
            axes.plot(xs, ys, color=GREY, linewidth=1, label=label)
        else:
            axes.scatter(xs, ys, s=18, alpha=0.7, color=colour, marker=marker, label=label)
    _scale(axes, "x", chart.log_x and not empty)  # nothing has no logarithm
    _scale(axes, "y", chart.log_y and not empty)
    axes.grid(alpha=0.3)
    if len(chart.series) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _has_place(chart: Chart, x: float, y: float) -> bool:
    return all(
        (LEAST if log else 0.0) <= value <= MOST
        for value, log in ((x, chart.log_x), (y, chart.log_y))
    )


def _scale(axes: Axes, name: Literal["x", "y"], log: bool) -> None:
    """Set the scale of an axis, and its labels without mathematical markup."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if name == "x" else axes.yaxis
    axes.set(**{f"{name}scale": "log" if log else "linear"})
    low, high = axis.get_view_interval()
    if not log:
        axes.set(**{f"{name}lim": (0.0, None)})
    elif high < 100 * low:  # powers of ten would label one or two places
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axis.set_minor_formatter(NullFormatter())


def _plain(text: str) -> str:
    """Return a text without what XML or a font cannot hold, and not too long."""
    shown = printable(text[: LONGEST + 1])
    return shown if len(shown) <= LONGEST else f"{shown[:-2]}…"
