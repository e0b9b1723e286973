"""Sends records to a service and fetches records from it; the caller decides what to do with them.

Both ways use the export files of `tuned_db.records.exchange`.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin

import httpx

from oclgen.texts import printable
from tuned_db.database.errors import DatabaseError
from tuned_db.records.exchange import ImportFileError, read_records, write_records
from tuned_db.records.record import Record
from tuned_db.storage.merging import Merge
from tuned_db.trust.signatures import Signature
from tuned_db.tuners.foreign import Foreign, Near

BATCH = 500
"""Records per request: some 500 kB, far below what a service takes."""
PAGE = 500
"""Records per answer, the most that a service gives."""
PATIENCE_S = 60.0
ATTEMPTS = 8
"""Times that a request is made which is answered by 429, by 503 or not at all."""
ANSWER_S = 120.0
"""That an answer may take from its first byte to its last."""
LARGEST_PAGE = 16 * 1024 * 1024
"""Bytes of an answer, unpacked; a page has some 500 kB."""
MOST_BYTES = 4 * 1024 * 1024 * 1024
"""Of all pages of a service: some four million records."""
_OF_TRANSFER = (b"content-encoding", b"content-length", b"transfer-encoding")
"""Headers that tell how an answer came, not what it is."""


class ServiceError(DatabaseError):
    """A service that cannot be reached, refuses, or answers what it should not."""


class Client:
    """Speaks to the service at `url`; a context manager.

    Args:
        url: of the service, http or https.
        token: for writing, and for reading where that is private.
        transport: in place of the network, for tests.
        sleep: waits for this many seconds before a request is made again.
        say: hears in a sentence why one is.

    Raises:
        ServiceError: the address is none; by every method: the service cannot be reached, or
            refuses.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers["Accept-Encoding"] = "gzip"
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=PATIENCE_S, transport=transport
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ServiceError(f"{url!r} is no address of a service: {error}") from error
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise ServiceError(f"{url!r} is no address of a service; it begins with http(s)://")
        self.host = self._http.base_url.host
        self._sleep, self._say = sleep, say
        self._has_answered = False

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
            merge = self._sent("api/v1/records", stream.getvalue())
            improved, kept = improved + merge.improved, kept + merge.kept
        return Merge(improved, kept)

    def contribute(self, content: bytes, kind: str, signature: Signature | None = None) -> Merge:
        """Send a file whole, and return what became of its records or measurements.

        Args:
            content: of the file.
            kind: "checks" or "records", an export.
            signature: of these bytes, by which the service tells whose they are.

        Raises:
            ServiceError: see the class; nothing of it is kept there.
        """
        headers = {}
        if signature is not None:
            headers = {"Oclgen-Key": signature.key, "Oclgen-Signature": signature.signature}
        return self._sent(f"api/v1/{kind}", content, headers)

    def push_foreign(self, found: Sequence[Foreign]) -> int:
        """Send measurements of another tuner's kernels, some at a time; return how many were new.

        Raises:
            ServiceError: see the class; batches before the failing one are kept there.
        """
        new = 0
        for start in range(0, len(found), BATCH):
            values = [one.values() for one in found[start : start + BATCH]]
            answer = self._ask("POST", "api/v1/foreign", content=json.dumps(values).encode())
            with self._expecting():
                new += int(answer.json()["new"])
        return new

    def nearest_foreign(
        self,
        kernel: str,
        sizes: Mapping[str, int],
        words: Sequence[str] = (),
        device: str = "",
        source: str = "",
        limit: int = 5,
    ) -> list[Near]:
        """Return the best variants of a foreign kernel for the sizes nearest to some.

        Args:
            kernel: its name.
            sizes: by name.
            words: what else names the problem.
            device: comes before other devices.
            source: the digest of its source; empty: any.
            limit: most answers.

        Raises:
            ServiceError: see the class.
        """
        asked: dict[str, Any] = {
            "kernel": kernel,
            "sizes": ",".join(f"{name}={size}" for name, size in sizes.items()),
            "word": list(words),
            "device": device,
            "source": source,
            "limit": limit,
        }
        answer = self._ask("GET", str(httpx.URL("api/v1/foreign/nearest", params=asked)))
        with self._expecting():
            rows = [(float(one.pop("distance")), one) for one in answer.json()]
            return [Near(Foreign.from_values(one), distance) for distance, one in rows]

    def _sent(self, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> Merge:
        answer = self._ask("POST", path, content=content, headers=headers)
        with self._expecting():
            found = answer.json()
            return Merge(int(found["improved"]), int(found["kept"]))

    @contextmanager
    def _expecting(self) -> Iterator[None]:
        """Tell of an answer of another form that no service of ours gives it."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ServiceError(f"{self.host} answers what no oclgen service does") from error

    def pull(self, architecture: str = "", kind: str = "") -> Iterator[list[Record]]:
        """Yield the service's winners page by page, of one architecture and kind if given.

        Raises:
            ServiceError: see the class; a record there is not well-formed; or the service sends
                more than `LARGEST_PAGE` a page, `MOST_BYTES` in all, or pages without end.
        """
        wanted = {"architecture": architecture, "kind": kind, "limit": PAGE}
        path = str(httpx.URL("api/v1/records", params={k: v for k, v in wanted.items() if v}))
        after, left = 0, MOST_BYTES
        while path:
            answer = self._ask("GET", path)
            left -= len(answer.content)
            if left < 0:
                raise ServiceError(f"{self.host} sends more than {MOST_BYTES} bytes")
            try:
                yield read_records(self.host, io.BytesIO(answer.content))
            except ImportFileError as error:
                raise ServiceError(str(error)) from error
            path, before = self._following(answer), after
            after = _key_after(path)
            if path and after <= before:
                raise ServiceError(f"{self.host} names pages that do not go on: after {after}")

    def _following(self, answer: httpx.Response) -> str:
        """Return the path of the next page, "" if there is none; it stays at this service."""
        link = answer.links.get("next", {}).get("url", "")
        try:
            following = httpx.URL(urljoin(str(answer.url), link)) if link else None
        except (ValueError, httpx.InvalidURL) as error:
            raise ServiceError(f"{self.host} names a next page that is no address") from error
        if following is None or following.host != self.host:
            return ""
        return f"api/v1/records?{following.query.decode()}"

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Make a request until it is answered; wait as long as the service asks for."""
        failure = ""
        for attempt in range(ATTEMPTS):
            try:
                answer = self._read(method, path, **more)
            except httpx.HTTPError as error:
                failure = f"cannot be reached: {error}"
                if not self._has_answered and _is_refused(error):
                    break  # nothing listens there; a service that answered may come back
                wait = 0.5 * 2**attempt
            else:
                self._has_answered = True
                if answer.status_code < 300:
                    return answer
                failure = f"refuses with {answer.status_code}: {_detail(answer)}"
                if answer.status_code not in (429, 503):
                    break
                wait = _retry_after(answer, 0.5 * 2**attempt)
            if attempt + 1 < ATTEMPTS:
                wait = min(wait, PATIENCE_S)
                tried = f"attempt {attempt + 2} of {ATTEMPTS}"
                self._say(f"{self.host} {failure}; {tried} in {wait:.1f} s")
                self._sleep(wait)
        raise ServiceError(f"{self.host} {failure}")

    def _read(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return a whole answer, read while it is neither too large nor too slow.

        Raises:
            ServiceError: it is.
            httpx.HTTPError: the service cannot be reached.
        """
        ends, size = time.monotonic() + ANSWER_S, 0
        parts: list[bytes] = []
        with self._http.stream(method, path, **more) as answer:
            for part in answer.iter_bytes():  # as they come: a dripping answer fills no buffer
                parts.append(part)
                size += len(part)
                if size > LARGEST_PAGE:
                    raise ServiceError(f"{self.host} sends pages of more than {LARGEST_PAGE} bytes")
                if time.monotonic() > ends:
                    raise ServiceError(f"{self.host} takes more than {ANSWER_S:.0f} s for a page")
        headers = [one for one in answer.headers.raw if one[0].lower() not in _OF_TRANSFER]
        content = b"".join(parts)
        return httpx.Response(
            answer.status_code, headers=headers, content=content, request=answer.request
        )


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    for start in range(0, len(records), BATCH):
        yield records[start : start + BATCH]


def _key_after(path: str) -> int:
    """Return the key after which a page begins, 0 if it names none."""
    after = httpx.URL(path).params.get("after", "")
    return int(after) if after.isascii() and after.isdecimal() and len(after) < 20 else 0


def _detail(answer: httpx.Response) -> str:
    try:
        return printable(str(answer.json()["detail"])[:500])
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer.reason_phrase


def _is_refused(error: BaseException | None) -> bool:
    """Whether the machine was there and no program listened, by what led to an error."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


def _retry_after(answer: httpx.Response, otherwise: float) -> float:
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdecimal() else otherwise
