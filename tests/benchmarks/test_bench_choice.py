"""How the model of the choice is judged, and how its tables are measured, without a device."""

from __future__ import annotations

from math import inf
from typing import Any

from benchmarks.choice.collect import _again
from benchmarks.choice.evaluate import FOLDS, folds
from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tuned_db.files.table import Row


def test_what_is_hardly_apart_is_left_out_together() -> None:
    """A chain of sizes is one fold, also where its ends are far apart."""
    chain = [GemmProblem(size, 64, 64) for size in (64, 100, 160, 250)]
    others = [GemmProblem(64, 64, 64 * 4**step) for step in range(1, 6)]
    found = folds([chain[0], others[0], chain[1], *others[1:], chain[2], chain[3]])
    assert len({found[0], found[2], found[-2], found[-1]}) == 1
    assert set(found) == set(range(FOLDS))


def test_other_kinds_are_not_near() -> None:
    assert folds([GemmProblem(64, 64, 64), GemmProblem(64, 64, 64, trans_b=True)]) == [0, 1]


class Turns:
    """A worker that answers with the given times, and notes what it was asked for."""

    def __init__(self, *answers: float) -> None:
        self.answers, self.asked = iter(answers), list[int]()

    def measure(self, problem: Any, variant: Variant) -> Measurement:
        self.asked.append(variant.config.item_m)
        samples = (next(self.answers), 9.0)
        return Measurement(samples, "none", "", 0.0, 0, "warm")


def test_what_is_near_the_best_is_measured_again_and_the_least_time_counts() -> None:
    problem = GemmProblem(64, 64, 64)
    values = {**_values(), "item_m": 1}
    times = (1.0, 1.5, 1.7, inf)
    rows = [
        Row(problem.key(), "gemm_register", {**values, "item_m": at}, ms, "none")
        for at, ms in enumerate(times, 1)
    ]
    worker: Any = Turns(0.8, 1.2)
    found = _again(worker, problem, rows, backwards=True)
    assert worker.asked == [2, 1]
    assert [row.ms for row in found] == [1.0, 0.8, 1.7, inf]


def _values() -> dict[str, int | bool | str]:
    from oclgen.families.gemm import gemm_register

    return Variant("gemm_register", gemm_register.DEFAULT).values()
