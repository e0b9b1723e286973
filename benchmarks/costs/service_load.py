"""Many clients read from and write to one service at once; counts errors, lost records and times.

    python -m benchmarks service-load --clients 50 --rounds 20 [--kills 4] [--db URL]

The service runs in a process of its own, as `oclgen db serve` starts it. It measures no kernel.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import httpx

from benchmarks.timing import Call
from oclgen.problem import GemmProblem
from tuned_db import Record, open_store
from tuned_db.service.client import Client
from tuned_db.shipped import shipped_records
from tuned_db.tokens import add_token

PAGES = ("/", "/devices/1", "/api/v1/winners?limit=50", "/api/v1/records?limit=50")


KILL_S = 3.0
"""Between two kills of the service."""
Times = tuple[list[float], list[float]]
"""Milliseconds of each write and of each read."""


def main(clients: int, rounds: int, batch: int, kills: int, db: str | None) -> None:
    """Run the service and its clients, and print what came of them.

    Args:
        clients: threads that ask at the same time.
        rounds: of each client: a push and some pages.
        batch: records of a push.
        kills: how often the service is killed (SIGKILL) meanwhile, and started again.
        db: URL of the database; None: SQLite in a folder that is removed.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(db or str(Path(folder) / "load.sqlite"), clients, rounds, batch, kills)


def _run(where: str, clients: int, rounds: int, batch: int, kills: int) -> None:
    store = open_store(where)
    token = add_token(store.database, "load")
    template = shipped_records()[0]
    service = _Service(where)
    try:
        own = _core_s(resource.RUSAGE_SELF)
        with ThreadPoolExecutor(clients) as pool:
            begin = time.perf_counter()
            work = [
                pool.submit(_client, service.url, token, n, rounds, batch, template)
                for n in range(clients)
            ]
            killed = _kill(service, kills, work)
            times = [one.result() for one in work]
            seconds = time.perf_counter() - begin
        own = _core_s(resource.RUSAGE_SELF) - own
    finally:
        service.stop()
    print(f"{store.name}: {clients} clients, {seconds:.1f} s; killed {killed} times")
    print(f"of a core: service {_core_s(resource.RUSAGE_CHILDREN):.1f} s, clients {own:.1f} s")
    _print("writes", [ms for pushed, _ in times for ms in pushed], seconds)
    _print("reads", [ms for _, read in times for ms in read], seconds)
    sent, kept = clients * rounds * batch, len(store.history())
    print(f"records sent {sent}, kept {kept}, lost {sent - kept}; errors 0 (one would end this)")


def _core_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _kill(service: _Service, kills: int, work: Sequence[Future[Times]]) -> int:
    """Kill and restart the service while clients work; return how often."""
    for done in range(kills):
        if not wait(work, timeout=KILL_S).not_done:
            return done
        service.kill()
    return kills


def _client(url: str, token: str, number: int, rounds: int, batch: int, template: Record) -> Times:
    """Push records, read pages in between; each waits where the service is being restarted."""
    writes, reads = [], []
    with Client(url, token) as client, httpx.Client(base_url=url, timeout=60) as reader:
        for turn in range(rounds):
            records = [
                replace(template, problem=_problem(turn * batch + n), samples=(1.0 + number,))
                for n in range(batch)
            ]
            writes.append(_timed(partial(client.push, records)))
            reads += [_timed(partial(_read, reader, page)) for page in PAGES]
    return writes, reads


def _read(reader: httpx.Client, page: str) -> None:
    for _ in range(600):
        try:
            reader.get(page).raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the service does not come back")


def _problem(number: int) -> str:
    """Return one of many problems; all clients write to the same ones, which is the hard case."""
    return GemmProblem(8 + number, 64, 64).key()


def _timed(action: Call) -> float:
    begin = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begin)


def _print(what: str, times: list[float], seconds: float) -> None:
    late = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    print(
        f"{what}: {len(times)}, {len(times) / seconds:.0f} per s, median {median(times):.0f} ms, "
        f"99th percentile {late:.0f} ms, longest {max(times):.0f} ms"
    )


class _Service:
    """The service in a process of its own."""

    def __init__(self, where: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "oclgen_cli", "db", "serve", "--port", str(port)]
        limits = ["--reads", "100000", "--writes", "100000", "--connections", "1000"]
        self._command = [*command, *limits, "--db", where]
        self.url = f"http://127.0.0.1:{port}/"
        self._start()

    def kill(self) -> None:
        """End it without notice, and start it again."""
        self._running.kill()
        self._running.wait()
        self._start()

    def stop(self) -> None:
        """End it."""
        self._running.terminate()
        self._running.wait()

    def _start(self) -> None:
        out = subprocess.DEVNULL  # a line per request would be another cost
        self._running = subprocess.Popen(self._command, stdout=out, stderr=out, env=os.environ)
        with httpx.Client(base_url=self.url, timeout=60) as asking:
            _read(asking, "healthz")
