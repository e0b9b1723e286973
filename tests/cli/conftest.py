"""A database of its own for every test of the command, and two ways to run it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from oclgen_cli.main import main
from tests.cli.command_runs import Process, Run


@pytest.fixture(autouse=True)
def own_database(monkeypatch: pytest.MonkeyPatch, unvectorised: None, tmp_path: Path) -> Path:
    path = tmp_path / "tuned.sqlite"
    monkeypatch.setenv("OCLGEN_DB", str(path))
    return path


@pytest.fixture
def run() -> Run:
    """Run the command in this process; what is no message for users is raised."""

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def process() -> Process:
    """Run the command as users do, with more environment variables as keywords."""

    def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "oclgen_cli", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return done

    return start


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A service in a process of its own: its address and a token."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("fastapi")
    database = str(tmp_path / "served.sqlite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oclgen_cli", "db"]
    token = subprocess.run(
        [*command, "token", "add", "alice", "--create", "--db", database],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    running = subprocess.Popen([*command, "serve", "--port", str(port), "--db", database])
    url = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            httpx.get(url)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    yield url, token
    running.send_signal(signal.SIGINT)
    assert running.wait(30) in (0, 1, 130, -signal.SIGINT)
