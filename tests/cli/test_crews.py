"""Many devices at once: processes of this machine, a Ray cluster; killed ones lose one turn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from oclgen.keys import parse_key
from oclgen.opencl import runtimes
from oclgen.opencl.device import Device, devices
from tests import samples
from tests.cli.command_runs import Run
from tuned_db import open_store

KEYS = ("gemm:24x16x8:fp32:nn:b1:-:-:none", "gemm:16x24x8:fp32:nn:b1:-:-:none")
GEMMS = ("--gemm", "24x16x8", "--gemm", "16x24x8")
TRIALS = 3
HANGS = 900.0
"""Seconds after which a test is taken to hang; a loaded machine needs minutes."""

pytestmark = pytest.mark.timeout(3 * HANGS)


LIBRARIES = {"Intel(R) OpenCL": "intelocl", "Portable Computing Language": "pocl"}
"""Part of a runtime's library by the runtime's name."""


def of_first_runtime() -> tuple[Sequence[Device], dict[str, str]]:
    """Return the devices of the first one's runtime, and what lets a process see no others.

    A second kind of device doubles the time; `tests/search_spaces/test_spread.py` spreads over
    several. All devices where the runtime's library is not known, or with `THOROUGH`.
    """
    first = devices()[0].info.runtime
    if samples.THOROUGH or first not in LIBRARIES:
        return devices(), {}
    same = [device for device in devices() if device.info.runtime == first]
    return same, {runtimes.CHOICE: LIBRARIES[first]}


def trials(where: str, on: Sequence[Device]) -> list[int]:
    """Distinct variants tried, for each device and problem."""
    store = open_store(where)
    return [store.of(one.info).trials(parse_key(key)) for one in on for key in KEYS]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened for {HANGS} s"
        time.sleep(0.2)


def children(of: int, name: str) -> list[int]:
    """Living descendants of a process whose command line contains `name`, as Linux lists them."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = (int(stat[1]), (folder / "cmdline").read_text())
    family = {of}
    while more := {pid for pid, (parent, _) in parents.items() if parent in family} - family:
        family |= more
    return sorted(pid for pid in family - {of} if name in parents[pid][1])


def marked(mark: str) -> list[int]:
    """Living processes in whose environment the text stands; a child's parent may be gone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a tuning of both products; what is left of it is killed at the end.

    A cluster outlives a driver that was killed: a gigabyte of memory and a tenth of a core.
    """
    running: list[subprocess.Popen[str]] = []
    mark = uuid.uuid4().hex

    def begin(*options: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "oclgen_cli", "tune", *GEMMS, *options]
        with (tmp_path / f"log{len(running)}").open("w") as log:
            tuning = subprocess.Popen(
                [*command, "--trials", str(TRIALS), "--family", "gemm_register"],
                stdout=log,
                stderr=log,
                text=True,
                env={**os.environ, **variables, "OF_THE_TEST": mark},
            )
        running.append(tuning)
        return tuning

    yield begin
    for left in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    for tuning in running:
        tuning.wait()
    for log in sorted(tmp_path.glob("log*")):
        print(log.read_text())  # shown where the test failed


def test_a_killed_process_of_the_pool_loses_one_turn(
    any_device: None,
    start: Callable[..., subprocess.Popen[str]],
    own_database: Path,
    tmp_path: Path,
) -> None:
    where = str(own_database)
    on, variables = of_first_runtime()
    tuning = start("--workers", "2", **variables)
    wait_for(lambda: own_database.exists() and sum(trials(where, on)) > 0)
    victims = children(tuning.pid, "spawn_main")
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    assert tuning.wait(HANGS) == 0
    assert trials(where, on) == [TRIALS] * len(trials(where, on))
    rates = re.findall(r"│ +[\d.e-]+ +│ +[\d.]+ +│ +\d+%", (tmp_path / "log0").read_text())
    assert len(rates) == len(trials(where, on))  # each part of its device's peak


def test_driver_workers_and_connections_may_die_in_a_cluster(
    any_device: None, start: Callable[..., subprocess.Popen[str]], postgres: str
) -> None:
    pytest.importorskip("ray")
    psycopg = pytest.importorskip("psycopg")
    asked = ("--cluster", "local", "--db", postgres, "--study", postgres)
    on, variables = of_first_runtime()
    first = start(*asked, **variables)
    wait_for(lambda: sum(trials(postgres, on)) > 0)
    first.send_signal(signal.SIGKILL)
    first.wait()
    known = sum(trials(postgres, on))

    second = start(*asked, **variables)
    wait_for(lambda: sum(trials(postgres, on)) > known or second.poll() is not None)
    for victim in children(second.pid, "ray::take")[:1]:
        os.kill(victim, signal.SIGKILL)
    then = sum(trials(postgres, on))
    wait_for(lambda: sum(trials(postgres, on)) > then or second.poll() is not None)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert second.wait(HANGS) == 0
    assert trials(postgres, on) == [TRIALS] * len(trials(postgres, on))


def test_a_cluster_needs_a_database_that_nodes_can_share(run: Run) -> None:
    result = run("tune", *GEMMS, "--cluster", "auto")
    assert result.exit_code == 2
    assert "--db postgresql://" in result.stderr
    both = run("tune", *GEMMS, "--cluster", "auto", "--workers", "2")
    assert "not both" in both.stderr
