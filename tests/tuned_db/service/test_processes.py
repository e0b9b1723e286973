"""A service of several processes: they share a port, and none outlives the one that began."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx
import uvicorn
from uvicorn.supervisors import Multiprocess

from tests.tuned_db.service.service_runs import body
from tests.tuned_db.tuned_samples import record
from tuned_db import Store
from tuned_db.service.processes import Endpoint, run
from tuned_db.trust.tokens import add_token


@pytest.fixture
def served(shelf: Store) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a service of two processes, and the process that started them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oclgen_cli", "db", "serve", "--workers", "2"]
    where = str(shelf.database.engine.url.database)
    running = subprocess.Popen([*command, "--port", str(port), "--db", where])
    try:
        yield f"http://127.0.0.1:{port}", running
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(30)


def processes(url: str) -> set[int]:
    """Return the processes that answer some connections; none while none does."""
    found = set()
    headers = {"Connection": "close"}  # the next request may meet another process
    # without certificates, whose reading takes longer than all that is asked
    with httpx.Client(verify=False, headers=headers) as client:
        for _ in range(8):
            try:
                figures = client.get(f"{url}/metrics").text
            except httpx.TransportError:
                continue
            found |= {int(one) for one in re.findall(r'process="(\d+)"', figures)}
    return found


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that takes a while."""
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def both(url: str, but: frozenset[int] = frozenset()) -> set[int]:
    """Return two processes, once each has answered; all requests of one call may meet the same.

    Args:
        url: the address that they share.
        but: processes that are no more.
    """
    seen = set[int]()

    def have_answered() -> bool:
        seen.update(processes(url) - but)
        return len(seen) == 2

    until(have_answered)
    return seen


def test_processes_share_a_port_and_what_is_written(
    shelf: Store, served: tuple[str, subprocess.Popen[bytes]]
) -> None:
    url, running = served
    killed, other = both(url)
    headers = {"Authorization": f"Bearer {add_token(shelf.database, 'alice')}"}
    pages = [httpx.get(f"{url}/problems").text for _ in range(8)]  # which each process keeps
    sent = httpx.post(f"{url}/api/v1/records", content=body(record()), headers=headers)
    assert sent.json() == {"improved": 1, "kept": 0}
    assert all(record().problem not in page for page in pages)
    for _ in range(8):
        assert record().problem in httpx.get(f"{url}/problems").text
    os.kill(killed, signal.SIGKILL)  # its place is taken
    assert other in both(url, frozenset({killed}))
    running.kill()
    until(lambda: not processes(url))


def test_a_process_has_a_minute_to_import_what_it_needs(
    shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 5 s, which uvicorn waits by itself: a busy host's processes are ended while they import
    configs = list[uvicorn.Config]()
    monkeypatch.setattr(Multiprocess, "run", lambda self: configs.append(self.config))
    endpoint = Endpoint("127.0.0.1", 0, workers=2)
    run(str(shelf.database.engine.url.database), endpoint, private=False, open_metrics=True)
    assert [one.timeout_worker_healthcheck for one in configs] == [60]


def test_a_service_of_one_process_names_none(shelf: Store, tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    from tuned_db.service.app import create_app

    assert "process=" not in TestClient(create_app(shelf)).get("/metrics").text
    figures = TestClient(create_app(shelf, process="7")).get("/metrics").text
    assert 'oclgen_request_seconds_count{process="7"} 0' in figures
