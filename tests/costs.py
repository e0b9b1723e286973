"""Prints what a run costs: processor seconds per file and per test, and the peak of memory.

`python -m pytest -n 2 -p tests.costs`, on Linux. Child processes count for the test that runs
meanwhile; those that outlive their parents are taken in by the run's first process. What the
measuring itself costs, some 3 %, is in the sum.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_S = 1.0
"""Seconds between two samples of memory, at least."""
SHARE = 1 / 30
"""Of a core's time that samples may take: each walks the pages of all processes."""
SHOWN = 40
"""Rows of each table."""
START_OF_STACK = 25
"""Place in `/proc/PID/stat`, behind the name. Each program that starts has another one."""
ALIKE = 0.1
"""A forked process that has written to most of its memory has as much of its own as its parent."""
ADOPT_ORPHANS = 36
"""Linux's `PR_SET_CHILD_SUBREAPER`."""
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has ended meanwhile
        return ""


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all below it; children are listed by the thread that started them."""
    yield pid
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        for child in _read(f"{thread}/children").split():
            yield from _tree(int(child))


def spent() -> float:
    """Return the processor seconds of this process and all below it, ended ones included."""
    stats = [_read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in _tree(os.getpid())]
    return sum(int(ticks) for fields in stats for ticks in fields[11:15]) / TICKS


def used() -> list[tuple[int, str]]:
    """Return megabytes and command of this process and all below it.

    Memory that several processes share is shared out among them. A child that has yet to become
    another program runs in its parent's memory, which is counted once.
    """
    found: list[tuple[int, str]] = []
    known: list[tuple[str, int]] = []
    for pid in _tree(os.getpid()):
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]
        sizes = {name: int(size.split()[0]) for name, _, size in (x.partition(":") for x in lines)}
        if len(fields) <= START_OF_STACK or "Pss" not in sizes:
            continue
        stack, own = fields[START_OF_STACK], sizes["Private_Dirty"]
        if any(stack == other and abs(own - its) <= its * ALIKE for other, its in known):
            continue
        known.append((stack, own))
        command = " ".join(_read(f"/proc/{pid}/cmdline").split("\0"))
        found.append((sizes["Pss"] >> 10, command[:90]))
    return sorted(found, reverse=True)


class Costs:
    """Notes costs where tests run, and adds them up in the process that reports."""

    def __init__(self) -> None:
        self.before = 0.0
        self.tests: defaultdict[str, float] = defaultdict(float)
        self.peak: list[tuple[int, str]] = []
        self.ended = threading.Event()

    def watch(self) -> None:
        """Sample memory until the run ends."""
        taken = 0.0
        while not self.ended.wait(max(EVERY_S, taken / SHARE)):
            began = time.thread_time()
            self.peak = max(self.peak, used(), key=lambda rows: sum(row[0] for row in rows))
            taken = time.thread_time() - began

    def pytest_sessionstart(self) -> None:
        if not IS_WORKER:
            ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)
            threading.Thread(target=self.watch, daemon=True).start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self.before = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            now = spent()
            report.processor_s, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid] += getattr(report, "processor_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        self.ended.set()
        line = terminalreporter.write_line
        files: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.tests.items():
            files[name.partition("::")[0]] += seconds
        for table in (files, self.tests):
            terminalreporter.section("processor seconds")
            for name, seconds in sorted(table.items(), key=lambda row: -row[1])[:SHOWN]:
                line(f"{seconds:8.2f} {name}")
        terminalreporter.section("megabytes at the peak")
        for megabytes, command in self.peak:
            line(f"{megabytes:8} {command}")
        peak = sum(megabytes for megabytes, _ in self.peak)
        line(f"{spent():.0f} processor seconds, {sum(self.tests.values()):.0f} of them in tests")
        line(f"{peak} MB at the peak")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the run."""
    config.pluginmanager.register(Costs(), "costs of tests")
