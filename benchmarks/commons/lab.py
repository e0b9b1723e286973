"""What every case needs: a folder, a database with one tuned product, records and a service.

A case is a function that returns what it saw if harm was done, and "" otherwise.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from oclgen import GENERATOR_VERSION
from oclgen.families import FAMILIES
from oclgen.limits import DeviceInfo, Limits
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from tuned_db import Chooser, Record, Store, open_store, read_records, write_records
from tuned_db.records.digests import digest_of
from tuned_db.records.exchange import SCHEMA_LINE
from tuned_db.trust.tokens import add_token

INFO = DeviceInfo(
    "A processor", "nobody", "cpu", "cpu x86_64 none", "a runtime", "OpenCL 3.0", "1", 4
)
LIMITS = Limits(
    kind="cpu", local_bytes=1 << 18, max_work_group=4096, max_work_items=(4096,) * 3,
    max_alloc_bytes=1 << 30, global_bytes=1 << 32, compute_units=4, native_float_width=8,
)  # fmt: skip
PRODUCT = GemmProblem(256, 256, 256)
TUNED = Variant("gemm_register", FAMILIES["gemm_register"].DEFAULT)
TUNED_MS = 0.82
PEAK = (100.0, 10.0)


class Lab:
    """A folder that is thrown away; databases in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0

    def store(self, *, tuned: bool = True) -> Store:
        """Return a new database; with `tuned`, `PRODUCT` was measured, and the peak is known."""
        self._made += 1
        store = open_store(self.folder / f"{self._made}.sqlite")
        if tuned:
            store.of(INFO).note_peak(*PEAK)
            store.of(INFO).record(PRODUCT, TUNED, Measurement((TUNED_MS,) * 5, error=1e-7))
        return store


def line(
    family: str = TUNED.family,
    config: dict[str, Any] | None = None,
    problem: Problem = PRODUCT,
    **changes: Any,
) -> str:
    """Return a line of an export.

    Args:
        family: of the variant.
        config: parameters in which it is not the family's `DEFAULT`.
        problem: what was computed.
        changes: fields of the line in place of usual ones.
    """
    values = {**Variant(family, FAMILIES[family].DEFAULT).values(), **(config or {})}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    record = Record(
        problem=problem.key(), family=family, config=text, samples=(0.01,), error=1e-7, trials=20,
        device=INFO, generator=GENERATOR_VERSION, created="2026-01-02T03:04:05Z", version="0.1.0",
        digest=_digest(problem, family, values),
    )  # fmt: skip
    return json.dumps(json.loads(record.to_line()) | changes)


def _digest(problem: Problem, family: str, values: dict[str, Any]) -> str | None:
    try:
        return digest_of(problem, Variant.from_values(family, values))
    except ValueError:  # of a config that no family reads
        return None


def read(*lines: str) -> list[Record]:
    """Return the records in lines of an export."""
    return read_records("lines", io.BytesIO("\n".join((SCHEMA_LINE, *lines, "")).encode()))


def chooser(store: Store) -> Chooser:
    """Return what chooses on the device of these cases."""
    return Chooser(store, INFO, LIMITS)


def records(count: int) -> list[Record]:
    """Return records of different problems."""
    made = read(line())[0]
    return [
        Record(**{name: getattr(made, name) for name in made.__dataclass_fields__} | {
            "problem": GemmProblem(8 + n // 500, 8 + n % 500, 64).key(),
        })
        for n in range(count)
    ]  # fmt: skip


def body(given: list[Record]) -> bytes:
    """Return records as a file."""
    stream = io.BytesIO()
    write_records(given, stream)
    return stream.getvalue()


@dataclass(frozen=True)
class Service:
    """A service in a process of its own."""

    host: str
    port: int
    token: str
    store: Store
    pid: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The header that lets a request write."""
        return {"Authorization": f"Bearer {self.token}"}

    def cpu_s(self) -> float:
        """Return the seconds of processor time that it took."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(store: Store, *options: str) -> Iterator[Service]:
    """Serve a database as the command line does."""
    token = add_token(store.database, "alice")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = str(store.database.engine.url.database)
    command = [sys.executable, "-m", "oclgen_cli", "db", "serve", "--db", where]
    running = subprocess.Popen(
        [*command, "--port", str(port), *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    service = Service("127.0.0.1", port, token, store, running.pid)
    try:
        _await(service.url)
        yield service
    finally:
        running.kill()
        running.wait()


def _await(url: str) -> None:
    for _ in range(600):
        try:
            httpx.get(f"{url}/openapi.json")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"the service at {url} does not start")


Case = Callable[[Lab], str]
CASES: list[tuple[str, str, Case]] = []
"""Number of the finding in the review, what would be harm, and the case."""


def case(number: str, harm: str) -> Callable[[Case], Case]:
    """Add a function to the cases; a decorator.

    Args:
        number: of the finding.
        harm: what must not happen.
    """

    def add(function: Case) -> Case:
        CASES.append((number, harm, function))
        return function

    return add
