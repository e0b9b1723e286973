"""Many clients read from and write to one service at once; times, errors and lost records.

    python -m benchmarks service-load --clients 50 --rounds 20 [--kills 4] [--db URL]

The service runs in processes of its own, as `oclgen db serve` starts it. The clients are threads of
this process and share the processor with it and with the database. So they do little: uploads are
made before the clock starts, and answers are not parsed. It measures no kernel.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from sqlalchemy import func, select

from benchmarks.timing import Call
from oclgen.problem import GemmProblem
from tuned_db import Record, Store, open_store, write_records
from tuned_db.database.models import MeasurementRow
from tuned_db.records.shipped import shipped_records
from tuned_db.service.client import Client
from tuned_db.trust.tokens import add_token

PAGES = ("/", "/devices/1", "/api/v1/winners?limit=50", "/api/v1/records?limit=50")
MEDIAN_S, LATE_S = 0.3, 2.0
"""Floors of a push: its median, and its 99th percentile."""
KILL_S = 3.0
"""Between two kills of the service."""
Times = tuple[list[float], list[float]]
"""Seconds of each write and of each read."""


@dataclass(frozen=True)
class Load:
    """What is asked of a service.

    `clients` threads ask at the same time; each pushes `batch` records in each of its `rounds`, and
    reads some pages. Meanwhile the service, of `workers` processes, is killed (SIGKILL) and started
    again `kills` times. With `own_pages` no two clients ask for the same page.
    """

    clients: int = 50
    rounds: int = 20
    batch: int = 10
    kills: int = 0
    workers: int = 1
    own_pages: bool = False


def main(load: Load, db: str | None) -> bool:
    """Run the service and its clients, print the results, and say whether the floors hold.

    Args:
        load: what is asked.
        db: URL of the database; None: SQLite in a folder that is removed.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _run(db or str(Path(folder) / "load.sqlite"), load)


def _run(where: str, load: Load) -> bool:
    store = open_store(where)
    before = _count(store)
    token = add_token(store.database, f"load-{time.time_ns()}")
    uploads = _uploads(load)
    service = Service(where, load.workers)
    try:
        own = _core_s(resource.RUSAGE_SELF)
        with ThreadPoolExecutor(load.clients) as pool:
            begin = time.perf_counter()
            work = [
                pool.submit(_client, service.url, token, mine, _pages(load, number))
                for number, mine in enumerate(uploads)
            ]
            killed = _kill(service, load.kills, work)
            times = [one.result() for one in work]
            seconds = time.perf_counter() - begin
        own = _core_s(resource.RUSAGE_SELF) - own
    finally:
        service.stop()
    print(f"{store.name}: {load.clients} clients, {seconds:.1f} s; killed {killed} times")
    print(f"of a core: service {_core_s(resource.RUSAGE_CHILDREN):.1f} s, clients {own:.1f} s")
    pushed, read = ([one for part in parts for one in part] for parts in zip(*times, strict=True))
    sent, kept = load.clients * load.rounds * load.batch, _count(store) - before
    floors = {} if load.kills else {"median": MEDIAN_S, "99th percentile": LATE_S}
    rows = [
        *_rows("writes", pushed, seconds, floors),
        *_rows("reads", read, seconds, {}),
        ("records", "lost", f"{sent - kept} of {sent}", "0", sent == kept),
    ]
    for what, figure, seen, floor, holds in rows:
        print(f"{what:<8} {figure:<16} {seen:>12} {floor:>8} {'' if holds else 'MISSED'}")
    return all(holds for *_, holds in rows)


def _count(store: Store) -> int:
    with store.database.reading() as connection:
        return connection.execute(select(func.count()).select_from(MeasurementRow)).scalar_one()


