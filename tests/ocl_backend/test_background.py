"""Tuning beside a running program: who runs when, what is stored, and what serves afterwards."""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend import background, tunable
from ocl_backend.background import Tuning
from ocl_backend.dispatch import tuned
from ocl_backend.runtime.idle import Share
from oclgen.problem import GemmProblem, Problem
from search_spaces.background import GO, RAN, READY, Server, Won
from search_spaces.progress import Best, Budget, Progress
from tests.ocl_backend.cpu_twin import place
from tuned_db import open_store

pytestmark = pytest.mark.usefixtures("unvectorised")

PROBLEM = GemmProblem(8, 9, 10)


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


@pytest.fixture
def own_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A database of its own."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    tuned.reload_tuned()
    yield
    tunable.background_enable(False)
    tuned.reload_tuned()


def tuning(share: float = 0.05) -> tuple[Tuning, Connection, Clock, list[float]]:
    ours, theirs = Pipe()
    clock, swaps = Clock(), list[float]()
    made = Tuning(ours, Share(share, clock), lambda: swaps.append(clock.now), clock)
    return made, theirs, clock, swaps


def answer(search: Connection, clock: Clock, seconds: float) -> Thread:
    """Let a variant run for `seconds` as soon as there is leave for it."""

    def run() -> None:
        while search.poll(30) and search.recv() != GO:
            pass
        clock.now += seconds
        search.send(RAN)

    thread = Thread(target=run)
    thread.start()
    return thread


def test_runs_keep_to_their_share_of_the_time() -> None:
    made, search, clock, _ = tuning(share=0.05)
    for _ in range(3):
        began = clock.now
        search.send(READY)
        thread = answer(search, clock, seconds=0.1)
        made.use_moment()
        thread.join()
        search.send(READY)
        clock.now = began + 1.99
        made.use_moment()
        assert not search.poll()
        clock.now = began + 2.01
        thread = answer(search, clock, seconds=0.0)
        made.use_moment()
        thread.join()


def test_nothing_runs_that_did_not_ask() -> None:
    made, search, _, _ = tuning()
    made.use_moment()
    assert not made.waits
    assert not search.poll()
    search.send(READY)
    assert made.waits


def test_the_search_hears_of_each_problem_once() -> None:
    made, search, _, _ = tuning()
    made.met(PROBLEM)
    made.met(PROBLEM)
    made.use_moment()
    assert search.recv() == [PROBLEM]
    made.met(PROBLEM)
    made.use_moment()
    assert not search.poll()


def test_winners_serve_at_a_moment_and_seldom() -> None:
    made, search, clock, swaps = tuning()
    made.use_moment()
    assert swaps == []
    for moment in (1.0, 2.0, 30.9, 31.0):
        search.send(Won(PROBLEM.key(), 2.0, 1.0))
        clock.now = moment
        made.use_moment()
    assert swaps == [1.0, 31.0]


def test_a_search_that_ends_disturbs_nobody() -> None:
    made, search, _, swaps = tuning()
    search.send(READY)
    search.close()
    made.met(PROBLEM)
    made.use_moment()
    made.use_moment()
    assert made.is_over
    assert not made.waits
    assert swaps == []


class FakeSession:
    """Runs two variants of each problem; the second wins."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tuned: list[dict[Problem, int]] = []

    def __enter__(self) -> FakeSession:
        """Take the device."""
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tune(self, problems: dict[Problem, int], budget: Budget, report: Any) -> None:
        """Tell of a trial as the search does, each with leave."""
        self.tuned.append(problems)
        for problem in problems:
            for ms, name in ((2.0, "first"), (1.0, "second")):
                with self.server.leave():
                    pass
                best: Any = Best(name, ms)  # type: ignore[arg-type]
                report(
                    Progress(problem, 0, 1, 1, budget.trials, best.variant, None, best, {}, 0.0)  # type: ignore[arg-type]
                )


def test_the_search_asks_before_each_run_and_tells_what_won() -> None:
    ours, theirs = Pipe()
    server = Server(theirs, trials=2)
    session: Any = FakeSession(server)
    thread = Thread(target=server.run, args=(session,))
    thread.start()
    ours.send([PROBLEM])
    for _ in range(2):
        assert ours.recv() == READY
        ours.send(GO)
        assert ours.recv() == RAN
    assert ours.recv() == Won(PROBLEM.key(), 2.0, 1.0)
    ours.close()  # the program ends: so does the search
    thread.join()
    assert session.tuned == [{PROBLEM: 1}]


def test_what_the_search_sends_is_of_a_module_that_the_program_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[Connection, int, int]] = []
    monkeypatch.setattr("search_spaces.background.main", lambda *given: begun.append(given))
    _, theirs = Pipe()
    monkeypatch.setattr(sys, "argv", ["", str(os.dup(theirs.fileno())), "2", "5"])
    runpy.run_module("search_spaces.background", run_name="__main__")
    ((_, index, trials),) = begun  # a `main` of the module `__main__` sends what none can read
    assert (index, trials) == (2, 5)


def test_a_program_gets_its_own_records(
    device: Any, own_database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "SWAP_S", 0.0)
    monkeypatch.setattr(tunable._state.limits, "iterations", 3)
    monkeypatch.setattr(tunable._state.limits, "share", 0.5)
    tunable.background_enable()
    a, b = (torch.randn(48, 40).to(place(device)), torch.randn(40, 56).to(place(device)))
    want = a.cpu() @ b.cpu()
    problem, store = GemmProblem(48, 56, 40), open_store().of(device.info)
    while store.trials(problem) < 3:
        torch.testing.assert_close((a @ b).cpu(), want, rtol=1e-5, atol=1e-5)
        time.sleep(0.01)
    tunable.background_enable(False)
    tuned.reload_tuned()
    (row,) = torch.ocl.explain(torch.mm, a, b).rows
    assert row.rung == "exact"


def test_a_step_of_an_optimizer_is_a_moment(device: Any, own_database: None) -> None:
    tunable.background_enable()
    made, search, clock, _ = tuning()
    running: Any = background._on
    running._running[device.index] = EndedProcess(), made
    layer = torch.nn.Linear(24, 40).to(place(device))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(17, 24, device=place(device))).sum().backward()
    search.send(READY)
    thread = answer(search, clock, seconds=0.1)
    optimizer.step()  # waits for the device, and then for the variant
    thread.join()
    search.send(READY)
    optimizer.step()
    assert not search.poll()


class EndedProcess:
    """Stands for the process that searches."""

    def kill(self) -> None:
        """End it."""

    def wait(self) -> None:
        """Wait for its end."""


def test_deterministic_programs_are_left_alone(device: Any, own_database: None) -> None:
    tunable.background_enable()
    torch.use_deterministic_algorithms(True)
    try:
        a = torch.ones(19, 24, device=place(device))
        (a @ a.t()).sum().item()
        assert background._on is not None
        assert background._on._running == {}
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_share_is_a_part_of_the_time(own_database: None) -> None:
    for wrong in (0.0, 0.6, -1.0):
        with pytest.raises(ValueError, match="at most"):
            tunable.set_background_share(wrong)
    assert not tunable.background_is_enabled()
    assert tunable.get_background_share() == 0.05
