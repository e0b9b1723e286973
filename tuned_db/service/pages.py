"""Routes for people: devices, their winners and histories as pages without any script.

What programs read is `tuned_db.service.api`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import HTMLResponse

from oclgen.families import FAMILIES
from tuned_db import browse
from tuned_db.analysis import rate_of
from tuned_db.charts import REMEDY, can_draw
from tuned_db.html import render, style
from tuned_db.service.api import After, Key, Text, Word
from tuned_db.service.drawings import CHARTED
from tuned_db.store import Store
from tuned_db.titles import title_of

PAGE = 50
Charts = list[tuple[str, str]]
"""Address of each chart of a page, and what it shows."""


def router(store: Store) -> APIRouter:
    """Return the pages for the records in `store`; they are no part of the API's description."""
    pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    pages.get("/")(_devices(store))
    pages.get("/devices/{key}")(_device(store))
    pages.get("/tunings/{key}")(_tuning(store))
    pages.get("/style.css")(_style)
    return pages


def _style() -> Response:
    return Response(style(), media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def _devices(store: Store) -> Callable[..., Any]:
    def devices(after: After = 0) -> str:
        with store.database.reading() as connection:
            page = browse.list_devices(connection, after, PAGE)
        return render("devices", title="Devices", page=page)

    return devices


def _device(store: Store) -> Callable[..., Any]:
    def device(
        key: Key, op: Word = "", family: Word = "", text: Text = "", after: After = 0
    ) -> str:
        wanted = browse.Filter(key, op, family, text)
        with store.database.reading() as connection:
            summary = browse.find_device(connection, key)
            page = browse.list_winners(connection, wanted, after, PAGE)
        if summary is None:
            raise HTTPException(404, f"there is no device {key}")
        query = {"op": op, "family": family, "text": text}
        chart = f"/devices/{key}/peak.svg?{urlencode(query)}"
        return render(
            "device",
            title=summary.device.name,
            summary=summary,
            **_charted([(chart, "Chart: how near the peak the winners below are")]),
            title_of=title_of,
            rows=[(winner, rate_of(winner.record)) for winner in page.items],
            op=op,
            family=family,
            text=text,
            families=list(FAMILIES),
            more=f"/devices/{key}?{urlencode(query | {'after': page.next})}" if page.next else "",
        )

    return device


def _tuning(store: Store) -> Callable[..., Any]:
    def tuning(key: Key, after: After = 0) -> str:
        with store.database.reading() as connection:
            winner = browse.find_winner(connection, key)
            page = browse.list_trials(connection, key, after, PAGE)
        if winner is None:
            raise HTTPException(404, f"there is no winner {key}")
        charts = [
            (f"/tunings/{key}/progress.svg", "Chart: the best time over the trials below"),
            (f"/tunings/{key}/parameters.svg", "Chart: what explains the differences of times"),
        ]
        return render(
            "tuning",
            title=title_of(winner.record.problem),
            winner=winner,
            rate=rate_of(winner.record),
            **_charted(charts),
            most=CHARTED,
            page=page,
        )

    return tuning


def _charted(charts: Charts) -> dict[str, Any]:
    """Return a page's charts; without matplotlib none, and what to install."""
    return {"charts": charts, "remedy": ""} if can_draw() else {"charts": [], "remedy": REMEDY}
