"""`torch.ocl.tunable`: untuned problems are recorded, or tuned when they are first met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from filelock import FileLock

import oclgen
from ocl_backend import tunable, tuning
from ocl_backend.dispatch import tuned
from oclgen.opencl import exclusive
from oclgen.opencl.device import devices
from oclgen.opencl.exclusive import kind_of
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.recording import dump, load
from tests.ocl_backend.cpu_twin import place
from tuned_db import Record, write_records
from tuned_db.records.digests import digest_of

pytestmark = pytest.mark.usefixtures("unvectorised")


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A database of its own, and switches as an environment without variables sets them."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    monkeypatch.setattr(tunable, "_state", tuning.State.of_environment())
    tunable.set_filename(str(tmp_path / "untuned.jsonl"), insert_device_ordinal=True)
    tunable.set_max_tuning_duration(0)  # a loaded machine may take any time
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


def test_a_single_tap_has_no_dilation(device: Any) -> None:
    """A kernel of 1x3 is dilated along its three taps alone: it shares records with 1x1 layers."""
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    tunable.enable()
    x = torch.ones(2, 3, 9, 11, device=place(device))
    torch.nn.functional.conv2d(x, torch.ones(5, 3, 1, 3, device=place(device)), dilation=2)
    (written,) = tunable.write_untuned()
    (problem,) = load(written.read_text().splitlines())
    assert isinstance(problem, ConvProblem)
    assert (problem.dilation_h, problem.dilation_w) == (1, 2)


def test_runs_that_the_shim_recalls_are_counted_and_stay_recalled(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording costs no operator its place in the shim's memory, so it costs no time."""
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    tunable.enable()
    a = torch.ones(28, 24, device=place(device))
    b = torch.ones(24, 40, device=place(device))
    in_python: list[tuned.TunedCall] = []
    plain = tuned.TunedCall.__call__

    def noted(call: tuned.TunedCall, *pointers: int) -> None:
        in_python.append(call)
        plain(call, *pointers)

    monkeypatch.setattr(tuned.TunedCall, "__call__", noted)
    for _ in range(9):
        torch.mm(a, b)
    tuned.reload_tuned()  # what ran before counts, too
    torch.mm(a, b)
    (written,) = tunable.write_untuned()
    assert load(written.read_text().splitlines()) == {GemmProblem(28, 40, 24): 10}
    assert len(in_python) < 5


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
    session = tuning._sessions[device.index]
    first = session._worker
    assert first is not None
    pid = first.pid
    product(device, 25)
    assert session._worker is first
    assert first.pid == pid is not None
    tunable.enable(False)
    assert tuning._sessions == {}
    assert session._worker is None


def test_a_duration_counts_waiting_and_is_kept(
    device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exclusive, "writable_folder", lambda _: tmp_path)
    ((_, lock),) = (one for one in exclusive.locks(devices()) if one[0] is device)
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
        tuning.tune(Counter([GemmProblem(27, 40, 24)]), device.index, tuning.TuningLimits(0, 1))


