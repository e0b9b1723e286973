"""Connections to the service: how long a client may take to send, and how many it may have.

uvicorn reads and answers requests, but has no time limit for the headers of a request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from h11 import IDLE
from uvicorn.protocols.http.h11_impl import H11Protocol

from tuned_db.service.guard import customer_of

HEADERS_S = 10.0
"""Seconds from a connection's start, or from its last answer, to the end of a request's headers."""


def protocol(most: int, proxies: Collection[str] = ()) -> Any:
    """Return what makes the protocol of connections, for `uvicorn.Config(http=...)`.

    Args:
        most: connections that one address, of IPv6 one /64, may have with one process; further ones
            are closed at once.
        proxies: addresses or networks that may have any number, since many clients share
            them.
    """
    networks = [ip_network(one) for one in proxies]
    return partial(Connection, counts=Counter(), most=most, networks=networks)


class Connection(H11Protocol):
    """A connection that is closed where its client is too slow or has too many."""

    _address = ""
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        *given: Any,
        counts: Counter[str],
        most: int,
        networks: Collection[IPv4Network | IPv6Network],
        **more: Any,
    ) -> None:
        super().__init__(*given, **more)
        self._counts, self._most, self._networks = counts, most, networks

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and close it where its client has too many."""
        super().connection_made(transport)
        address = str((transport.get_extra_info("peername") or ("",))[0])
        self._address = customer_of(address)
        self._counts[self._address] += 1
        if not _is_in(address, self._networks) and self._counts[self._address] > self._most:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on, and look whether the headers are all there."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request's headers."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._stop()
        self._counts[self._address] -= 1
        if not self._counts[self._address]:
            del self._counts[self._address]
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let the time run while the headers are not all there; a byte does not renew it."""
        if self.conn.their_state is not IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_in(address: str, networks: Collection[IPv4Network | IPv6Network]) -> bool:
    with suppress(ValueError):
        found = ip_address(address)
        return any(found in network for network in networks)
    return False
