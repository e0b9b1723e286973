"""Decides which problem of a network is tuned next, so that trials go where its time goes.

It is the gradient scheduler of Ansor (Zheng et al., OSDI 2020, section 6) without its comparison of
similar tasks, which would hold a memory-bound problem's low rate against it. It measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

SEEN = 0.2
"""Ansor's alpha: the weight of the last gain; the rest is for the hope of time / slices."""


@dataclass(slots=True)
class Task:
    """One problem of a network: how often it runs, and its best milliseconds after each slice."""

    calls: int = 1
    best: list[float] = field(default_factory=list)
    done: bool = False
    busy: bool = False

    @property
    def promise(self) -> float:
        """Milliseconds per run of the network that one more slice of trials may save."""
        if not self.best or self.best[-1] == inf:
            return inf
        gained = self.best[-2] - self.best[-1] if len(self.best) > 1 else 0.0
        gained = 0.0 if gained == inf else gained  # its first slice found nothing that worked
        hoped = self.best[-1] / len(self.best)
        return self.calls * (SEEN * gained + (1 - SEEN) * hoped)


def choose(tasks: Sequence[Task]) -> int | None:
    """Return the index of the task that promises most, None when all are done or busy.

    Of tasks that promise equally much the one with the fewest slices is taken, of these the first:
    so every task has its first slice, in order, before any has its second.
    """
    alive = [index for index, task in enumerate(tasks) if not (task.done or task.busy)]
    return max(
        alive, key=lambda index: (tasks[index].promise, -len(tasks[index].best)), default=None
    )
