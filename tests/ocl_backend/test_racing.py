"""Races beside a program: what is raced and when, who wins, and what serves afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ocl_backend.dispatch import racing, settings, tuned
from ocl_backend.dispatch.explanation import ExplainRow
from ocl_backend.dispatch.racing import SHARE, Race, Racing, Scratch
from ocl_backend.dispatch.tuned import TunedCall
from ocl_backend.runtime import idle
from oclgen.opencl.device import LaunchError
from oclgen.problem import GemmProblem
from tests.ocl_backend.cpu_twin import place
from tuned_db import Choice

CALLS = 8
"""Calls of a problem: the last ones are recalled."""


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A database of its own; races may run, but no other than the test's."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    settings.RACE.set(True)
    racing.pause(True)
    yield
    racing.pause(False)
    settings.RACE.set(False)
    monkeypatch.undo()
    tuned.reload_tuned()


@pytest.fixture
def paying(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    """Every problem is worth a race, and programs are built at once."""
    monkeypatch.setattr(racing, "_cost_s", lambda call: 0.0)
    monkeypatch.setattr(device.ahead, "_processes", 0)
    monkeypatch.setattr(racing, "MOST_S", inf)


def factors(device: Any) -> tuple[Any, Any]:
    return torch.randn(48, 40).to(place(device)), torch.randn(40, 56).to(place(device))


def called(a: Any, b: Any) -> Any:
    """Multiply as often as makes the shim recall the call."""
    for _ in range(CALLS):
        out = torch.mm(a, b)
    return out.cpu()


def row(a: Any, b: Any) -> ExplainRow:
    (found,) = torch.ocl.explain(torch.mm, a, b).rows
    return found


def times(rival: float, clock: Clock | None = None) -> Callable[..., float]:
    """Return a stand-in for `seconds`: a ms for what serves, `rival` ms for all others."""
    served: list[Choice] = []

    def seconds(_: int, choice: Choice, run: Callable[[], None]) -> float:
        run()
        served[:] = served or [choice]
        if clock is not None:
            clock.now += 1.0
        return 1e-3 * (1.0 if choice == served[0] else rival)

    return seconds


def test_the_fastest_serves_recalled_calls_and_later_programs(device: Any, paying: None) -> None:
    a, b = factors(device)
    want = called(a, b)
    before, (call,) = row(a, b), tuned.prepared_calls()
    ran = call.runs
    Racing(times(rival=0.5)).idle(device.index)
    torch.testing.assert_close(called(a, b), want, rtol=1e-5, atol=1e-5)
    assert call.runs == ran + CALLS
    assert call._launch.runs == CALLS  # the winner's, in place of what was recalled
    for _ in range(2):
        after = row(a, b)
        assert (after.rung, after.measured_ms) == ("raced", 0.5)
        assert after.predicted_ms is not None
        assert (after.family, after.config) != (before.family, before.config)
        assert (before.rung, before.measured_ms) != (after.rung, after.measured_ms)
        tuned.reload_tuned()


def test_what_serves_stays_where_nothing_is_worth_a_change(device: Any, paying: None) -> None:
    a, b = factors(device)
    called(a, b)
    before = row(a, b)
    raced = Racing(times(rival=0.98))
    raced.idle(device.index)
    after = row(a, b)
    assert (after.rung, after.measured_ms) == ("raced", 1.0)
    assert (after.family, after.config) == (before.family, before.config)


@pytest.mark.parametrize(("slow_rounds", "is_winner"), [(2, True), (3, False)])
def test_a_rival_wins_most_rounds(
    device: Any, paying: None, slow_rounds: int, is_winner: bool
) -> None:
    a, b = factors(device)
    called(a, b)
    before = row(a, b)
    calm, rounds = times(rival=0.5), Counter[Choice]()

    def seconds(index: int, choice: Choice, run: Callable[[], None]) -> float:
        rounds[choice] += 1
        is_slow = choice.variant.to_json() != before.config and rounds[choice] <= slow_rounds
        return 100.0 if is_slow else calm(index, choice, run)

    Racing(seconds).idle(device.index)
    after = row(a, b)
    assert after.rung == "raced"
    assert ((after.family, after.config) != (before.family, before.config)) == is_winner


def test_a_convolution_and_its_gradients_are_raced(device: Any, paying: None) -> None:
    layer = torch.nn.Conv2d(8, 16, 3).to(place(device))
    x = torch.randn(2, 8, 9, 9).to(place(device)).requires_grad_()

    def gradient() -> Any:
        return torch.autograd.grad(layer(x).square().sum(), [x, layer.weight])

    want = [each.cpu() for each in gradient()]
    clock = Clock()
    made = Racing(times(rival=0.5), clock)
    for _ in range(3):
        made.idle(device.index)
        clock.now += 1e3
    rows = torch.ocl.explain(gradient).rows
    assert [one.rung for one in rows] == ["raced"] * 3
    for got, wanted in zip(gradient(), want, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fault", ["unwritten", "fails"])
def test_a_wrong_rival_does_not_win(
    device: Any, paying: None, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    a, b = factors(device)
    called(a, b)
    before, plain = row(a, b), TunedCall.alone

    def spoiled(call: TunedCall, choice: Choice) -> Any:
        if choice == call.choice:
            return plain(call, choice)
        if fault == "fails":
            raise LaunchError("the device refuses")
        return lambda *_: None

    monkeypatch.setattr(TunedCall, "alone", spoiled)
    Racing(times(rival=0.5)).idle(device.index)
    after = row(a, b)
    assert after.rung == "raced"
    assert (after.family, after.config) == (before.family, before.config)


def test_a_problem_is_raced_once_its_calls_took_far_longer(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = factors(device)
    called(a, b)
    (call,) = tuned.prepared_calls()
    taken = CALLS * (call.choice.predicted_ms or 0.0) / 1e3
    asked: list[TunedCall] = []

    def noted(call: TunedCall) -> Race:
        asked.append(call)
        return Race(call)

    monkeypatch.setattr(racing, "Race", noted)
    for cost, expected in ((1.01 * SHARE * taken, []), (0.99 * SHARE * taken, [call])):
        monkeypatch.setattr(racing, "_cost_s", lambda _, cost=cost: cost)
        Racing(times(rival=0.5)).idle(device.index)
        assert asked == expected


def test_idle_moments_are_used_for_a_part_of_the_time(device: Any, paying: None) -> None:
    a, b = factors(device)
    called(a, b)
    clock = Clock()
    made = Racing(times(rival=0.5, clock=clock), clock)
    made.idle(device.index)
    spent = made.spent_s
    assert spent == clock.now > 0
    called(b.t(), a.t())
    for now in (spent / SHARE - 0.1, spent / SHARE + 0.1):
        assert made.spent_s == spent
        clock.now = now
        made.idle(device.index)
    assert made.spent_s > spent


def test_nothing_is_raced_where_results_must_not_change_or_calls_are_watched(
    device: Any, paying: None
) -> None:
    a, b = factors(device)
    called(a, b)
    made = Racing(times(rival=0.5))
    torch.use_deterministic_algorithms(True)
    try:
        made.idle(device.index)
    finally:
        torch.use_deterministic_algorithms(False)
    with torch.ocl.profile(file=None):
        made.idle(device.index)
    torch.ocl.explain(made.idle, device.index)
    settings.RACE.set(False)
    called(a, b)
    made.idle(device.index)
    assert (made.waiting(), made.spent_s) == ([], 0.0)
    settings.RACE.set(True)
    called(a, b)
    assert made.waiting() == [device.index]
    made.idle(device.index)
    assert row(a, b).rung == "raced"


def test_winners_serve_no_longer_where_races_are_switched_off(device: Any, paying: None) -> None:
    a, b = factors(device)
    called(a, b)
    before = row(a, b)
    Racing(times(rival=0.5)).idle(device.index)
    torch.ocl.set_racing(False)
    assert row(a, b) == before
    torch.ocl.set_racing(True)
    assert row(a, b).rung == "raced"


def test_a_race_that_takes_too_long_is_given_up(
    device: Any, paying: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = factors(device)
    called(a, b)
    before = row(a, b)
    monkeypatch.setattr(racing, "MOST_S", -inf)
    monkeypatch.setattr(racing, "_rounds_s", lambda call: -1.0)
    Racing(times(rival=0.5)).idle(device.index)
    assert row(a, b) == before


def test_a_race_without_room_is_left_out(
    device: Any, paying: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = factors(device)
    called(a, b)
    monkeypatch.setattr(racing, "MOST_BYTES", GemmProblem(48, 56, 40).bytes - 1)
    Racing(times(rival=0.5)).idle(device.index)
    assert row(a, b).rung != "raced"


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_memory_of_a_race_tells_what_was_written(device: Any, dtype: str) -> None:
    scratch = Scratch(device.index, GemmProblem(3, 4, 5, dtype))
    nothing = scratch.results(lambda *_: None)
    assert {role: each.shape for role, each in nothing.items()} == {"c": (1, 3, 4)}
    assert all((each != each).all() for each in nothing.values())


class Told:
    """Uses idle moments by counting them."""

    def __init__(self) -> None:
        self.count = 0

    def idle(self, device: int) -> None:
        self.count += 1

    def waiting(self) -> list[int]:
        return []


def test_nobody_is_told_of_moments_once_a_process_ends(device: Any) -> None:
    told, index = Told(), device.index
    idle.use(told)
    torch.ocl.synchronize(index)
    assert told.count == 1
    idle.end()
    torch.ocl.synchronize(index)
    assert told.count == 1


def test_a_program_races_by_itself(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With processes that build, a clock and moments in which the program waits."""
    monkeypatch.setattr(racing, "_cost_s", lambda call: 0.0)
    monkeypatch.setattr(racing._racing, "_next_look", 0.0)
    racing.pause(False)
    a, b = (torch.randn(56, 72).to(place(device)), torch.randn(72, 40).to(place(device)))
    want = a.cpu() @ b.cpu()
    torch.mm(a, b)
    (call,) = tuned.prepared_calls()
    while call.choice.rung != "raced":
        torch.testing.assert_close(torch.mm(a, b).cpu(), want, rtol=1e-5, atol=1e-5)
        time.sleep(0.01)
    torch.testing.assert_close(torch.mm(a, b).cpu(), want, rtol=1e-5, atol=1e-5)
