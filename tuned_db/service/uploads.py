"""What routes for uploads share: they read whole bodies, count quotas, and know the sender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel

from tuned_db.storage.batches import Source
from tuned_db.trust.tokens import Token

AT_ONCE = 50
"""Uploads of a route that have a thread; most of these wait for a transaction, which writes what
all of them brought. Pages have threads of their own."""
TOKEN: dict[str, Any] = {"security": [{"token": []}]}
"""The API's description of a route that needs a token."""


def add(
    api: APIRouter,
    path: str,
    take: Callable[[Request, bytes], BaseModel],
    model: type[BaseModel],
    media: str,
    kind: str,
    **more: Any,
) -> None:
    """Add a route that takes uploads; a thread handles each.

    Args:
        api: what is added to.
        path: of the route.
        take: takes in a request's body and returns the answer.
        model: what it returns.
        media: the body's type, such as "application/json".
        kind: what a body is in JSON's schema, such as "array".
        more: what else `APIRouter.post` is given.
    """

    async def upload(request: Request) -> BaseModel:
        return await to_thread.run_sync(take, request, await request.body(), limiter=limiter)

    limiter = CapacityLimiter(AT_ONCE)
    content = {media: {"schema": {"type": kind}}}
    described = {"requestBody": {"required": True, "content": content}, **TOKEN}
    api.post(path, response_model=model, openapi_extra=described, **more)(upload)


def source_of(request: Request, token: Token) -> Source:
    """Return who sends an upload."""
    return Source(token.name, request.client.host if request.client else "")


def require_room(token: Token, left: float, count: int, what: str) -> None:
    """Refuse an upload that is more than a token may still send today.

    Args:
        token: who sends.
        left: how many records it may send (`tuned_db.trust.tokens.left_today`).
        count: how many the upload has.
        what: they are called in the message.

    Raises:
        HTTPException: 403: there are too many.
    """
    if count > left:
        detail = f"{token.name} may send {max(left, 0):.0f} more records today"
        raise HTTPException(403, f"{detail}; the upload has {count} {what}")
