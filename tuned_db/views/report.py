"""A report on what was tuned: one HTML file that contains its charts and needs nothing else.

`browse` supplies its content. The caller names the problems that should have been tuned, because
the search knows them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection

from oclgen.limits import DeviceInfo
from tuned_db.storage.store import Store
from tuned_db.views import browse
from tuned_db.views.analysis import Effect, Rate, effects, rate_of
from tuned_db.views.charts import REMEDY, AnyChart, can_draw, draw
from tuned_db.views.html import render, style
from tuned_db.views.plots import dtypes_of, importance_chart, roofline_chart, variants_of
from tuned_db.views.titles import title_of

MOST_TRIALS = 1000
"""Trials of a problem that are looked at for what parameters do."""
PAGE = 500

Wanted = Callable[[DeviceInfo], list[str]]
"""The keys of the problems that should be tuned on a device."""


@dataclass(frozen=True)
class Section:
    """What the report says of one device: winners far from the bound first, effects, gaps."""

    summary: browse.DeviceSummary
    rows: list[tuple[browse.Winner, Rate | None]]
    effects: list[Effect]
    untuned: list[str]

    @property
    def charts(self) -> dict[str, AnyChart]:
        """The charts of the section by name: a roofline per dtype, and what parameters do."""
        records = [winner.record for winner, _ in self.rows]
        found: dict[str, AnyChart] = {
            f"roofline_{dtype}": roofline_chart(records, dtype) for dtype in dtypes_of(records)
        }
        return found | ({"parameters": importance_chart(self.effects)} if self.effects else {})


def sections(store: Store, wanted: Wanted, text: str = "") -> list[Section]:
    """Return a section per device that has winners and `text` in its name or driver.

    Args:
        store: whose winners are shown.
        wanted: returns the keys of the problems that should be tuned on a device.
        text: a part of a device's name or driver, in any case; "": all devices.
    """
    with store.database.reading() as connection:
        return [
            _section(connection, summary, wanted)
            for summary in _devices(connection)
            if summary.winners and text.lower() in _texts(summary.device)
        ]


def to_html(found: list[Section]) -> str:
    """Return the report as one HTML page; it names no file, host or person.

    Without matplotlib it has its tables, and says what to install for the charts.
    """
    drawn = can_draw()
    pairs = [(section, _inside(section.charts.values()) if drawn else []) for section in found]
    remedy = "" if drawn else REMEDY
    return render("report", style=style(), sections=pairs, remedy=remedy, title_of=title_of)


def _inside(charts: Iterable[AnyChart]) -> list[tuple[str, str]]:
    """Return charts as addresses that hold the drawing itself, with their titles."""
    texts = [(b64encode(draw(chart)).decode(), chart.title) for chart in charts]
    return [(f"data:image/svg+xml;base64,{text}", f"Chart: {title}") for text, title in texts]


def _texts(device: DeviceInfo) -> str:
    return f"{device.name} {device.runtime} {device.driver_version}".lower()


def _devices(connection: Connection) -> Iterator[browse.DeviceSummary]:
    after: int | None = 0
    while after is not None:
        page = browse.list_devices(connection, after, PAGE)
        yield from page.items
        after = page.next


def _winners(connection: Connection, device: int) -> Iterator[browse.Winner]:
    after: int | None = 0
    while after is not None:
        page = browse.list_winners(connection, browse.Filter(device), after, PAGE)
        yield from page.items
        after = page.next


def _section(connection: Connection, summary: browse.DeviceSummary, wanted: Wanted) -> Section:
    winners = list(_winners(connection, summary.id))
    rated = [(winner, rate_of(winner.record)) for winner in winners]
    rated.sort(key=lambda pair: _nearness(pair[1]))
    trials = (browse.list_trials(connection, one.id, limit=MOST_TRIALS).items for one in winners)
    tuned = {one.record.problem for one in winners if one.record.cache == "warm"}
    untuned = [key for key in wanted(summary.device) if key not in tuned]
    return Section(summary, rated, effects(map(variants_of, trials)), untuned)


def _nearness(rate: Rate | None) -> float:
    if rate is None:
        return float("inf")
    return rate.gflops if rate.of_bound is None else rate.of_bound
