"""The commands that run for long (`tests.networks`, `tests.soak`) find what is planted for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import ocl_backend  # noqa: F401  (registers the device)
from tests.networks import __main__ as networks
from tests.networks.compare import LeftOutError, compare
from tests.networks.made import Made
from tests.ocl_backend.cpu_twin import place
from tests.soak import chores


class Layer(torch.nn.Module):
    """A linear layer; `fault` says what it does besides."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.layer, self.fault = torch.nn.Linear(4, 3), fault
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        y = self.layer(self.dropout(x))
        if self.fault == "chance":
            return y + torch.rand_like(y)
        if self.fault == "output" and y.device.type == "ocl":
            return y * 1.01
        if self.fault == "gradients" and y.device.type == "ocl":
            return y + (y - y.detach())
        return {"scores": y, "count": torch.tensor(3), "parts": (y.exp(), None)}


def verdict(device: Any, fault: str) -> Any:
    def make() -> Made:
        return Made(Layer(fault), (torch.randn(5, 4),))

    return compare(make, place(device), 0)


def test_a_network_that_agrees(device: Any) -> None:
    assert verdict(device, "").right


@pytest.mark.parametrize("fault", ["output", "gradients"])
def test_a_network_that_is_wrong(device: Any, fault: str) -> None:
    found = verdict(device, fault)
    assert not found.right and found.errors[fault] > 1e-3


def test_a_network_by_chance_is_left_out(device: Any) -> None:
    with pytest.raises(LeftOutError, match="own error"):
        verdict(device, "chance")


def test_what_fails_is_in_the_table_and_in_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = {"timm:a": "agrees", "timm:b": "left out", "timm:c": "crashes"}

    def run(name: str, seed: int, device: str, limit: float) -> networks.Row:
        return networks.Row(name, seed, outcomes[name], {"output": 1e-6}, {"output": 1e-7})

    monkeypatch.setattr(networks, "in_a_process", run)
    table, rows = tmp_path / "table.md", tmp_path / "rows.json"
    given = ["--seed", "7", "--json", str(rows), "--markdown", str(table), "--only"]
    assert networks.main([*given, "timm:a,timm:b"]) == 0
    assert networks.main([*given, "timm:b"]) == 1  # nothing was compared
    assert networks.main([*given, ",".join(outcomes)]) == 1
    assert "--seed 7 --only timm:c" in capsys.readouterr().out
    assert "| timm:c | crashes | 1e-06 (1e-07) |" in table.read_text()
    assert [row["outcome"] for row in json.loads(rows.read_text())] == list(outcomes.values())


def test_chores_notice_other_results() -> None:
    chores.agree([1.0, 2.0], [1.0, 2.0 + 1e-5], "rounding")
    for wrong in (2.1, float("nan")):
        with pytest.raises(chores.WrongError, match="a thread: off by"):
            chores.agree([1.0, wrong], [1.0, 2.0], "a thread")
    with pytest.raises(chores.WrongError, match="no ValueError"):
        chores._expect(ValueError, lambda: None)
