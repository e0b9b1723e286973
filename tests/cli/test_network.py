"""What a tuning of a network is said to gain: by its problems' times, and by its own in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from oclgen.families.gemm import gemm_register
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from oclgen_cli import network as module
from oclgen_cli.network import Before, Saved
from search_spaces.progress import OutOfTimeError

TUNED, NEIGHBOUR, LATE, FAILED, SAME = (GemmProblem(size, 8, 8) for size in range(1, 6))
OLD, NEW = (Variant(gemm_register.NAME, size) for size in ("old", "new"))


@dataclass(frozen=True)
class Choices:
    """A chooser that serves all problems but one by the same variant."""

    variant: Variant

    def choose(self, problem: Problem) -> Any:
        return SimpleNamespace(variant=OLD if problem == SAME else self.variant)


@dataclass
class Session:
    """Of one problem both times are known; it can time one other before its end."""

    compared: list[Problem] = field(default_factory=list)
    device: Any = field(default_factory=lambda: SimpleNamespace(info=None))

    @property
    def store(self) -> Any:
        known = {TUNED: {OLD: 4.0, NEW: 1.0}, NEIGHBOUR: {OLD: 3.0}, FAILED: {OLD: inf, NEW: 1.0}}
        return SimpleNamespace(
            of=lambda _: SimpleNamespace(measured=lambda problem: known.get(problem, {}))
        )

    def compare(self, problem: Problem, variants: Sequence[Variant]) -> list[float]:
        self.compared.append(problem)
        if problem == LATE:
            raise OutOfTimeError
        assert list(variants) == [OLD, NEW]
        return [3.0, 2.0]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    monkeypatch.setattr(module, "reload_tuned", lambda: None)
    monkeypatch.setattr(module, "chooser", lambda _: Choices(NEW))
    calls = Counter({TUNED: 2, NEIGHBOUR: 5, LATE: 1, FAILED: 1, SAME: 9})
    network: Any = None
    old: Any = Choices(OLD)
    return Before(network, calls, 0, old)


def test_what_served_counts_wherever_it_came_from(before: Before) -> None:
    """A default, too, and a problem that was not tuned but is served by a neighbour's record."""
    session: Any = Session()
    assert before.saved(session) == Saved(2 * 3.0 + 5 * 1.0, changed=4, missing=2)
    assert session.compared == [NEIGHBOUR, LATE]


def test_both_sides_run_in_turns(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Variant] = []

    class Network:
        """Twice as fast by the new variant, on a machine that gets slower, and once very slow."""

        def to(self, _: str) -> Network:
            return self

        def milliseconds(self) -> float:
            load = 5.0 if len(served) == 3 else 1 + len(served) / 100
            return load * (20.0 if served[-1] == OLD else 10.0)

    monkeypatch.setattr(module, "choose_by", lambda _, side: served.append(side.variant))
    network: Any = Network()
    said = Before(network, before.calls, 0, before.chooser).compare(Saved(10.5, changed=2))
    assert served == [OLD, NEW, NEW, OLD, OLD, NEW, NEW, OLD, OLD, NEW]
    assert said == (
        "the network's run: 21 (20.2 to 21.8) ms before, 10.7 (10.2 to 50) ms after, in 5 turns: "
        "1.981 (0.416 to 2.019) times as fast; its problems' times predicted 2.00 times"
    )


def test_nothing_is_timed_where_nothing_changed(before: Before) -> None:
    assert "nothing is gained" in before.compare(Saved(0.0, changed=0))


def test_a_prediction_tells_what_it_leaves_out() -> None:
    assert Saved(5.0, changed=3, missing=2).gain(10.0) == 2.0
    assert Saved(11.0, changed=1).gain(10.0) == inf
    assert Saved(5.0, 3, 2).untold == ", 2 that time did not reach left out"
