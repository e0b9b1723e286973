"""`torch.ocl.tunable`: untuned problems are recorded, or tuned when they are first met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from filelock import FileLock

from ocl_backend import tunable
from ocl_backend.dispatch import tuned
from oclgen.opencl import exclusive
from oclgen.opencl.device import devices
from oclgen.problem import GemmProblem
from oclgen.recording import load
from tests.ocl_backend.cpu_twin import place


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A database of its own, and switches as an environment without variables sets them."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    monkeypatch.setattr(tunable, "_state", tunable._State.of_environment())
    tunable.set_filename(str(tmp_path / "untuned.jsonl"), insert_device_ordinal=True)
    tuned.reload_tuned()
    yield
    tunable.enable(False)
    tuned.reload_tuned()


def product(device: Any, n: int) -> Any:
    return torch.ones(n, 24, device=place(device)) @ torch.ones(24, 40, device=place(device))


def test_untuned_problems_are_counted_per_device(device: Any) -> None:
    product(device, 17)  # not enabled yet
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    product(device, 18)  # recording waits for `enable`
    tunable.enable()
    product(device, 19)
    product(device, 19)
    (written,) = tunable.write_untuned()
    assert written.name == f"untuned{device.index}.jsonl"
    assert load(written.read_text().splitlines()) == {GemmProblem(19, 40, 24): 2}
    assert tunable.get_results() == ()


def test_a_problem_is_tuned_when_it_is_first_met(device: Any) -> None:
    tunable.set_max_tuning_iterations(2)
    tunable.enable()
    seen = torch.ocl.explain(product, device, 21)
    assert torch.equal(seen.result.cpu(), torch.full((21, 40), 24.0))
    assert [row.rung for row in seen.rows] == ["exact"]
    ((operator, key, family, ms),) = tunable.get_results()
    assert (operator, key) == ("mm", GemmProblem(21, 40, 24).key())
    assert family and ms > 0


def test_one_process_measures_every_problem_and_ends_with_the_tuning(device: Any) -> None:
    tunable.set_max_tuning_iterations(1)
    tunable.enable()
    product(device, 23)
    session = tunable._sessions[device.index]
    first = session._worker
    assert first is not None
    pid = first.pid
    product(device, 25)
    assert session._worker is first
    assert first.pid == pid is not None
    tunable.enable(False)
    assert tunable._sessions == {}
    assert session._worker is None


def test_a_duration_counts_waiting_and_is_kept(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exclusive, "user_cache_path", lambda _: tmp_path)
    ((_, lock),) = (one for one in exclusive.locks(devices()) if one[0] is device)
    lock.parent.mkdir(parents=True)
    tunable.set_max_tuning_duration(300)
    tunable.enable()
    with FileLock(lock, is_singleton=False), pytest.warns(UserWarning) as said:
        result = product(device, 26)
    assert torch.equal(result.cpu(), torch.full((26, 40), 24.0))
    told = " ".join(str(one.message) for one in said)
    assert "another process measures on the device" in told
    assert "The time budget ended before 1 of 1 problems" in told


def test_an_interrupt_ends_the_program_s_call_too(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    tunable.enable()
    monkeypatch.setattr("oclgen.measuring.worker.Worker.measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tunable._tune(Counter([GemmProblem(27, 40, 24)]), device.index)


def test_a_tuning_that_fails_is_told_and_the_problem_still_runs(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(calls: Any, device: int) -> None:
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(tunable, "_tune", fails)
    tunable.enable()
    with pytest.warns(UserWarning, match="stays untuned: no compiler today"):
        result = product(device, 22)
    assert torch.equal(result.cpu(), torch.full((22, 40), 24.0))


def test_switches_read_the_environment_once_and_refuse_nonsense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCLGEN_TUNABLE_ENABLED", "1")
    monkeypatch.setenv("OCLGEN_TUNABLE_MAX_TUNING_ITERATIONS", "7")
    state = tunable._State.of_environment()
    assert (state.enabled, state.tuning, state.recording) == (True, True, False)
    assert state.iterations == 7
    monkeypatch.setenv("OCLGEN_TUNABLE_TUNING", "yes")
    with pytest.raises(ValueError, match="OCLGEN_TUNABLE_TUNING='yes' must be an integer"):
        tunable._State.of_environment()
    with pytest.raises(ValueError, match="duration=-1"):
        tunable.set_max_tuning_duration(-1)


def test_validators_name_drivers(device: Any) -> None:
    """A record is exact whichever version wrote it: its kernels' digest decides."""
    names = dict(tunable.get_validators())
    assert names.keys() == {f"DRIVER_{one.index}" for one in devices()}
    assert device.info.driver_version in names[f"DRIVER_{device.index}"]
