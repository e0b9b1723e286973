"""Planted faults: each costs its own trial, is kept with its reason, and the tuning goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.measurement import Measurement
from oclgen.measuring.worker import SHORTEST_RUN_S, USUAL, Worker, WorkerError
from oclgen.opencl.device import Device, devices
from oclgen.variant import Variant
from search_spaces import space
from search_spaces.progress import Budget, TuneResult
from search_spaces.tune import Tuner, tune
from tests.faults import planted
from tuned_db import open_store

pytestmark = pytest.mark.usefixtures("unvectorised")

HERE = Path(__file__).parent
REASONS = {
    "wrong": ("correctness", "relative L2"),
    "unwritten": ("correctness", "16 of 384 elements of c are not finite"),
    "before": ("correctness", "wrote out of bounds: 64 bytes before c"),
    "behind": ("correctness", "wrote out of bounds: 64 bytes behind c"),
    "workspace": ("correctness", "wrote out of bounds: 64 bytes behind spare"),
    "counters": ("correctness", "left 16 bytes of counters that are not zero"),
    "input": ("correctness", "wrote to its input a"),
    "endless": ("timeout", "running took longer than 3 s"),
    "refused": ("compile", "error"),
    "crash": ("compile", "compiling ended the process (SIGABRT)"),
}
"""Fault, what it is kept as, and a part of its reason."""


@pytest.fixture(autouse=True)
def planted_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE / "child")  # children have our path
    monkeypatch.setitem(FAMILIES, planted.NAME, planted)
    every = {"fault": tuple(planted.FAULTS)}
    monkeypatch.setitem(space.SPACES, planted.NAME, lambda p, li: every)


@pytest.fixture
def first(any_device: None) -> Device:
    """Return the first device: the faults planted here do not depend on the runtime."""
    return devices()[0]


def worker_on(device: Device, **more: Any) -> Worker:
    worker = Worker(device.index, device.info, **more)
    worker.timeouts["running"] = 3.0
    return worker


def tuned(device: Device, worker: Worker, database: Path, trials: int = 20) -> TuneResult:
    tuner = Tuner(
        limits=device.limits,
        measure=worker.measure,
        results=open_store(database).of(device.info),
        budget=Budget(trials),
        families=frozenset({planted.NAME}),
        build_ahead=worker.build_ahead,
        ahead=worker.builders,
        overlap=worker.overlaps,
    )
    (result,) = tune(tuner, [planted.PROBLEM])
    return result


def rows(database: Path) -> dict[str, tuple[str, str, int]]:
    """Return invalidity, reason and seed of the first measurement of each fault."""
    import sqlite3

    with sqlite3.connect(database) as connection:
        asked = "SELECT config, invalidity, reason, seed FROM oclgen_measurements ORDER BY id DESC"
        found = connection.execute(asked).fetchall()
    return {json.loads(config)["fault"]: (kind, why, seed) for config, kind, why, seed in found}


def test_every_fault_costs_one_trial_and_is_kept(device: Device, tmp_path: Path) -> None:
    """Every other device builds ahead in processes of their own."""
    database = tmp_path / "tuned.sqlite"
    with worker_on(device, builders=2 * (device.index % 2)) as worker:
        result = tuned(device, worker, database)
    assert result.trials == len(planted.FAULTS)
    assert result.outcomes["none"] == 2
    assert result.best is not None
    assert result.best.variant.config.fault == "none"
    kept = rows(database)
    for fault, (invalidity, reason) in REASONS.items():
        assert kept[fault][0] == invalidity, fault
        assert reason in kept[fault][1], fault
    assert kept["none"][0] == kept["slow"][0] == "none"
    assert {seed for kind, _, seed in kept.values() if kind in ("none", "correctness")} == {
        worker.seed
    }


def test_what_is_usual_for_a_problem_bounds_the_time_of_its_variants(
    first: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oclgen.measuring.worker.SHORTEST_RUN_S", 0.5)
    endless = Variant(planted.NAME, planted.Config("endless"))
    with Worker(first.index, first.info, builders=0) as worker:
        worker._ran[planted.PROBLEM] = 0.0
        hung = worker.measure(planted.PROBLEM, endless)
        assert (hung.invalidity, hung.reason) == ("timeout", "running took longer than 0 s")
        assert worker._ran == {planted.PROBLEM: 0.0}


def test_the_slowest_that_was_timed_tells_what_is_usual(first: Device) -> None:
    fine, wrong = (Variant(planted.NAME, planted.Config(fault)) for fault in ("none", "wrong"))
    with worker_on(first, builders=0) as worker:
        assert worker._may_run(planted.PROBLEM) == inf
        assert not worker.measure(planted.PROBLEM, wrong).ok
        assert worker._may_run(planted.PROBLEM) == inf
        assert worker.measure(planted.PROBLEM, fine).ok
        usual = worker._ran[planted.PROBLEM]
        assert usual > 0
        assert worker._may_run(planted.PROBLEM) == max(USUAL * usual, SHORTEST_RUN_S)


def test_each_run_draws_its_inputs_anew(first: Device) -> None:
    assert Worker(first.index, first.info).seed != Worker(first.index, first.info).seed


def test_a_worker_that_is_killed_costs_one_trial(first: Device, tmp_path: Path) -> None:
    database = tmp_path / "tuned.sqlite"
    with worker_on(first, builders=0) as worker:
        plain, calls = worker.measure, list[object]()

        def measure(*asked: Any) -> Measurement:
            calls.append(asked)
            if len(calls) == 2 and worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
            return plain(*asked)

        worker.measure = measure  # type: ignore[method-assign, assignment]
        result = tuned(first, worker, database, trials=5)
    assert result.trials == 5
    assert sum("SIGKILL" in why for _, why, _ in rows(database).values()) == 1


def test_a_builder_that_is_killed_costs_its_build(first: Device) -> None:
    def measured(fault: str, signals: tuple[signal.Signals, ...] = ()) -> Measurement:
        variant = Variant(planted.NAME, planted.Config(fault))
        if signals and child.pid:
            os.kill(child.pid, signals[0])
        worker.build_ahead(planted.PROBLEM, variant)
        if signals and child.pid:
            os.kill(child.pid, signals[1])
        return worker.measure(planted.PROBLEM, variant)

    with worker_on(first, builders=1) as worker:
        (child,) = worker._builders.children
        assert measured("none").ok
        lost = measured("slow", (signal.SIGSTOP, signal.SIGKILL))
        assert (lost.invalidity, "SIGKILL" in lost.reason) == ("compile", True)
        assert measured("none").ok


def test_a_driver_that_changed_ends_the_tuning_and_blames_no_variant(
    first: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times with the new driver must not be kept under the old one's name."""
    database = tmp_path / "tuned.sqlite"
    worker = worker_on(first, builders=0)
    stale = replace(first.info, driver_version="0.1")
    with (
        pytest.raises(WorkerError, match="has its driver changed"),
        Worker(first.index, stale),
    ):
        pass
    with worker:
        tuned(first, worker, database, trials=2)
        worker.close()
        monkeypatch.setenv(planted.DRIVER, "0.1")
        with pytest.raises(WorkerError, match="has its driver changed"):
            tuned(first, worker, database, trials=4)
    assert len(rows(database)) == 2
    monkeypatch.delenv(planted.DRIVER)
    with worker_on(first, builders=0) as again:
        assert tuned(first, again, database, trials=4).trials == 2


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r} + "/child"]
from tests.faults import planted, test_faults
from oclgen.opencl.device import devices
from search_spaces import space
from tuned_db import DatabaseError
planted.enter()
few = {{"fault": ("none", "slow", "wrong", "before")}}
space.SPACES[planted.NAME] = lambda p, li: few
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
device = devices()[{index}]
database = Path(sys.argv[1])
worker = test_faults.worker_on(device, builders=0)
with worker:
    test_faults.tuned(device, worker, database, trials=1)
    size = database.with_name(database.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, resource.RLIM_INFINITY))
    try:
        test_faults.tuned(device, worker, database, trials=4)
    except DatabaseError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(test_faults.tuned(device, worker, database, trials=4).status)
"""


def test_a_full_disk_stops_the_tuning_and_a_later_one_goes_on(
    first: Device, tmp_path: Path
) -> None:
    """A limit on file sizes stands for the full disk; what was kept before it is still there."""
    database = tmp_path / "tuned.sqlite"
    program = FULL.format(root=str(HERE.parents[1]), here=str(HERE), index=first.index)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(database)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    sentence, status = ran.stdout.splitlines()[-2:]
    assert "nothing of this step was written" in sentence, ran.stderr
    assert status == "tuned"
    assert len(rows(database)) == 4
