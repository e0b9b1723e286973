"""Routes for programs: devices, winners, histories as JSON, and records as export files.

`tuned_db.service.pages` has the pages for browsers, `tuned_db.service.guard` the limits.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, create_model

from tuned_db.database.models import MEASURED
from tuned_db.records.exchange import ImportFileError, read_records, write_records
from tuned_db.service import contributions, foreign, uploads
from tuned_db.service.access import origin_of, require
from tuned_db.service.asked import After, DeviceKind, Key, Limit, MaybeKey, Sort, Text, Wanted, Word
from tuned_db.service.uploads import TOKEN
from tuned_db.storage.batches import NoBatchError, list_batches
from tuned_db.storage.store import Store
from tuned_db.trust.tokens import left_today
from tuned_db.trust.withdrawn import undo
from tuned_db.views import browse
from tuned_db.views.analysis import rate_of
from tuned_db.views.failures import shown

JSONL = "application/jsonl"


class Detail(BaseModel):
    """Why a request was refused."""

    detail: str


class Device(BaseModel):
    """A device with its driver.

    Peaks: fp32 GFLOP/s, GB/s of a copy, and GFLOP/s of other dtypes by name, as measured there.
    """

    id: int
    name: str
    vendor: str
    kind: str
    architecture: str
    runtime: str
    runtime_version: str
    driver_version: str
    compute_units: int
    peak_gflops: float | None
    peak_gbytes: float | None
    peaks: dict[str, float] | None
    tunings: int
    winners: int
    trials: int


class Devices(BaseModel):
    """A page of devices; `next` is the next page's `after`, null on the last."""

    items: list[Device]
    next: int | None


class Winner(BaseModel):
    """The fastest variant known for a problem on a device; `id` names its history."""

    id: int
    device_id: int
    problem: str
    family: str
    config: dict[str, Any]
    ms: float
    gflops: float | None
    of_peak: float | None
    trials: int
    cache: str
    seed: int | None
    conditions: dict[str, float] | None
    digest: str | None
    generator: str
    created: str
    verified: bool


class Winners(BaseModel):
    """A page of winners; `next` is the next page's `after`, null on the last."""

    items: list[Winner]
    next: int | None


_WITHHELD = {"samples", "origin"}
"""Columns that are not shown to everybody: times one by one are long, an origin names who pushed.
Reasons are shown without folders (`tuned_db.views.failures.shown`)."""
_TRIAL: dict[str, Any] = {
    "id": (int, ...),
    "verified": (bool, ...),
    "arrived": (str | None, ...),
} | {name: (kind, ...) for name, kind in MEASURED.items() if name not in _WITHHELD}
TRIAL = create_model(
    "Trial",
    __doc__="One measurement; `ms` is null for a failure, and `invalidity` says which kind it is.",
    __config__=ConfigDict(from_attributes=True),
    **_TRIAL,
)
_TRIALS: dict[str, Any] = {"items": (list[TRIAL], ...), "next": (int | None, ...)}  # type: ignore[valid-type]
TRIALS = create_model(
    "Trials",
    __doc__="A page of measurements; `next` is the next page's `after`, null on the last.",
    **_TRIALS,
)


class Merged(BaseModel):
    """The result of an upload: records that became winners, and those that were not faster."""

    improved: int
    kept: int


class Undone(BaseModel):
    """How many measurements were dropped."""

    dropped: int


REFUSED: dict[int | str, dict[str, Any]] = {
    429: {"model": Detail, "description": "Too many requests; Retry-After says when to come back."},
    503: {"model": Detail, "description": "The database cannot be used at the moment."},
}
TOKEN_REFUSED: dict[int | str, dict[str, Any]] = {
    401: {"model": Detail, "description": "No token, or one that is not known."},
    403: {"model": Detail, "description": "The token's role, or its quota, does not allow it."},
}
UPLOAD_REFUSED: dict[int | str, dict[str, Any]] = TOKEN_REFUSED | {
    400: {"model": Detail, "description": "A line is bad; nothing was taken in."},
    408: {"model": Detail, "description": "The body took too long."},
    413: {"model": Detail, "description": "The body is too large."},
}
MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Detail, "description": "Not known."}}
RECORDS: dict[str, Any] = {JSONL: {"schema": {"type": "string"}}}


