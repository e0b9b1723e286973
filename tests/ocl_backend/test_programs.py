"""Programs drawn by a seed: the same ones in every process, right, and a planted fault is found."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ocl_backend.cpu_twin import place
from tests.programs import run
from tests.programs.draw import draw


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
