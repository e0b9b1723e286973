"""The gradient scheduler: every problem once, then where the network's time can still fall."""

from __future__ import annotations

from math import inf

from search_spaces.scheduler import Task, choose


def dealt(times: list[list[float]], calls: list[int], slices: int) -> list[int]:
    """Slices per task, when slice i brings a task's best to its i-th time, or the last."""
    tasks = [Task(count) for count in calls]
    for _ in range(slices):
        index = choose(tasks)
        assert index is not None
        known = times[index]
        tasks[index].best.append(known[min(len(tasks[index].best), len(known) - 1)])
    return [len(task.best) for task in tasks]


def test_every_task_has_a_slice_before_any_has_two() -> None:
    assert dealt([[100.0], [1.0], [0.01]], [1, 1, 1], 3) == [1, 1, 1]


def test_time_and_occurrences_decide() -> None:
    slow, fast = dealt([[10.0], [1.0]], [1, 1], 22)
    assert slow > 5 * fast
    assert dealt([[10.0], [1.0]], [1, 10], 22) == [11, 11]


def test_a_task_that_still_falls_goes_before_one_that_stands() -> None:
    falling, standing = dealt([[16.0, 8.0, 4.0, 2.0], [4.0]], [1, 1], 7)
    assert falling >= standing


def test_done_tasks_are_left_alone() -> None:
    tasks = [Task(best=[5.0], done=True), Task(best=[inf])]
    assert choose(tasks) == 1
    tasks[1].done = True
    assert choose(tasks) is None