def router(store: Store) -> APIRouter:
    """Return the routes under `/api/v1` for the records in `store`."""
    api = APIRouter(prefix="/api/v1", responses=REFUSED)
    api.get("/devices", summary="Devices, by id")(_devices(store))
    api.get(
        "/winners",
        summary="Winners, by id or as sorted; of one problem over all devices, by `problem`",
    )(_winners(store))
    api.get(
        "/winners/{key}/trials",
        summary="What was measured for a problem on a device",
        response_model=TRIALS,
        responses=MISSING,
    )(_trials(store))
    api.get(
        "/records",
        summary="Winners as an export file; Link names the next page, Total-Records counts all",
        response_class=Response,
        responses={200: {"content": RECORDS, "description": "JSON lines"}},
    )(_export(store))
    api.get(
        "/batches",
        summary="What arrived at once, the latest first; for maintainers",
        responses=TOKEN_REFUSED,
        openapi_extra=TOKEN,
    )(_batches(store))
    api.delete(
        "/batches/{key}",
        summary="Take a batch back; for maintainers",
        responses=TOKEN_REFUSED | MISSING,
        openapi_extra=TOKEN,
    )(_undo(store))
    uploads.add(
        api, "/records", _taking(store), Merged, JSONL, "string",
        summary="Take in an export file, none of it if one line is bad",
        responses=UPLOAD_REFUSED,
    )  # fmt: skip
    contributions.add(api, store, UPLOAD_REFUSED)
    foreign.add(api, store, UPLOAD_REFUSED)
    return api


def _devices(store: Store) -> Callable[..., Any]:
    def devices(
        text: Text = "", kind: DeviceKind = "", after: After = 0, limit: Limit = 100
    ) -> Devices:
        with store.database.reading() as connection:
            page = browse.list_devices(connection, after, limit, text, kind)
        items = [Device(**_flat(summary)) for summary in page.items]
        return Devices(items=items, next=page.next)

    return devices


def _flat(summary: browse.DeviceSummary) -> dict[str, Any]:
    values = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    info = values.pop("device")
    return values | {name: getattr(info, name) for name in info.__dataclass_fields__}


def _winners(store: Store) -> Callable[..., Any]:
    def winners(
        wanted: Wanted,
        device: MaybeKey = None,
        sort: Sort = "",
        after: After = 0,
        limit: Limit = 100,
    ) -> Winners:
        with store.database.reading() as connection:
            page = browse.list_winners(
                connection, replace(wanted, device=device), after, limit, sort
            )
        return Winners(items=[_winner(one) for one in page.items], next=page.next)

    return winners


def _winner(winner: browse.Winner) -> Winner:
    record, rate = winner.record, rate_of(winner.record)
    return Winner(
        id=winner.id,
        device_id=winner.device_id,
        problem=record.problem,
        family=record.family,
        config=record.parameters,
        ms=record.ms,
        gflops=rate.gflops if rate else None,
        of_peak=rate.of_peak if rate else None,
        trials=record.trials,
        cache=record.cache,
        seed=record.seed,
        conditions=record.conditions,
        digest=record.digest,
        generator=record.generator,
        created=record.created,
        verified=record.verified,
    )


def _trials(store: Store) -> Callable[..., Any]:
    def trials(key: Key, after: After = 0, limit: Limit = 100) -> dict[str, Any]:
        with store.database.reading() as connection:
            if browse.find_winner(connection, key) is None:
                raise HTTPException(404, f"there is no winner {key}")
            page = browse.list_trials(connection, key, after, limit)
        for one in page.items:
            one.reason = shown(one.reason)
        return {"items": [TRIAL.model_validate(one) for one in page.items], "next": page.next}

    return trials


def _export(store: Store) -> Callable[..., Any]:
    def export(
        request: Request,
        architecture: Text = "",
        kind: Word = "",
        after: After = 0,
        limit: Limit = 500,
    ) -> Response:
        wanted = browse.Filter(architecture=architecture, kind=kind)
        with store.database.reading() as connection:
            page = browse.list_winners(connection, wanted, after, limit)
            total = browse.count_winners(connection, wanted)
        stream = io.BytesIO()
        write_records((one.record for one in page.items), stream)
        headers = {"Total-Records": str(total)}
        if page.next is not None:
            following = request.url.include_query_params(after=page.next)
            headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return Response(stream.getvalue(), media_type=JSONL, headers=headers)

    return export


def _taking(store: Store) -> Callable[[Request, bytes], Merged]:
    def take(request: Request, body: bytes) -> Merged:
        token = require(store, request, "contributor")
        try:
            records = read_records("the upload", io.BytesIO(body))
        except ImportFileError as error:
            raise HTTPException(400, str(error)) from error
        left = left_today(store.database, token)
        new = len(records) if len(records) <= left else store.count_new(records)
        uploads.require_room(token, left, new, "that are new")
        origin = origin_of(store, request, body, token.name)
        merge = store.merge(records, origin, uploads.source_of(request, token))
        return Merged(improved=merge.improved, kept=merge.kept)

    return take


def _batches(store: Store) -> Callable[..., Any]:
    def batches(request: Request, limit: Limit = 100) -> list[dict[str, Any]]:
        require(store, request, "maintainer")
        return [asdict(one) for one in list_batches(store.database, limit)]

    return batches


def _undo(store: Store) -> Callable[..., Any]:
    def undo_batch(request: Request, key: Key) -> Undone:
        require(store, request, "maintainer")
        try:
            return Undone(dropped=undo(store, key))
        except NoBatchError as error:
            raise HTTPException(404, str(error)) from error

    return undo_batch
