"""Sends records to a service and fetches them from it; what is done with them is the caller's.

Both ways go in export files, as `tuned_db.exchange` has them.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urljoin

import httpx

from tuned_db.database import DatabaseError
from tuned_db.exchange import ImportFileError, read_records, write_records
from tuned_db.record import Record
from tuned_db.store import Merge

BATCH = 500
"""Records per request: some 500 kB, far below what a service takes."""
PAGE = 500
"""Records per answer, the most that a service gives."""
PATIENCE_S = 60.0
ATTEMPTS = 8
"""Times that a request is made which is answered by 429, by 503 or not at all."""
LARGEST_PAGE = 64 * 1024 * 1024


class ServiceError(DatabaseError):
    """A service that cannot be reached, refuses, or answers what it should not."""


class Client:
    """Speaks to the service at `url`; a context manager. `transport` is for tests."""

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=PATIENCE_S, transport=transport
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ServiceError(f"{url!r} is no address of a service: {error}") from error
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise ServiceError(f"{url!r} is no address of a service; it begins with http(s)://")
        self.host = self._http.base_url.host
        self._sleep = sleep

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def push(self, records: Sequence[Record]) -> Merge:
        """Send `records`, some at a time, and return what became of them.

        A batch is taken in whole or not at all; sending one twice does no harm.

        Raises:
            ServiceError: see the class; batches before the failing one are kept there.
        """
        improved = kept = 0
        for batch in _batches(records):
            stream = io.BytesIO()
            write_records(batch, stream)
            answer = self._ask("POST", "api/v1/records", content=stream.getvalue())
            try:
                found = answer.json()
                improved, kept = improved + int(found["improved"]), kept + int(found["kept"])
            except (ValueError, KeyError, TypeError) as error:
                raise ServiceError(f"{self.host} answers what no oclgen service does") from error
        return Merge(improved, kept)

    def pull(self, architecture: str = "", kind: str = "") -> Iterator[list[Record]]:
        """Yield the service's winners page by page, of one architecture and kind if given.

        Raises:
            ServiceError: see the class, or a record there is not well-formed.
        """
        wanted = {"architecture": architecture, "kind": kind, "limit": PAGE}
        path = str(httpx.URL("api/v1/records", params={k: v for k, v in wanted.items() if v}))
        seen: set[str] = set()
        while path and path not in seen:
            seen.add(path)
            answer = self._ask("GET", path)
            if len(answer.content) > LARGEST_PAGE:
                raise ServiceError(f"{self.host} sends pages of more than {LARGEST_PAGE} bytes")
            try:
                yield read_records(self.host, io.BytesIO(answer.content))
            except ImportFileError as error:
                raise ServiceError(str(error)) from error
            path = self._following(answer)

    def _following(self, answer: httpx.Response) -> str:
        """Return the path of the next page, "" if there is none; it stays at this service."""
        link = answer.links.get("next", {}).get("url", "")
        following = httpx.URL(urljoin(str(answer.url), link)) if link else None
        if following is None or following.host != self.host:
            return ""
        return f"api/v1/records?{following.query.decode()}"

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Make a request until it is answered; wait as long as the service asks for."""
        failure = ""
        for attempt in range(ATTEMPTS):
            try:
                answer = self._http.request(method, path, **more)
            except httpx.HTTPError as error:
                failure = f"cannot be reached: {error}"
                wait = 0.5 * 2**attempt
            else:
                if answer.status_code < 300:
                    return answer
                failure = f"refuses with {answer.status_code}: {_detail(answer)}"
                if answer.status_code not in (429, 503):
                    break
                wait = _retry_after(answer, 0.5 * 2**attempt)
            if attempt + 1 < ATTEMPTS:
                self._sleep(min(wait, PATIENCE_S))
        raise ServiceError(f"{self.host} {failure}")


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    for start in range(0, len(records), BATCH):
        yield records[start : start + BATCH]


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


def _retry_after(answer: httpx.Response, otherwise: float) -> float:
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isdigit() else otherwise
