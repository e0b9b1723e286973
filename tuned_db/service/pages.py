"""Routes for people: devices, their winners, failures and histories, as pages without any script.

`tuned_db.service.beyond` has pages beyond one device, `tuned_db.service.api` the routes for
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import HTMLResponse

from tuned_db.database.models import MeasurementRow
from tuned_db.service.asked import (
    CHOICES,
    After,
    DeviceKind,
    Key,
    Sort,
    Text,
    Wanted,
    Word,
    to_query,
)
from tuned_db.service.drawings import CHARTED
from tuned_db.storage.store import Store
from tuned_db.views import browse
from tuned_db.views.analysis import ENOUGH, Effect, effects, grid, rate_of
from tuned_db.views.charts import REMEDY, can_draw
from tuned_db.views.failures import list_failures, shown
from tuned_db.views.html import render, style
from tuned_db.views.plots import variants_of
from tuned_db.views.titles import title_of

PAGE = 50
Charts = list[tuple[str, str]]
"""Address of each chart of a page, and what it shows."""


def router(store: Store) -> APIRouter:
    """Return the pages for the records in `store`; they are no part of the API's description."""
    pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    pages.get("/")(_devices(store))
    pages.get("/devices/{key}")(_device(store))
    pages.get("/devices/{key}/failures")(_failures(store))
    pages.get("/tunings/{key}")(_tuning(store))
    pages.get("/style.css")(_style)
    return pages


def _style() -> Response:
    return Response(style(), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def _devices(store: Store) -> Callable[..., Any]:
    def devices(text: Text = "", kind: DeviceKind = "", after: After = 0) -> str:
        with store.database.reading() as connection:
            page = browse.list_devices(connection, after, PAGE, text, kind)
        query = partial(to_query, browse.Filter(text=text), kind=kind)
        return render("devices", title="Devices", page=page, text=text, kind=kind, query=query)

    return devices


def _device(store: Store) -> Callable[..., Any]:
    def device(key: Key, wanted: Wanted, sort: Sort = "", after: After = 0) -> str:
        here = replace(wanted, device=key)
        with store.database.reading() as connection:
            summary = browse.find_device(connection, key)
            page = browse.list_winners(connection, here, after, PAGE, sort)
            count, dtypes = browse.count_by_dtype(connection, here)
        if summary is None:
            raise HTTPException(404, f"there is no device {key}")
        charts = [
            (f"/devices/{key}/roofline.svg?{to_query(replace(wanted, dtype=dtype))}",
             f"Chart: the winners of {dtype} below under their roof")
            for dtype in dtypes
        ]  # fmt: skip
        return render(
            "device",
            title=summary.device.name,
            summary=summary,
            **charted_with(charts),
            title_of=title_of,
            rows=[(winner, rate_of(winner.record)) for winner in page.items],
            count=count,
            wanted=wanted,
            choices=CHOICES,
            sort=sort,
            query=partial(to_query, wanted),
            more=page.next,
        )

    return device


def _failures(store: Store) -> Callable[..., Any]:
    def failures(key: Key) -> str:
        with store.database.reading() as connection:
            summary = browse.find_device(connection, key)
            found = list_failures(connection, device=key)
        if summary is None:
            raise HTTPException(404, f"there is no device {key}")
        return render(
            "failures", title=f"Failures on {summary.device.name}", summary=summary, failures=found
        )

    return failures


def _tuning(store: Store) -> Callable[..., Any]:
    def tuning(key: Key, family: Word = "", x: Word = "", y: Word = "", after: After = 0) -> str:
        with store.database.reading() as connection:
            winner = browse.find_winner(connection, key)
            page = browse.list_trials(connection, key, after, PAGE)
            trials = browse.list_trials(connection, key, 0, CHARTED).items
            failures = list_failures(connection, tuning=key)
        if winner is None:
            raise HTTPException(404, f"there is no winner {key}")
        found = effects([variants_of(trials)])
        charts = [(f"/tunings/{key}/progress.svg", "Chart: the best time over the trials below")]
        if found:
            shows = "Chart: what explains the differences of times"
            charts.append((f"/tunings/{key}/parameters.svg", shows))
        heat = _heat_of(trials, found, family, x, y)
        if heat["heat"]:
            charts.append((f"/tunings/{key}/heat.svg?{heat['heat']}", "Chart: two parameters"))
        return render(
            "tuning",
            title=title_of(winner.record.problem),
            winner=winner,
            rate=rate_of(winner.record),
            **charted_with(charts),
            **heat,
            most=CHARTED,
            enough=ENOUGH,
            page=page,
            shown=shown,
            failures=failures,
            query=to_query,
            best=_key_of_best(trials),
        )

    return tuning


def _heat_of(
    trials: Sequence[MeasurementRow], found: Sequence[Effect], family: str, x: str, y: str
) -> dict[str, Any]:
    """Return which heat map a page has, and what can be chosen: families and parameters.

    Args:
        trials: of one problem.
        found: what each parameter does, the most important first.
        family: that was chosen; "": the first.
        x: the parameter that was chosen for columns; "": the most important.
        y: that for rows; "": the next.
    """
    families = list(dict.fromkeys(effect.family for effect in found))
    family = family if family in families else next(iter(families), "")
    names = [effect.parameter for effect in found if effect.family == family]
    x = x if x in names else next(iter(names), "")
    y = y if y in names and y != x else next((name for name in names if name != x), "")
    drawn = grid(variants_of(trials), family, x, y)
    heat = to_query(browse.Filter(family=family), x=x, y=y) if drawn else ""
    return {"heat": heat, "families": families, "names": names, "family": family, "x": x, "y": y}


def _key_of_best(trials: Sequence[MeasurementRow]) -> int | None:
    timed = [trial for trial in trials if trial.ms is not None]
    return min(timed, key=lambda trial: trial.ms or 0.0).id if timed else None


def charted_with(charts: Charts) -> dict[str, Any]:
    """Return a page's charts; without matplotlib none, and what to install."""
    return {"charts": charts, "remedy": ""} if can_draw() else {"charts": [], "remedy": REMEDY}