def _uploads(load: Load) -> list[list[bytes]]:
    """Return the bodies of each client's pushes; all clients write to the same problems.

    Writers that meet at the same rows are the hard case.
    """
    template = shipped_records()[0]
    problems = [GemmProblem(8 + n, 64, 64).key() for n in range(load.rounds * load.batch)]
    return [
        [
            _body([replace(template, problem=one, samples=(1.0 + number,)) for one in some])
            for some in (
                problems[turn * load.batch : (turn + 1) * load.batch] for turn in range(load.rounds)
            )
        ]
        for number in range(load.clients)
    ]


def _body(records: Sequence[Record]) -> bytes:
    stream = io.BytesIO()
    write_records(records, stream)
    return stream.getvalue()


def _pages(load: Load, number: int) -> list[str]:
    if not load.own_pages:
        return list(PAGES)
    return [f"{page}{'&' if '?' in page else '?'}client={number}" for page in PAGES]


def _core_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _kill(service: Service, kills: int, work: Sequence[Future[Times]]) -> int:
    """Kill and restart the service while clients work; return how often."""
    for done in range(kills):
        if not wait(work, timeout=KILL_S).not_done:
            return done
        service.kill()
    return kills


def _client(url: str, token: str, uploads: Sequence[bytes], pages: Sequence[str]) -> Times:
    """Push records, read pages in between; each waits where the service is being restarted."""
    writes, reads = [], []
    reader = _Reader(url)
    with Client(url, token) as client:
        for upload in uploads:
            writes.append(_timed(partial(client.contribute, upload, "records")))
            reads += [_timed(partial(reader.read, page)) for page in pages]
    return writes, reads


class _Reader:
    """Reads pages as a browser does, and packs out none."""

    def __init__(self, url: str) -> None:
        self._http = HTTPConnection(urlsplit(url).netloc, timeout=60)

    def read(self, page: str) -> None:
        """Read a page; wait until the service is there."""
        for _ in range(600):
            try:
                self._http.request("GET", page, headers={"Accept-Encoding": "gzip"})
                answer = self._http.getresponse()
                answer.read()
            except (OSError, HTTPException):
                self._http.close()
                time.sleep(0.1)
            else:
                if answer.status != HTTPStatus.OK:
                    raise SystemExit(f"{page} is answered by {answer.status}")
                return
        raise SystemExit("the service does not come back")


def _timed(action: Call) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _rows(
    what: str, times: list[float], seconds: float, floors: dict[str, float]
) -> list[tuple[str, str, str, str, bool]]:
    """Return what was seen of some requests: what, which figure, its value, its floor, if it holds.

    Args:
        what: they are.
        times: seconds of each.
        seconds: that all of them took.
        floors: seconds that a figure may have.
    """
    late = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    figures = {"median": median(times), "99th percentile": late, "longest": max(times)}
    rate = (what, "per second", f"{len(times) / seconds:.0f}", "", True)
    return [rate] + [
        (
            what,
            name,
            f"{1e3 * value:.0f} ms",
            f"{1e3 * floors[name]:.0f} ms" if name in floors else "",
            value <= floors.get(name, value),
        )
        for name, value in figures.items()
    ]


class Service:
    """The service in processes of its own."""

    def __init__(self, where: str, workers: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "oclgen_cli", "db", "serve", "--port", str(port)]
        limits = ["--reads", "100000", "--writes", "100000", "--connections", "1000"]
        more = ["--workers", str(workers)] if workers > 1 else []
        self._command = [*command, *limits, *more, "--db", where]
        self.url = f"http://127.0.0.1:{port}/"
        self._start()

    def kill(self) -> None:
        """End all of it without notice, and start it again."""
        os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()
        self._start()

    def stop(self) -> None:
        """End it."""
        self._running.terminate()
        self._running.wait()

    def _start(self) -> None:
        out = subprocess.DEVNULL  # a line per request would be another cost
        self._running = subprocess.Popen(
            self._command, stdout=out, stderr=out, start_new_session=True
        )
        _Reader(self.url).read("/healthz")
