"""Pages beyond one device: a problem everywhere, two devices and two variants side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse

from tuned_db.service.asked import (
    CHOICES,
    After,
    AnyKey,
    MaybeKey,
    Sort,
    Text,
    Wanted,
    to_query,
)
from tuned_db.service.pages import PAGE, charted_with
from tuned_db.storage.store import Store
from tuned_db.views import across, browse
from tuned_db.views.analysis import rate_of
from tuned_db.views.failures import shown
from tuned_db.views.html import render
from tuned_db.views.titles import title_of

COMPARED = 2000
"""Most problems of the left device that are compared: the first by their keys."""
OFFERED = 500
"""Most devices that a list to choose from has."""
OF_KEYS = ("op", "dtype", "direction")
"""Parts of a filter that a problem's key says."""


def router(store: Store) -> APIRouter:
    """Return the pages for the records in `store`; they are no part of the API's description."""
    pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
    pages.get("/problems")(_problems(store))
    pages.get("/problem")(_problem(store))
    pages.get("/compare")(_compare(store))
    pages.get("/diff")(_diff(store))
    return pages


def _problems(store: Store) -> Callable[..., Any]:
    def problems(wanted: Wanted, begin: Text = "") -> str:
        asked = _of_keys(wanted)
        with store.database.reading() as connection:
            found = across.list_problems(connection, asked, begin, PAGE)
        return render(
            "problems",
            title="Problems",
            found=found,
            title_of=title_of,
            wanted=asked,
            choices=_choices(),
            query=partial(to_query, asked),
            more=found[-1].problem if len(found) == PAGE else "",
        )

    return problems


def _problem(store: Store) -> Callable[..., Any]:
    def problem(key: Text, sort: Sort = "ms", after: After = 0) -> str:
        with store.database.reading() as connection:
            page = browse.list_winners(
                connection, browse.Filter(problem=key), after, PAGE, sort or "ms"
            )
        if not page.items and not after:
            raise HTTPException(404, "no device has a winner for this problem")
        return render(
            "problem",
            title=title_of(key),
            key=key,
            rows=[(winner, rate_of(winner.record)) for winner in page.items],
            enough=across.ENOUGH,
            sort=sort,
            query=partial(to_query, browse.Filter(), key=key),
            more=page.next,
        )

    return problem


def _compare(store: Store) -> Callable[..., Any]:
    def compare(
        wanted: Wanted, left: MaybeKey = None, right: MaybeKey = None, after: After = 0
    ) -> str:
        asked = _of_keys(wanted)
        with store.database.reading() as connection:
            offered = across.list_names(connection, OFFERED)
            sides = [key and browse.find_device(connection, key) for key in (left, right)]
            found: list[across.Pair] = []
            is_part = False
            if left and right:
                found, is_part = across.pairs(connection, left, right, asked, COMPARED)
        for key, side in zip((left, right), sides, strict=True):
            if key and side is None:
                raise HTTPException(404, f"there is no device {key}")
        sure = [pair for pair in found if pair.is_sure]
        query = partial(to_query, asked, left=left, right=right)
        chart = (f"/compare.svg?{query()}", "Chart: how many times faster the right device is")
        return render(
            "compare",
            title="Two devices side by side",
            offered=offered,
            sides=sides,
            found=found[after : after + PAGE],
            count=len(found),
            most=COMPARED if is_part else 0,
            few=len(found) - len(sure),
            enough=across.ENOUGH,
            mean=across.mean_speedup(sure),
            **charted_with([chart] if found else []),
            title_of=title_of,
            wanted=asked,
            choices=_choices(),
            query=query,
            more=after + PAGE if len(found) > after + PAGE else 0,
        )

    return compare


def _diff(store: Store) -> Callable[..., Any]:
    def diff(left: AnyKey, right: AnyKey) -> str:
        with store.database.reading() as connection:
            sides = [across.find_trial(connection, key) for key in (left, right)]
        one, other = sides
        if one is None or other is None:
            raise HTTPException(404, f"there is no measurement {right if one else left}")
        return render(
            "diff",
            title="Two variants side by side",
            sides=(one, other),
            parameters=across.differences(one.parameters, other.parameters),
            title_of=title_of,
            shown=shown,
        )

    return diff


def _of_keys(wanted: browse.Filter) -> browse.Filter:
    """Return the parts of a filter that a problem's key says."""
    return browse.Filter(
        op=wanted.op, dtype=wanted.dtype, direction=wanted.direction, text=wanted.text
    )


def _choices() -> dict[str, tuple[str, ...]]:
    return {name: CHOICES[name] for name in OF_KEYS}
