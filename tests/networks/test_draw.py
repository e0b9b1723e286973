"""Which networks of a draw run, however many run at once."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.networks import __main__ as command
from tests.networks import zoo

LEFT_OUT = {"timm:1", "timm:3", "diffusers:0"}


@pytest.fixture(autouse=True)
def _only_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(name: str, seed: int, *_: Any) -> command.Row:
        return command.Row(name, seed, command.LEFT_OUT if name in LEFT_OUT else command.GOOD)

    monkeypatch.setattr(command, "in_a_process", outcome)
    monkeypatch.setattr(zoo, "drawn", lambda library, _: (f"{library}:{i}" for i in range(6)))


def ran(jobs: int, **given: Any) -> list[str]:
    asked = {"count": 7, "library": ("timm", "diffusers"), "only": None, "seconds": 60.0} | given
    options = Namespace(**asked, jobs=jobs, limit=1.0, device="ocl:0")
    return sorted(row.name for row in command.rows(options, 5))


@pytest.mark.parametrize("jobs", [1, 2, 12])
def test_what_is_left_out_is_replaced_however_many_run_at_once(jobs: int) -> None:
    """Five networks of timm and two of diffusers are wanted; timm has four that are compared."""
    every = [*(f"diffusers:{i}" for i in range(3)), *(f"timm:{i}" for i in range(6))]
    assert ran(jobs) == every
    assert ran(jobs, count=3, library=("timm",)) == [f"timm:{i}" for i in range(5)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_named_networks_are_not_replaced(jobs: int) -> None:
    assert ran(jobs, only="timm:1,timm:2") == ["timm:1", "timm:2"]


def test_nothing_begins_when_the_time_is_over() -> None:
    assert ran(2, seconds=-1.0) == []