def test_a_tuning_that_fails_is_told_and_the_problem_still_runs(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(tuning, "tune", fails)
    tunable.enable()
    with pytest.warns(UserWarning, match="stays untuned: no compiler today"):
        result = product(device, 22)
    assert torch.equal(result.cpu(), torch.full((22, 40), 24.0))


def test_switches_read_the_environment_once_and_refuse_nonsense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCLGEN_TUNABLE_ENABLED", "1")
    monkeypatch.setenv("OCLGEN_TUNABLE_MAX_TUNING_ITERATIONS", "7")
    state = tuning.State.of_environment()
    assert (state.enabled, state.tuning, state.recording) == (True, True, False)
    assert state.limits.iterations == 7
    monkeypatch.setenv("OCLGEN_TUNABLE_TUNING", "yes")
    with pytest.raises(ValueError, match="OCLGEN_TUNABLE_TUNING='yes' must be an integer"):
        tuning.State.of_environment()
    with pytest.raises(ValueError, match="duration=-1"):
        tunable.set_max_tuning_duration(-1)


def test_validators_name_drivers(device: Any) -> None:
    """A record is exact whichever version wrote it: its kernels' digest decides."""
    names = dict(tunable.get_validators())
    assert names.keys() == {f"DRIVER_{one.index}" for one in devices()}
    assert device.info.driver_version in names[f"DRIVER_{device.index}"]


def test_all_that_torch_offers_is_there() -> None:
    """`_`-names and what its module imports are left out."""
    from torch.cuda import tunable as peer

    assert set(peer.__all__) <= set(tunable.__all__)
    assert all(callable(getattr(torch.ocl.tunable, name)) for name in peer.__all__)


def test_a_rotating_buffer_is_a_tuning_with_cold_caches() -> None:
    assert tunable.get_rotating_buffer_size() == 0
    caches = [tunable._state.limits.budget.cache]
    tunable.set_rotating_buffer_size(256)
    assert tunable.get_rotating_buffer_size() == 256 * 1024
    caches.append(tunable._state.limits.budget.cache)
    assert caches == ["warm", "cold"]


def test_tolerances_bound_the_error_of_what_is_tuned(device: Any) -> None:
    tunable.set_max_tuning_iterations(1)
    tunable.set_numerical_check_tolerances(True, atol=0.0, rtol=1e-12)
    tunable.enable()
    with pytest.warns(UserWarning, match=r"stays untuned: .*relative L2 error .*, allowed 1e-12"):
        product(device, 29)
    tunable.set_numerical_check_tolerances(False)
    product(device, 30)
    assert len(tunable.get_results()) == 1


def test_records_of_a_file_serve(device: Any, tmp_path: Path) -> None:
    problem = GemmProblem(31, 40, 24)
    variant = tuned.chooser(device.index).choose(problem).variant
    record = Record(
        device=device.info,
        generator=oclgen.GENERATOR_VERSION,
        problem=problem.key(),
        family=variant.family,
        config=variant.to_json(),
        samples=(0.5,),
        error=1e-7,
        trials=1,
        created="2026-01-01T00:00:00Z",
        version="1",
        digest=digest_of(problem, variant),
    )
    file = tmp_path / "records.jsonl"
    with file.open("wb") as stream:
        write_records([record], stream)
    assert tunable.read_file(str(file))
    assert tuned.chooser(device.index).choose(problem).source == "exact, checked"
    assert tunable.read_file()
    with pytest.warns(UserWarning, match=r"missing.jsonl is not read"):
        assert not tunable.read_file(str(tmp_path / "missing.jsonl"))


def test_recordings_are_tuned_on_one_device_and_on_several(
    any_device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = GemmProblem(32, 40, 24), GemmProblem(33, 40, 24)
    for name, calls in (("a0", {one: 2}), ("a1", {one: 1, other: 4})):
        dump(Counter(calls), tmp_path / f"{name}.jsonl")
    asked: list[Any] = []
    monkeypatch.setattr(tuning, "tune", lambda *given: asked.append(given))
    monkeypatch.setattr(
        "search_spaces.crews.spread", lambda crew, calls, *_: asked.append((crew, calls))
    )
    with pytest.raises(RuntimeError, match=r"call torch.ocl.tunable.enable\(\)"):
        tunable.tune_gemm_in_file(str(tmp_path / "a0.jsonl"))
    tunable.enable()
    tunable.tune_gemm_in_file(str(tmp_path / "a0.jsonl"))
    assert asked.pop()[:2] == ({one: 2}, torch.ocl.current_device())
    tunable.mgpu_tune_gemm_in_file(str(tmp_path / "a?.jsonl"), 1)
    crew, calls = asked.pop()
    assert calls == {one: 3, other: 4}
    assert crew.devices() == {kind_of(devices()[0].info): 1}
    with pytest.raises(ValueError, match="num_gpus=99 must be at least 1 and at most"):
        tunable.mgpu_tune_gemm_in_file(str(tmp_path / "a?.jsonl"), 99)
    with pytest.raises(FileNotFoundError, match="no file fits"):
        tunable.mgpu_tune_gemm_in_file(str(tmp_path / "b?.jsonl"), 1)
