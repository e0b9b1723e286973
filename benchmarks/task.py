"""A thing to measure, as plain values that both sides understand; how is their business."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from oclgen.problem import Problem


class TaskError(ValueError):
    """Nothing to measure has the name that was asked for; the message has those there are."""


@dataclass(frozen=True)
class Task:
    """A row to be: its kind and key, the groups whose means it counts in, and what sides are told.

    `rank` is its place in the order: 0 is measured first, whatever time there is.
    """

    kind: str
    key: str
    groups: tuple[str, ...]
    rank: int
    dtype: str
    flops: float
    bytes: float
    what: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for by: its kind, and the first words of its groups."""
        return self.kind, *(group.split()[0] for group in self.groups)

    def is_in(self, names: Iterable[str]) -> bool:
        """Say whether one of `names` is one of its own."""
        return not set(self.names).isdisjoint(names)


def task_of(problem: Problem, group: str, rank: int) -> Task:
    """Return the task of a problem that generated kernels solve; its key is without the kind."""
    return Task(
        kind=problem.op,
        key=problem.key().partition(":")[2],
        groups=(group,),
        rank=rank,
        dtype=problem.dtype,
        flops=problem.flops,
        bytes=problem.bytes,
        what={"problem": problem.key()},
    )


def merged(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks in order of rank, each once, with the groups of all its likes."""
    found: dict[tuple[str, str], Task] = {}
    for task in sorted(tasks, key=lambda one: one.rank):
        first = found.setdefault((task.kind, task.key), task)
        groups = tuple(dict.fromkeys((*first.groups, *task.groups)))
        found[task.kind, task.key] = replace(first, groups=groups)
    return list(found.values())
