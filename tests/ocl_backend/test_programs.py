"""Programs drawn by a seed: the same ones in every process, right, and a planted fault is found."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place
from tests.programs import calls, run
from tests.programs.draw import draw
from tests.programs.operations import TABLES


def test_a_seed_means_one_program() -> None:
    assert draw("1:5") == draw("1:5")
    assert draw("1:5") != draw("1:6")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", ["2:0", "2:1", "2:2"])
def test_programs_are_right(device: Any, seed: str) -> None:
    if device.index:
        pytest.skip("recall and holding do not depend on the device")
    assert run.check(draw(seed), seed, place(device)) > 0


@pytest.mark.filterwarnings("ignore")
def test_a_planted_fault_is_found(any_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = run.call

    def wrong(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found = right(*args, **kwargs)
        if args[3] != "cpu":
            next(iter(found.values())).view(-1)[:1] += 0.1
        return found

    monkeypatch.setattr(run, "call", wrong)
    with pytest.raises(run.WrongError, match="is off by"):
        run.check(draw("2:0"), "2:0", torch.device("ocl", 0))


def test_a_seed_means_the_same_calls() -> None:
    assert calls.draw_calls("1:5") == calls.draw_calls("1:5") != calls.draw_calls("1:7")


def test_each_operation_can_be_drawn() -> None:
    drawn = [calls._call(Random(1), operation) for table in TABLES for operation in table]
    assert len(drawn) > 300
    assert not any("{" in call.text for call in drawn)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", ["3:0", "3:1"])
def test_calls_are_right(device: Any, seed: str) -> None:
    assert calls.check_calls(calls.draw_calls(seed), seed, place(device)) > 0


TWICE = calls.Call("a * 2", {"a": calls.Given(torch.int8, (3,), "dense", "tame")}, False)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([torch.zeros(3, dtype=torch.int16)], "torch.int16"),
        ([torch.full((3,), 99, dtype=torch.int8)], "99"),
        (NotImplementedError("none"), "none"),
    ],
)
def test_a_planted_fault_of_a_call_is_found(
    any_device: Any, monkeypatch: pytest.MonkeyPatch, found: Any, message: str
) -> None:
    right = calls.made

    def wrong(call: Any, seed: int, device: Any, wide: bool = False) -> Any:
        theirs = right(call, seed, "cpu", wide)
        if device == "cpu" or isinstance(theirs, Exception):
            return theirs
        return found if isinstance(found, Exception) else [*found, *theirs[1:]]

    monkeypatch.setattr(calls, "made", wrong)
    with pytest.raises(run.WrongError, match=message):
        calls.check_calls([TWICE], "1:1", torch.device("ocl", 0))


@pytest.mark.filterwarnings("ignore")
def test_a_call_that_is_not_refused_is_found(
    any_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = calls.made
    shifted = calls.Call("a << 1", {"a": calls.Given(torch.float32, (3,), "dense", "tame")}, False)

    def wrong(call: Any, seed: int, device: Any, wide: bool = False) -> Any:
        return right(call, seed, "cpu", wide) if device == "cpu" else []

    monkeypatch.setattr(calls, "made", wrong)
    with pytest.raises(run.WrongError, match="no error, not"):
        calls.check_calls([shifted], "1:1", torch.device("ocl", 0))
