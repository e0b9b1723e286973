"""Requests of strangers to a service, and answers of a strange service."""

from __future__ import annotations

import gzip
import io
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from subprocess import PIPE, Popen, TimeoutExpired
from sys import executable

import httpx

from benchmarks.commons.lab import INFO, Lab, body, case, line, read, records, serving
from tuned_db.records.exchange import SCHEMA_LINE
from tuned_db.service.client import Client

HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "


@case("10", "half headers keep connections for ever")
def slow_headers(lab: Lab) -> str:
    """Open connections that never end their headers, more than an address should have."""
    with serving(lab.store()) as service:
        opened = []
        for _ in range(200):
            one = socket.create_connection((service.host, service.port))
            with suppress(OSError):
                one.sendall(HALF)
            opened.append(one)
        time.sleep(15)
        left = sum(_is_open(one) for one in opened)
        for one in opened:
            one.close()
    return "" if not left else f"{left} of 200 are open after 15 s"


def _is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@case("11", "a header of the client's own voids the rate limit")
def false_addresses(lab: Lab) -> str:
    """Guess tokens, each time from another address."""
    with serving(lab.store()) as service, httpx.Client(base_url=service.url) as web:
        codes = [
            web.post("/api/v1/records", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code
            for n in range(60)
        ]
    return "" if 429 in codes else "none of 60 guesses was refused"


@case("12", "one reader of one page takes the machine")
def heavy_page(lab: Lab) -> str:
    """Read a page of hundreds of winners from eight threads."""
    store = lab.store(tuned=False)
    store.merge(records(450))
    with serving(store) as service:
        with httpx.Client(base_url=service.url) as web:
            web.get("/devices/1")
        before, begin = service.cpu_s(), time.monotonic()

        def read_pages(_: int) -> int:
            with httpx.Client(base_url=service.url, timeout=30) as web:
                found = [web.get("/devices/1").status_code for _ in range(20)]
                return found.count(200)

        with ThreadPoolExecutor(8) as pool:
            pages = sum(pool.map(read_pages, range(8)))
        spent = service.cpu_s() - before
        share = spent / (time.monotonic() - begin)
    each = spent / max(pages, 1)
    return "" if each < 0.02 or share < 0.5 else f"{pages} pages, {1e3 * each:.0f} ms each"


@case("13", "an upload of 7000 records takes 5 s, or holds others up for 1 s")
def large_upload(lab: Lab) -> str:
    """Post 7000 records while another writer writes."""
    content, waits = body(records(7000)), list[float]()
    with serving(lab.store()) as service:
        web = httpx.Client(base_url=service.url, headers=service.headers, timeout=120)
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                begin = time.monotonic()
                service.store.of(INFO).note_peak(1.0, 1.0)
                waits.append(time.monotonic() - begin)
                time.sleep(0.05)

        thread = threading.Thread(target=write)
        thread.start()
        begin, used = time.monotonic(), service.cpu_s()
        try:
            status = web.post("/api/v1/records", content=content).status_code
        finally:
            done.set()
            thread.join()
        spent, used = time.monotonic() - begin, service.cpu_s() - used
    waited = max(waits, default=inf)
    said = f"{status}, {spent:.1f} s, {used:.1f} s of a core, others waited {waited:.2f} s"
    print(f"  7000 records: {said}")
    return "" if status == 200 and min(spent, used) < 5 and waited < 1 else said


@case("13", "an import of 100,000 records takes a minute")
def large_import(lab: Lab) -> str:
    """Import a file of 100,000 lines."""
    path = lab.folder / "large.jsonl"
    path.write_bytes(body(records(100_000)))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    command = [executable, "-m", "oclgen_cli", "db", "import", str(path)]
    running = Popen([*command, "--db", str(lab.folder / "large.sqlite")], stdout=PIPE, stderr=PIPE)
    try:
        _, said = running.communicate(timeout=240)
    except TimeoutExpired:
        running.kill()
        running.communicate()
        return "it took more than 240 s"
    spent = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"  100,000 records: {spent:.1f} s, {cpu_s:.1f} s of a core, {used.ru_maxrss >> 10} MiB")
    if running.returncode:
        return said.decode()[-200:]
    return "" if min(spent, cpu_s) < 60 else f"it took {spent:.0f} s"


