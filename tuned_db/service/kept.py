"""Answers that are kept until the database is written to: a second one costs a look at its state.

An answer carries a tag (`ETag`); a client that shows it again gets 304 and no content.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuned_db.database import Database
from tuned_db.errors import DatabaseError

MOST_BYTES = 64 * 1024 * 1024
"""Of all answers that are kept; those that were not asked for longest go first."""
LARGEST = 4 * 1024 * 1024
CACHING = (b"cache-control", b"no-cache")
"""A browser keeps the page, and asks whether it is still the same."""
LIVE = ("/healthz", "/metrics")
"""Paths whose answers are of the moment."""

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class _Answer:
    state: str
    headers: Headers
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + 1000


class Kept:
    """ASGI middleware that keeps what GET answered with 200, until the database is written to.

    Answers to requests with a token are not kept.
    """

    def __init__(self, app: ASGIApp, database: Database) -> None:
        self._app, self._database = app, database
        self._answers: OrderedDict[tuple[str, bytes, bool], _Answer] = OrderedDict()
        self._lock, self._size = Lock(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from what is kept, or keep what is answered."""
        asked = dict(scope.get("headers", ()))
        is_kept = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] not in LIVE
        if not is_kept or b"authorization" in asked:  # what a role may see is for that role alone
            await self._app(scope, receive, send)
            return
        key = scope["path"], scope["query_string"], b"gzip" in asked.get(b"accept-encoding", b"")
        try:
            state = await run_in_threadpool(self._database.state)
        except DatabaseError:  # the route says so in a sentence
            await self._app(scope, receive, send)
            return
        with self._lock:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
        if found is None or found.state != state:
            found = await self._ask(scope, receive, send, state)
            if found is None:
                return
            self._keep(key, found)
        await _send(found, asked.get(b"if-none-match", b""), send)

    async def _ask(self, scope: Scope, receive: Receive, send: Send, state: str) -> _Answer | None:
        """Return what the application answers; None where it is no 200, and was passed on."""
        start: Message = {}
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            if start["status"] != 200:
                await send(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self._app(scope, receive, collect)
        if start.get("status") != 200:
            return None
        body = b"".join(parts)
        headers = [one for one in start["headers"] if one[0].lower() != b"content-length"]
        names = {name.lower() for name, _ in headers}
        if b"etag" not in names:
            headers.append((b"etag", b'"' + sha256(body).hexdigest()[:32].encode() + b'"'))
        if b"cache-control" not in names:
            headers.append(CACHING)
        return _Answer(state, headers, body)

    def _keep(self, key: tuple[str, bytes, bool], answer: _Answer) -> None:
        if answer.size > LARGEST:
            return
        with self._lock:
            old = self._answers.pop(key, None)
            self._size += answer.size - (old.size if old else 0)
            self._answers[key] = answer
            while self._size > MOST_BYTES:
                self._size -= self._answers.popitem(last=False)[1].size


async def _send(answer: _Answer, known: bytes, send: Send) -> None:
    tags = {value for name, value in answer.headers if name.lower() == b"etag"}
    if tags & {one.strip().removeprefix(b"W/") for one in known.split(b",")}:
        same = [one for one in answer.headers if one[0].lower() != b"content-type"]
        await send({"type": "http.response.start", "status": 304, "headers": same})
        await send({"type": "http.response.body", "body": b""})
        return
    length = (b"content-length", str(len(answer.body)).encode())
    headers = [*answer.headers, length]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
