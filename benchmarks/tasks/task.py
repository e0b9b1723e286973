"""A thing to measure, as plain values that both sides understand; each side decides how."""

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

    `rank` is its place in the order: 0 is measured first, whatever time there is. `seed` is the one
    that drew the shape, None for a shape that was chosen.
    """

    kind: str
    key: str
    groups: tuple[str, ...]
    rank: int
    dtype: str
    flops: float
    bytes: float
    what: dict[str, Any]
    seed: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for by: its kind, and the first words of its groups."""
        return self.kind, *(group.split()[0] for group in self.groups)

    def is_in(self, names: Iterable[str]) -> bool:
        """Say whether one of `names` is one of its own."""
        return not set(self.names).isdisjoint(names)


def task_of(problem: Problem, group: str, rank: int, seed: int | None = None) -> Task:
    """Return the task of a problem that generated kernels solve; its key is without the kind.

    Args:
        problem: its key, without the kind, is the task's.
        group: that its rows are summed up in.
        rank: 0 is measured first.
        seed: that drew it, if any.
    """
    return Task(
        kind=problem.op,
        key=problem.key().partition(":")[2],
        groups=(group,),
        rank=rank,
        dtype=problem.dtype,
        flops=problem.flops,
        bytes=problem.bytes,
        what={"problem": problem.key()},
        seed=seed,
    )


def merged(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks in order of rank, each once, with the groups of all its likes.

    A shape that was chosen and drawn as well keeps the seed.
    """
    found: dict[tuple[str, str], Task] = {}
    for task in sorted(tasks, key=lambda one: one.rank):
        first = found.setdefault((task.kind, task.key), task)
        groups = tuple(dict.fromkeys((*first.groups, *task.groups)))
        seed = task.seed if first.seed is None else first.seed
        found[task.kind, task.key] = replace(first, groups=groups, seed=seed)
    return list(found.values())
