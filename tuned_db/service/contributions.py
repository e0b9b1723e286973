"""The route that takes check files: what `oclgen check` wrote elsewhere.

Its measurements, failures too, become claims of a batch that a maintainer can take back.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel

from tuned_db.files.measured import take
from tuned_db.files.selftest import read_selftest
from tuned_db.records.exchange import ImportFileError
from tuned_db.service import uploads
from tuned_db.service.access import origin_of, require
from tuned_db.storage.store import Store
from tuned_db.trust.tokens import left_today


class Taken(BaseModel):
    """The result of a check file: measurements that became winners, and the others."""

    improved: int
    kept: int


def add(api: APIRouter, store: Store, refused: dict[int | str, dict[str, Any]]) -> None:
    """Add the route to the API of `store`.

    Args:
        api: what is added to.
        store: what is written to.
        refused: the answers of uploads that are not taken, by code.
    """

    def keep(request: Request, body: bytes) -> Taken:
        token = require(store, request, "contributor")
        try:
            check = read_selftest("the upload", body)
        except ImportFileError as error:
            raise HTTPException(400, str(error)) from error
        left = left_today(store.database, token)
        uploads.require_room(token, left, len(check.measured.rows), "measurements")
        origin = origin_of(store, request, body, token.name)
        merge = take(store, [check.measured], origin, uploads.source_of(request, token))
        return Taken(improved=merge.improved, kept=merge.kept)

    uploads.add(
        api, "/checks", keep, Taken, "application/json", "object",
        summary="Take in a file of `oclgen check`, none of it if a field is wrong",
        responses=refused,
    )  # fmt: skip
