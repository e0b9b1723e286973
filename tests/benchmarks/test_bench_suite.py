"""A suite survives what fails, dies or hangs on either side, and keeps to its budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

pytest.importorskip("torch")


from benchmarks.comparison import suite
from benchmarks.comparison.run import KINDS, Options, all_tasks
from benchmarks.comparison.sides import Side, SideError
from benchmarks.comparison.suite import Clock, Suite
from benchmarks.report.rows import LEFT_OUT, Result, load
from benchmarks.tasks.task import Task, TaskError, merged
from oclgen.limits import DeviceInfo, Limits
from oclgen.roofline import MULTIPLY_ADD, Roofs
from tests.benchmarks.fake_sides import fake, refuse

DEVICE = DeviceInfo("d", "v", "cpu", "a", "r", "1", "2", 1)
ROOFS = Roofs(1.0, 1.0, {})
EMPTY = Result(DEVICE, {}, {"torch": "torch"}, ROOFS)


def task(key: str, rank: int = 0, **what: str) -> Task:
    return Task("gemm", key, (f"group {key}",), rank, "fp32", 1e6, 1.0, what)


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    both = Side("ours", fake, "ours", 2.0), Side("torch", fake, "torch", 3.0)
    yield both
    for side in both:
        side.close()


def test_what_fails_is_a_row_and_the_rest_goes_on(
    sides: tuple[Side, Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "LONGEST_S", 1.5)
    tasks = [
        task("good"),
        task("wrong", ours="raises"),
        task("crash", ours="dies"),
        task("hang", ours="hangs"),
        task("alone", torch="raises"),
        task("guest", ours="brings one that fails"),
        task("again"),
    ]
    path = tmp_path / "rows.json"
    result = Suite(*sides, Clock()).run(tasks, EMPTY, path)
    assert load(path) == result
    rows = {row.key: row for row in result.rows}
    assert rows["good"].ours_ms == 2.0
    assert rows["good"].ratio("torch") == 1.5
    assert rows["good"].under(ROOFS).name == MULTIPLY_ADD
    assert rows["good"].of_roof(ROOFS) == pytest.approx(0.5)
    assert rows["wrong"].reason == "ours: ValueError: it does not fit"
    assert rows["crash"].reason == "ours: its process ended with code 3"
    assert rows["hang"].reason == "ours: no answer in 2 s"
    assert rows["alone"].ours_ms == 2.0
    assert not rows["alone"].peers
    assert rows["alone"].reason == "torch: ValueError: it does not fit"
    assert rows["guest"].peers == {"torch": 3.0}
    assert rows["guest"].reason == "ours: OSError: no driver"
    assert rows["again"].ratio("torch") == 1.5


def test_a_budget_leaves_out_what_matters_least_and_says_so(
    sides: tuple[Side, Side], capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(1e-9)
    result = Suite(*sides, clock).run([task("late"), task("later")], EMPTY, None)
    assert all(row.reason.startswith(LEFT_OUT) for row in result.rows)
    assert "left out: 1 of group late, 1 of group later" in capsys.readouterr().out
    assert clock.seconds == suite.GRACE_S


def test_a_side_that_cannot_start_says_why() -> None:
    with pytest.raises(SideError, match="torch: OSError: no driver"):
        Side("torch", refuse).prepare("hello", {}, 5.0)


def test_a_side_that_lost_its_context_begins_again() -> None:
    before = set(active_children())
    with closing(Side("torch", fake, "torch", 3.0)) as side:
        with pytest.raises(SideError, match="torch: RuntimeError: CUDA error"):
            side.prepare("gemm", {"torch": "loses its context"}, 5.0)
        assert set(active_children()) <= before
        assert side.prepare("gemm", {}, 5.0)["contestants"] == ["torch"]


def test_tasks_are_merged_in_the_order_of_their_rank() -> None:
    twice = Task("gemm", "b", ("others fp32",), 1, "fp32", 1e6, 1.0, {})
    found = merged([task("a", rank=2), twice, task("b", rank=0)])
    assert [one.key for one in found] == ["b", "a"]
    assert found[0].groups == ("group b", "others fp32")
    assert found[0].is_in(["others"])
    assert not found[1].is_in(["others", "conv"])


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(TaskError, match=r"called sqares; there are gemm, squares, .*, drawn, conv"):
        all_tasks(Options(only=("squares", "sqares")), Limits(kind="gpu"))


def test_a_kind_is_measured_with_the_shapes_that_the_seed_draws() -> None:
    gemm, limits = Options(kinds=("gemm",), seed=3, drawn=2), Limits(kind="cpu")
    everything = all_tasks(gemm, limits)
    assert {task.kind for task in everything} == {"gemm"}
    assert [task.key for task in all_tasks(replace(gemm, only=("drawn",)), limits)] == [
        task.key for task in everything if task.seed == 3
    ]
    squares = all_tasks(replace(gemm, only=("squares",)), limits)
    assert {task.groups[0] for task in squares} == {"squares fp32"}
    drawn = all_tasks(Options(only=("drawn",), seed=3, drawn=2), limits)
    assert {task.kind for task in drawn} == set(KINDS)


def test_a_row_says_which_seed_drew_it(sides: tuple[Side, Side]) -> None:
    result = Suite(*sides, Clock()).run([replace(task("x"), seed=7), task("y")], EMPTY, None)
    assert [row.seed for row in result.rows] == [7, None]
