"""Stands before the service: limits on rate, size and time, and headers for browsers.

It knows no route and no database; routes judge what is inside a request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_CLIENTS = 10_000
"""Addresses whose rate is remembered; the one that was quiet for longest is forgotten first."""
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]
READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class RequestLimits:
    """What one client may do: requests per second on average and at once, and bytes of a body."""

    reads_per_s: float = 20.0
    writes_per_s: float = 2.0
    burst_s: float = 10.0
    """Seconds' worth of requests that may come at once."""
    body_bytes: int = 8 * 1024 * 1024
    body_s: float = 30.0
    """How long a client may take to send its body."""
    request_s: float = 0.025
    """Seconds of the service's work that cost as much as one request: longer ones count as more."""


def client_of(scope: Scope) -> str:
    """Return what a client is known by (`customer_of`)."""
    return customer_of(str(scope["client"][0] if scope.get("client") else ""))


def customer_of(text: str) -> str:
    """Return an address, of IPv6 the /64 around it, which is what one customer is given.

    An IPv4 address that is written as one of IPv6 is that of IPv4; what is no address stays.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Network((address, 64), strict=False))
    return text


class Buckets:
    """Token buckets by client: each fills at a rate up to its size, and a request takes one."""

    def __init__(self, per_s: float, size: float) -> None:
        self._per_s, self._size = per_s, max(size, 1.0)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str, now: float) -> float:
        """Take one from the client's bucket and return 0, or the seconds until there is one."""
        level, since = self._levels.pop(client, (self._size, now))
        level = min(self._size, level + (now - since) * self._per_s)
        wait = max(0.0, (1.0 - level) / self._per_s)
        self._levels[client] = (level if wait else level - 1.0, now)
        if len(self._levels) > MOST_CLIENTS:
            self._levels.popitem(last=False)
        return wait

    def charge(self, client: str, requests: float) -> None:
        """Take what a request cost beyond one from the client's bucket, which may be in debt."""
        if client in self._levels:
            level, since = self._levels[client]
            self._levels[client] = (max(level - requests, -self._size), since)


class RefusalError(Exception):
    """An answer that ends a request early."""

    def __init__(self, status: int, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()):
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Guard:
    """ASGI middleware that lets through what keeps to `RequestLimits`.

    Bodies are read here, whole and within bounds, so that no route ever waits for a slow client.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app, self._limits = app, limits
        self._reads = Buckets(limits.reads_per_s, limits.reads_per_s * limits.burst_s)
        self._writes = Buckets(limits.writes_per_s, limits.writes_per_s * limits.burst_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with 408, 413 or 429 and a reason in JSON."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                own = {name.lower() for name, _ in given}  # a route may know better
                message["headers"] = given + [one for one in HEADERS if one[0] not in own]
            await send(message)

        try:
            self._require_rate(scope)
            body = await self._body(scope, receive)
        except RefusalError as refusal:
            await _answer(refusal, send_with_headers)
            return
        begin = time.monotonic()
        await self._app(scope, _replay(body, receive), send_with_headers)
        if scope["method"] in READING:
            worked = (time.monotonic() - begin) / self._limits.request_s
            self._reads.charge(client_of(scope), max(worked - 1.0, 0.0))

    def _require_rate(self, scope: Scope) -> None:
        buckets = self._reads if scope["method"] in READING else self._writes
        wait = buckets.wait_s(client_of(scope), time.monotonic())
        if wait:
            after = (b"retry-after", str(int(wait) + 1).encode())
            raise RefusalError(429, f"too many requests; try again in {wait:.1f} s", (after,))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._limits.body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared[:20]) > most:
            raise RefusalError(413, f"the body may have {most} bytes; send fewer records at once")
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await _read(receive, most)
        except TimeoutError as error:
            raise RefusalError(408, f"no whole body within {self._limits.body_s:.0f} s") from error


async def _read(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise RefusalError(413, f"the body may have {most} bytes; send fewer records at once")
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body at once, and then what the client still does."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer(refusal: RefusalError, send: Send) -> None:
    content = json.dumps({"detail": refusal.detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),  # what is left of an oversized body is not read
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
