"""What the service reports about itself: a line per request, figures for Prometheus, its health.

The figures are in Prometheus' text format, version 0.0.4.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from fastapi import APIRouter, HTTPException, Response
from sqlalchemy import func, select
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import BatchRow, DeviceRow, TokenRow, TuningRow
from tuned_db.storage.store import Store

ACCESS = logging.getLogger("oclgen.access")
BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
"""Seconds that the histogram of requests tells apart."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
_TABLES = {"devices": DeviceRow, "tunings": TuningRow, "batches": BatchRow, "tokens": TokenRow}


class Figures:
    """Counts of answers, and their times.

    Args:
        process: which of several processes counts, for the figures' labels; "" where there is one.
    """

    def __init__(self, process: str = "") -> None:
        self._process = process
        self._lock = Lock()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = 0.0

    def note(self, method: str, status: int, seconds: float) -> None:
        """Count an answer.

        Args:
            method: of the request; what is no method of HTTP counts as "other".
            status: of the answer.
            seconds: that it took.
        """
        known = method if method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE") else "other"
        with self._lock:
            self._answers[known, status] += 1
            self._seconds += seconds
            self._within.update(bound for bound in BOUNDS if seconds <= bound)

    def to_text(self) -> str:
        """Return the figures in Prometheus' text format."""
        with self._lock:
            answers, within = dict(self._answers), dict(self._within)
            total, seconds = sum(answers.values()), self._seconds
        lines = ["# TYPE oclgen_requests_total counter"]
        for (method, status), count in sorted(answers.items()):
            lines.append(f"{self._of('requests_total', method=method, status=status)} {count}")
        lines.append("# TYPE oclgen_request_seconds histogram")
        counts = {bound: within.get(bound, 0) for bound in BOUNDS} | {"+Inf": total}
        lines += [f"{self._of('request_seconds_bucket', le=le)} {n}" for le, n in counts.items()]
        lines.append(f"{self._of('request_seconds_sum')} {seconds:.6f}")
        return "\n".join([*lines, f"{self._of('request_seconds_count')} {total}", ""])

    def _of(self, name: str, **labels: object) -> str:
        """Return a figure's name with its labels."""
        own = {"process": self._process} if self._process else {}
        text = ",".join(f'{label}="{value}"' for label, value in (own | labels).items())
        return f"oclgen_{name}{{{text}}}" if text else f"oclgen_{name}"


class Watch:
    """ASGI middleware that counts answers and logs each as a line of JSON."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self._app, self._figures = app, figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log its result."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, size, begin = 500, 0, time.monotonic()
        state: dict[str, Any] = scope.setdefault("state", {})

        async def watched(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.monotonic() - begin
            self._figures.note(scope["method"], status, seconds)
            ACCESS.info(_line(scope, status, size, seconds, state.get("token", "")))


def _line(scope: Scope, status: int, size: int, seconds: float, token: str) -> str:
    values = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "address": scope["client"][0] if scope.get("client") else "",
        "method": scope["method"],
        "path": scope["path"][:400],
        "query": scope["query_string"][:400].decode(errors="replace"),
        "status": status,
        "bytes": size,
        "ms": round(1e3 * seconds, 1),
        "token": token,
    }
    return json.dumps(values, separators=(",", ":"))


def router(store: Store, figures: Figures) -> APIRouter:
    """Return `/metrics`."""
    routes = APIRouter(include_in_schema=False)
    routes.get("/metrics")(_metrics(store, figures))
    return routes


def health(store: Store) -> APIRouter:
    """Return `/healthz`, which says nothing but whether the database can be read."""
    routes = APIRouter(include_in_schema=False)
    routes.get("/healthz")(_health(store))
    return routes


def _health(store: Store) -> Callable[..., Any]:
    def healthz() -> dict[str, str]:
        try:
            with store.database.reading() as connection:
                connection.execute(select(TokenRow.id).limit(1)).first()
        except DatabaseError as error:
            logging.getLogger("oclgen.service").error("/healthz: %s", error)
            raise HTTPException(503, "the database cannot be read") from error
        return {"status": "ok"}

    return healthz


def _metrics(store: Store, figures: Figures) -> Callable[..., Any]:
    def metrics() -> Response:
        lines = []
        with store.database.reading() as connection:
            for name, table in _TABLES.items():
                count = connection.execute(select(func.count()).select_from(table)).scalar_one()
                lines += [f"# TYPE oclgen_{name} gauge", f"oclgen_{name} {count}"]
        return Response("\n".join(lines) + "\n" + figures.to_text(), media_type=TEXT)

    return metrics
