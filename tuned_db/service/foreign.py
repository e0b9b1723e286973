"""Routes for users of other tuners: they send measurements, and ask for those of near sizes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel

from tuned_db.records.exchange import ImportFileError
from tuned_db.service import uploads
from tuned_db.service.access import require
from tuned_db.service.asked import Text
from tuned_db.storage.store import Store
from tuned_db.trust.tokens import left_today
from tuned_db.tuners.foreign import MOST_ANSWERS, SOURCE, Foreign, keep, nearest

SIZES = r"^[^=,\x00-\x1f\x7f]{1,100}=\d{1,18}(,[^=,\x00-\x1f\x7f]{1,100}=\d{1,18}){0,31}$"


class Kept(BaseModel):
    """How many measurements were new, and how many there were."""

    new: int
    all: int


class Nearby(BaseModel):
    """The best variant of a problem of a kernel, and how far its sizes are."""

    tuner: str
    kernel: str
    source: str
    device: str
    sizes: dict[str, int]
    words: list[str]
    parameters: dict[str, Any]
    samples: list[float]
    invalidity: str
    distance: float


def add(api: APIRouter, store: Store, refused: dict[int | str, dict[str, Any]]) -> None:
    """Add the routes to the API of `store`.

    Args:
        api: what is added to.
        store: what is read and written.
        refused: the answers of uploads that are not taken, by code.
    """

    def take(request: Request, body: bytes) -> Kept:
        token = require(store, request, "contributor")
        try:
            found = [Foreign.from_values(one) for one in json.loads(body)]
        except (ImportFileError, ValueError, TypeError, RecursionError) as error:
            raise HTTPException(400, f"the upload: {error}"[:1000]) from error
        left = left_today(store.database, token)
        uploads.require_room(token, left, len(found), "measurements")
        source = uploads.source_of(request, token)
        return Kept(new=keep(store, found, f"push by {token.name}", source), all=len(found))

    def near(
        kernel: Annotated[str, Query(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")],
        sizes: Annotated[str, Query(pattern=SIZES, max_length=4000)],
        word: Annotated[list[Text], Query(max_length=32)] = [],  # noqa: B006 (FastAPI copies it)
        device: Text = "",
        source: Annotated[str, Query(pattern=SOURCE)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_ANSWERS)] = 5,
    ) -> list[Nearby]:
        asked = {name: int(size) for name, _, size in (s.rpartition("=") for s in sizes.split(","))}
        found = nearest(store, kernel, asked, word, device, source, limit)
        return [Nearby(**one.foreign.values(), distance=one.distance) for one in found]

    uploads.add(
        api, "/foreign", take, Kept, "application/json", "array",
        summary="Take in measurements of another tuner's kernels, none of them if one is wrong",
        responses=refused,
    )  # fmt: skip
    api.get("/foreign/nearest", summary="The best parameters of a kernel for the nearest sizes")(
        near
    )
