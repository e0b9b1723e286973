"""A variant that crashes, hangs or fails is a value; the next one is measured as if nothing was."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oclgen.families import families_for
from oclgen.families.gemm.gemm_register import DEFAULT
from oclgen.measuring.worker import Worker, WorkerError
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from oclgen.variant import Variant

PROBLEM = GemmProblem(24, 40, 16)
VARIANT = Variant("gemm_register", DEFAULT)


@pytest.fixture
def worker(device: Device) -> Iterator[Worker]:
    with Worker(device.index, device.info) as worker:
        yield worker


def test_it_measures(worker: Worker) -> None:
    measurement = worker.measure(PROBLEM, VARIANT)
    assert measurement.ok, measurement.reason
    assert measurement.error < 1e-5


def test_processes_start_ahead_where_the_device_does_not_need_their_cores(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(device.index, device.info, builders=1)
    try:
        monkeypatch.setattr(Worker, "overlaps", False)
        worker.begin()
        assert worker.pid is None
        monkeypatch.setattr(Worker, "overlaps", True)
        worker.begin()
        begun = worker.pid
        assert begun is not None
        worker.build_ahead(PROBLEM, VARIANT)
        assert worker.measure(PROBLEM, VARIANT).ok
        assert worker.pid == begun
    finally:
        worker.close()


def test_a_process_that_ends_before_it_is_ready_cannot_be_had(
    device: Device,
) -> None:
    worker = Worker(99, device.info)
    worker._child.begin()
    with pytest.raises(WorkerError, match="ended at its start"):
        worker.measure(PROBLEM, VARIANT)
    assert worker.pid is None
    worker.close()


def test_a_dead_child_is_a_failure_and_is_replaced(worker: Worker) -> None:
    worker.measure(PROBLEM, VARIANT)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    dead = worker.measure(PROBLEM, VARIANT)
    assert dead.invalidity == "runtime"
    assert "SIGKILL" in dead.reason
    assert worker.measure(PROBLEM, VARIANT).ok


def test_a_stage_that_takes_too_long_is_a_timeout(worker: Worker) -> None:
    worker.timeouts["preparing"] = 0.0
    slow = worker.measure(PROBLEM, VARIANT)
    assert slow.invalidity == "timeout"
    assert slow.reason == "preparing took longer than 0 s"


def test_a_family_that_raises_is_a_failure(worker: Worker) -> None:
    failed = worker.measure(PROBLEM, Variant("no_such_family", DEFAULT))
    assert failed.invalidity == "runtime"
    assert "no_such_family" in failed.reason


def test_another_device_than_the_parents_is_refused(device: Device) -> None:
    with pytest.raises(WorkerError, match="ended at its start"), Worker(99, device.info):
        pass


def test_every_family_is_measured_by_its_name(worker: Worker, device: Device) -> None:
    for family in families_for(PROBLEM):
        if family.DEFAULT.why_not(PROBLEM, device.limits) is not None:
            continue
        assert worker.measure(PROBLEM, Variant(family.NAME, family.DEFAULT)).ok, family.NAME


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows a process's environment")
def test_threads_of_numpy_sleep_where_something_is_measured(worker: Worker) -> None:
    """They keep a core from a processor's kernels otherwise, for 25 ms after each product."""
    assert worker.measure(PROBLEM, VARIANT).ok
    told = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    assert b"OPENBLAS_THREAD_TIMEOUT=4" in told
