"""Answers that are kept until the database is written to: a repeated request only reads its state.

An answer has a tag (`ETag`); a client that sends it again gets 304 and no content.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuned_db.database.errors import DatabaseError
from tuned_db.database.opening import Database
from tuned_db.service.together import Together

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
    status: int
    headers: Headers
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + 1000


@dataclass(frozen=True, slots=True)
class _Question:
    """What an answer depends on; routes see nothing else of a request."""

    scheme: str
    host: bytes
    path: str
    query: bytes
    accepted: bytes
    known: bytes

    @property
    def key(self) -> tuple[str, bytes, bytes]:
        """What an answer depends on, unless it is an error or a redirect."""
        return self.path, self.query, self.accepted

    def scope(self, scope: Scope) -> Scope:
        """Return a request's scope with the headers that are part of the question."""
        headers = [
            (b"host", self.host),
            (b"accept-encoding", self.accepted),
            (b"if-none-match", self.known),
        ]
        return {**scope, "headers": [one for one in headers if one[1]]}


class KeptAnswers:
    """ASGI middleware that keeps what GET answered with 200, until the database is written to.

    Requests that ask the same at the same time are answered together: a page that a hundred clients
    ask for costs as much as one client's. Answers to requests with a token are not kept.
    """

    def __init__(self, app: ASGIApp, database: Database) -> None:
        self._app, self._database = app, database
        self._answers: OrderedDict[tuple[str, bytes, bytes], tuple[str, _Answer]] = OrderedDict()
        self._size = 0
        self._states: Together[None, str] = Together()
        self._asked: Together[_Question, _Answer] = Together()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a kept answer, or keep the new one."""
        asked = dict(scope.get("headers", ()))
        is_kept = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] not in LIVE
        if not is_kept or b"authorization" in asked:  # what a role may see is for that role alone
            await self._app(scope, receive, send)
            return
        question = _Question(
            scope["scheme"],
            asked.get(b"host", b""),
            scope["path"],
            scope["query_string"],
            b"gzip" if b"gzip" in asked.get(b"accept-encoding", b"") else b"",
            asked.get(b"if-none-match", b""),
        )
        answer = await self._asked.ask(question, partial(self._find, question, scope))
        await _send(answer, question.known, send)

    async def _find(self, question: _Question, scope: Scope) -> _Answer:
        """Return what is kept, as long as nothing was written; else ask the application."""
        try:
            state = await self._states.ask(None, partial(run_in_threadpool, self._database.state))
        except DatabaseError:  # the route says so in a sentence
            return await self._ask(question.scope(scope))
        found = self._answers.get(question.key)
        if found is not None and found[0] == state:
            self._answers.move_to_end(question.key)
            return found[1]
        answer = await self._ask(question.scope(scope))
        if answer.status == 200:
            self._keep(question.key, state, answer)
        return answer

    async def _ask(self, scope: Scope) -> _Answer:
        """Return what the application answers."""
        start: Message = {}
        parts: list[bytes] = []

        async def nothing_more() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self._app(scope, nothing_more, collect)
        status, body = start["status"], b"".join(parts)
        if status != 200:
            return _Answer(status, list(start["headers"]), body)
        headers = [one for one in start["headers"] if one[0].lower() != b"content-length"]
        names = {name.lower() for name, _ in headers}
        if b"etag" not in names:
            headers.append((b"etag", b'"' + sha256(body).hexdigest()[:32].encode() + b'"'))
        if b"cache-control" not in names:
            headers.append(CACHING)
        headers.append((b"content-length", str(len(body)).encode()))
        return _Answer(status, headers, body)

    def _keep(self, key: tuple[str, bytes, bytes], state: str, answer: _Answer) -> None:
        if answer.size > LARGEST:
            return
        old = self._answers.pop(key, None)
        self._size += answer.size - (old[1].size if old else 0)
        self._answers[key] = state, answer
        while self._size > MOST_BYTES:
            self._size -= self._answers.popitem(last=False)[1][1].size


async def _send(answer: _Answer, known: bytes, send: Send) -> None:
    tags = {value for name, value in answer.headers if name.lower() == b"etag"}
    status, headers, body = answer.status, answer.headers, answer.body
    if status == 200 and tags & {one.strip().removeprefix(b"W/") for one in known.split(b",")}:
        of_body = (b"content-type", b"content-length")
        status, headers, body = 304, [one for one in headers if one[0].lower() not in of_body], b""
    # a copy: what stands before this adds to it
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
