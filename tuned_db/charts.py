"""Charts as plain values, and their drawing as SVG without any script.

`tuned_db.analysis` and the caller decide what is drawn; `tuned_db.png` draws the same
values as PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Literal

WIDTH, HEIGHT = 780, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 30, 44
LEGEND = 160
"""Room on the right for the names of several series."""
BAR = 22
"""Height of one bar with its gap, in pixels."""
LEAST = 1e-12
"""On a logarithmic axis, what is less lies at the axis' end."""
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#4b5563", "#db2777")


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour; `notes` are shown where a reader points at one."""

    name: str
    points: tuple[tuple[float, float], ...]
    notes: tuple[str, ...] = ()
    style: Literal["dots", "steps"] = "dots"


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
    """Named values from zero on, drawn from top to bottom; `unit` stands behind each number."""

    title: str
    bars: tuple[tuple[str, float], ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values and where it lies on the paper; `ticks` are values with their labels."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high, place = self.low, self.high, value
        if self.log:
            low, high, place = log10(low), log10(high), log10(max(value, self.low))
        return self.start + (self.end - self.start) * (place - low) / (high - low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Five or so round values: powers of ten, or multiples of 1, 2 or 5 times one."""
        if self.log:
            first, last = round(log10(self.low)), round(log10(self.high))
            every = max(1, ceil((last - first) / 6))
            return [(10.0**e, f"1e{e}") for e in range(first, last + 1, every)]
        step = _round_step(self.high / 5)
        return [(n * step, f"{n * step:.4g}") for n in range(floor(self.high / step) + 1)]


def axis(values: Sequence[float], log: bool, start: float, end: float) -> Axis:
    """Return an axis on which all of `values` have a place."""
    if not log:
        return Axis(0.0, max([*values, 1e-9]) * 1.05, False, start, end)
    positive = [value for value in values if value > LEAST] or [1.0]
    low, high = floor(log10(min(positive))), ceil(log10(max(positive)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), True, start, end)


def _round_step(rough: float) -> float:
    power = 10.0 ** floor(log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def svg(chart: Chart | Bars) -> str:
    """Return the chart as an `<svg>` element; every text in it is escaped."""
    parts = list(_bars(chart) if isinstance(chart, Bars) else _axes_and_series(chart))
    height = TOP + BAR * len(chart.bars) + 8 if isinstance(chart, Bars) else HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" '
        f'fill="#1f2937"><title>{escape(chart.title)}</title>'
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(chart.title)}</text>'
        f"{chr(10).join(parts)}</svg>"
    )


def _axes_and_series(chart: Chart) -> Iterator[str]:
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    right = WIDTH - (LEGEND if len(chart.series) > 1 else RIGHT)
    across = axis(xs, chart.log_x, LEFT, right)
    up = axis(ys, chart.log_y, HEIGHT - BOTTOM, TOP)
    for value, label in across.ticks:
        yield _line(across.at(value), up.start, across.at(value), up.end)
        yield _text(across.at(value), HEIGHT - BOTTOM + 16, label, "middle")
    for value, label in up.ticks:
        yield _line(across.start, up.at(value), across.end, up.at(value))
        yield _text(LEFT - 6, up.at(value) + 4, label, "end")
    yield _text((LEFT + right) / 2, HEIGHT - 8, chart.x, "middle")
    yield (
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(chart.y)}</text>'
    )
    for number, series in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        yield from _points(series, across, up, colour)
        if len(chart.series) > 1:
            place = TOP + 14 * number + 8
            yield f'<circle cx="{right + 12}" cy="{place - 4}" r="4" fill="{colour}"/>'
            yield _text(right + 20, place, series.name, "start")


def _points(series: Series, across: Axis, up: Axis, colour: str) -> Iterator[str]:
    places = [(across.at(x), up.at(y)) for x, y in series.points]
    if series.style == "steps" and places:
        corners = [places[0]]
        for (_, before), (x, y) in pairwise(places):
            corners += [(x, before), (x, y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for number, (x, y) in enumerate(places):
        note = series.notes[number] if number < len(series.notes) else ""
        hint = f"<title>{escape(note)}</title>" if note else ""
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.7">'
            f"{hint}</circle>"
        )


def _bars(chart: Bars) -> Iterator[str]:
    left = WIDTH // 3
    room = WIDTH - left - 90
    most = max([value for _, value in chart.bars] + [1e-9])
    for number, (name, value) in enumerate(chart.bars):
        top = TOP + BAR * number
        length = max(room * value / most, 1.0)
        yield _text(left - 6, top + 14, name, "end")
        yield (
            f'<rect x="{left}" y="{top + 2}" width="{length:.1f}" height="{BAR - 6}" '
            f'fill="{COLOURS[0]}"/>'
        )
        yield _text(left + length + 6, top + 14, f"{value:.3g}{chart.unit}", "start")


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e5e7eb"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
