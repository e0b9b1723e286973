"""Routes for the charts of the pages: files that a browser caches and checks by their tag.

`tuned_db.views.plots` says what a chart shows, `tuned_db.views.charts` draws it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response

from tuned_db.database.models import MeasurementRow
from tuned_db.service.asked import AnyKey, Key, Wanted, Word
from tuned_db.storage.store import Store
from tuned_db.views import across, browse
from tuned_db.views.analysis import effects, grid
from tuned_db.views.charts import REMEDY, AnyChart, can_draw, draw
from tuned_db.views.plots import (
    heat_chart,
    importance_chart,
    progress_chart,
    roofline_chart,
    speedup_chart,
    variants_of,
)

CHARTED = 1000
"""Most winners or trials that a chart shows: more would be no clearer, and cost time."""
FRESH_S = 60
"""How long a browser shows a chart without asking again."""
CSP = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""matplotlib styles the parts of a drawing one by one; nothing else is allowed there."""


def router(store: Store) -> APIRouter:
    """Return the charts of the records in `store`, SVG; 404 without matplotlib."""
    drawings = APIRouter(include_in_schema=False, default_response_class=Response)
    drawings.get("/devices/{key}/roofline.svg")(_roofline(store))
    drawings.get("/compare.svg")(_speedup(store))
    drawings.get("/tunings/{key}/progress.svg")(_progress(store))
    drawings.get("/tunings/{key}/parameters.svg")(_parameters(store))
    drawings.get("/tunings/{key}/heat.svg")(_heat(store))
    return drawings


def _roofline(store: Store) -> Callable[..., Any]:
    def roofline(request: Request, key: Key, wanted: Wanted) -> Response:
        wanted = replace(wanted, device=key, dtype=wanted.dtype or "fp32")
        with store.database.reading() as connection:
            if browse.find_device(connection, key) is None:
                raise HTTPException(404, f"there is no device {key}")
            page = browse.list_winners(connection, wanted, 0, CHARTED)
        records = [winner.record for winner in page.items]
        return _answer(request, roofline_chart(records, wanted.dtype))

    return roofline


def _speedup(store: Store) -> Callable[..., Any]:
    def speedup(request: Request, left: AnyKey, right: AnyKey, wanted: Wanted) -> Response:
        with store.database.reading() as connection:
            found, _ = across.pairs(connection, left, right, wanted, CHARTED)
        return _answer(request, speedup_chart(found))

    return speedup


def _heat(store: Store) -> Callable[..., Any]:
    def heat(request: Request, key: Key, family: Word = "", x: Word = "", y: Word = "") -> Response:
        found = grid(variants_of(_trials(store, key)), family, x, y)
        if found is None:
            raise HTTPException(404, f"too few trials for {x} and {y} of {family}")
        return _answer(request, heat_chart(found))

    return heat


def _progress(store: Store) -> Callable[..., Any]:
    def progress(request: Request, key: Key) -> Response:
        return _answer(request, progress_chart(_trials(store, key)))

    return progress


def _parameters(store: Store) -> Callable[..., Any]:
    def parameters(request: Request, key: Key) -> Response:
        found = effects([variants_of(_trials(store, key))])
        return _answer(request, importance_chart(found))

    return parameters


def _trials(store: Store, key: int) -> list[MeasurementRow]:
    with store.database.reading() as connection:
        if browse.find_winner(connection, key) is None:
            raise HTTPException(404, f"there is no winner {key}")
        return browse.list_trials(connection, key, 0, CHARTED).items


def _answer(request: Request, chart: AnyChart) -> Response:
    """Return the chart as SVG, or 304 where the browser has it already: then nothing is drawn."""
    if not can_draw():
        raise HTTPException(404, REMEDY)
    tag = f'"{sha256(repr(chart).encode()).hexdigest()[:32]}"'
    headers = {
        "ETag": tag,
        "Cache-Control": f"max-age={FRESH_S}",
        "Content-Security-Policy": CSP,
    }
    known = request.headers.get("if-none-match", "")
    if tag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(draw(chart), media_type="image/svg+xml", headers=headers)