Answer = Callable[[BaseHTTPRequestHandler, int], None]


@contextmanager
def _strange(answer: Answer) -> Iterator[str]:
    """Serve what `answer` writes to the n-th request."""
    count = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal count
            count += 1
            with suppress(OSError):
                answer(self, count)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def _pull(url: str, most_s: float) -> str:
    """Pull everything in a process of its own; return how that went on, "" if it was refused."""
    code = (
        "import resource, sys\n"
        "from tuned_db.service.client import Client, ServiceError\n"
        "with Client(sys.argv[1]) as client:\n"
        "    try:\n"
        "        count = sum(1 for _ in client.pull())\n"
        "        print('read', count, 'pages')\n"
        "    except ServiceError as error:\n"
        "        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "        print('' if mib < 500 else f'{mib} MiB resident')\n"
    )
    running = Popen([executable, "-c", code, url], stdout=PIPE)
    try:
        said, _ = running.communicate(timeout=most_s)
    except TimeoutExpired:
        running.kill()
        running.communicate()
        return f"it reads after {most_s:.0f} s"
    return said.decode().strip()


def _page(handler: BaseHTTPRequestHandler, content: bytes, **headers: str) -> None:
    handler.send_response(200)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


@case("14", "a small compressed answer fills memory")
def bomb(lab: Lab) -> str:
    """Pull 1 GB of zeros in 1 MB."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        for _ in range(1024):
            stream.write(bytes(1 << 20))
    content = packed.getvalue()
    with _strange(lambda one, _: _page(one, content, Content_Encoding="gzip")) as url:
        return _pull(url, 60)


@case("14", "pages that always name a next one are followed for ever")
def endless_pages(lab: Lab) -> str:
    """Pull pages that never end."""
    content = f"{SCHEMA_LINE}\n{line()}\n".encode()

    def answer(one: BaseHTTPRequestHandler, count: int) -> None:
        following = f'</api/v1/records?after={count % 7}{"0" * count}>; rel="next"'
        _page(one, content, Link=following if count < 200 else f'</x?y={count}>; rel="next"')

    with _strange(answer) as url:
        return _pull(url, 30)


@case("14", "an answer that drips never ends")
def dripping(lab: Lab) -> str:
    """Pull an answer that comes byte by byte."""

    def answer(one: BaseHTTPRequestHandler, _: int) -> None:
        one.send_response(200)
        one.send_header("Content-Length", "1000000")
        one.end_headers()
        for _byte in range(1_000_000):
            one.wfile.write(b" ")
            time.sleep(0.5)

    with _strange(answer) as url:
        return _pull(url, 150)


@case("19", "push to a closed port says nothing for a minute")
def closed_port(lab: Lab) -> str:
    """Push to a port on which no service listens."""
    store = lab.store()
    command = [executable, "-m", "oclgen_cli", "db", "push", "http://127.0.0.1:9", "--token", "x"]
    where = str(store.database.engine.url.database)
    running = Popen([*command, "--db", where], stdout=PIPE, stderr=PIPE)
    try:
        _, said = running.communicate(timeout=8)
    except TimeoutExpired:
        running.kill()
        _, said = running.communicate()
    return "" if b"127.0.0.1" in said else "nothing in 8 s"


@case("22", "who pushed what and when is not kept")
def audit(lab: Lab) -> str:
    """Push, then ask for the batch and undo it."""
    store = lab.store()
    with serving(store) as service, Client(service.url, service.token) as client:
        client.push(read(line(config={"split_k": 2})))
    try:
        from tuned_db.storage.batches import list_batches
        from tuned_db.trust.withdrawn import undo
    except ImportError:
        return "batches are not kept"
    (batch,) = list_batches(store.database)
    undo(store, batch.id)
    return "" if len(store.history()) == 1 and batch.token == "alice" else "it stays"


@case("Missing 4", "nothing tells a watchdog how the service is")
def health(lab: Lab) -> str:
    """Ask for /healthz and /metrics."""
    with serving(lab.store()) as service, httpx.Client(base_url=service.url) as web:
        codes = [web.get(path).status_code for path in ("/healthz", "/metrics")]
    return "" if codes == [200, 200] else f"{codes}"
