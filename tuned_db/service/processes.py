"""Runs the service: in this process, or in several that share its socket."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import parent_process
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from tuned_db.service.app import create_app
from tuned_db.service.connections import protocol
from tuned_db.service.guard import RequestLimits
from tuned_db.storage.store import open_existing

PATIENCE_S = 10
"""How long the service keeps an idle connection, and finishes what it does when it is stopped."""
STARTING_S = 60
"""How long a process may leave the first one without an answer; uvicorn's 5 s are less than a slow
or busy host takes to import what the service needs, and each new process would be ended, too."""
MOST_AT_ONCE = 1000
"""Requests that a process answers at once; further ones get 503."""


@dataclass(frozen=True)
class Endpoint:
    """Where the service listens, and who may ask how often.

    Each of the `workers` counts what an address does with it: `limits`, and `connections` that the
    address may have. `proxies` are addresses or networks whose X-Forwarded-For is believed.
    """

    host: str
    port: int
    workers: int = 1
    limits: RequestLimits = field(default_factory=RequestLimits)
    connections: int = 100
    proxies: tuple[str, ...] = ()


def run(where: str | None, endpoint: Endpoint, *, private: bool, open_metrics: bool) -> None:
    """Serve a database until a signal ends it.

    Args:
        where: the database, as `open_existing` takes it; each process opens it.
        endpoint: where the service listens.
        private: see `create_app`.
        open_metrics: see `create_app`.
    """
    making = partial(
        _application, where, endpoint.limits, private=private, open_metrics=open_metrics
    )
    options: dict[str, Any] = {
        "factory": True,
        "host": endpoint.host,
        "port": endpoint.port,
        "http": protocol(endpoint.connections, endpoint.proxies),
        "ws": "none",
        "proxy_headers": bool(endpoint.proxies),
        "forwarded_allow_ips": list(endpoint.proxies),
        "log_level": "warning",
        "server_header": False,
        "limit_concurrency": MOST_AT_ONCE,
        "timeout_keep_alive": PATIENCE_S,
        "timeout_graceful_shutdown": PATIENCE_S,
        "timeout_worker_healthcheck": STARTING_S,
    }
    if endpoint.workers == 1:
        uvicorn.run(making, **options)
    else:  # which `uvicorn.run` does for an application that has a name alone
        config = uvicorn.Config(making, workers=endpoint.workers, **options)
        Multiprocess(config, [config.bind_socket()]).run()


def _application(
    where: str | None, limits: RequestLimits, *, private: bool, open_metrics: bool
) -> FastAPI:
    """Return the application of one process, which ends with the process that started it."""
    process = ""
    if (parent := parent_process()) is not None:
        process = str(os.getpid())
        Thread(target=_end_after, args=(parent.join,), daemon=True).start()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("oclgen.access").setLevel(logging.INFO)
    return create_app(
        open_existing(where), limits, private=private, open_metrics=open_metrics, process=process
    )


def _end_after(wait: Callable[[], None]) -> None:
    wait()
    os.kill(os.getpid(), signal.SIGTERM)
