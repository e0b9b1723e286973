"""A service that runs from a thread of the tests, as people would reach it."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import record
from tuned_db import Record, Store, write_records
from tuned_db.service.app import create_app
from tuned_db.service.client import Client
from tuned_db.service.guard import RequestLimits
from tuned_db.trust.tokens import add_token

GENEROUS = RequestLimits(reads_per_s=1e4, writes_per_s=1e4)


@dataclass(frozen=True)
class Served:
    """A running service: its database, its address, and a token of alice's."""

    store: Store
    url: str
    token: str

    def client(self) -> Client:
        """Return a client that may write."""
        return Client(self.url, self.token)


@contextmanager
def serving(store: Store, limits: RequestLimits = GENEROUS) -> Iterator[Served]:
    """Serve `store` on a free port while the context lasts."""
    app = create_app(store, limits)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(store, f"http://127.0.0.1:{port}", add_token(store.database, "alice"))
    finally:
        server.should_exit = True
        thread.join()


def body(*records: Record) -> bytes:
    stream = io.BytesIO()
    write_records(records, stream)
    return stream.getvalue()


def bearer(store: Store, name: str = "alice") -> dict[str, str]:
    return {"Authorization": f"Bearer {add_token(store.database, name)}"}


def many(count: int) -> list[Record]:
    return [record(GemmProblem(size, 8, 8)) for size in range(1, count + 1)]
