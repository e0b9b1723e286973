"""Tunes for a program that runs on the same device, in a second process that asks it first.

The program sends the problems that it met, and says when a variant may run. Everything else goes on
beside it at the lowest priority: the search, compilers, references in float64. The program's end of
the pipe is `ocl_backend.background`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from oclgen import system
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces.progress import Budget, Progress
from search_spaces.session import Session

READY, GO, RAN = "ready", "go", "ran"
"""What is said around each run of a variant: this process asks, is allowed, and has done it."""


@dataclass(frozen=True, slots=True)
class Won:
    """A variant is faster than all before it: what the program hears of a problem's search.

    Attributes:
        problem: its key.
        before_ms: time of the first variant that was measured here.
        ms: time of the new winner.
    """

    problem: str
    before_ms: float
    ms: float


@dataclass
class Server:
    """Tunes what the other end of the pipe names, until it hangs up.

    Attributes:
        pipe: to the program. It sends lists of problems, and `GO`.
        trials: variants per problem.
    """

    pipe: Connection
    trials: int
    _pending: dict[Problem, int] = field(default_factory=dict, init=False)
    _best: dict[Problem, tuple[Variant, float]] = field(default_factory=dict, init=False)

    def run(self, session: Session) -> None:
        """Tune, problems with most operations first, until the program hangs up."""
        try:
            while True:
                while not self._pending:
                    self._hear()
                problems, self._pending = self._pending, {}
                with session:
                    session.tune(problems, Budget(self.trials), report=self._report)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return

    @contextmanager
    def leave(self) -> Iterator[None]:
        """Wait until the program lets a variant run; tell it when it ran."""
        self.pipe.send(READY)
        while self._hear() != GO:
            pass
        yield
        self.pipe.send(RAN)

    def _hear(self) -> str:
        """Return what the program says; problems are noted, and count once each time."""
        said = self.pipe.recv()
        if isinstance(said, str):
            return said
        for problem in said:
            self._pending[problem] = self._pending.get(problem, 0) + 1
        return ""

    def _report(self, progress: Progress) -> None:
        if progress.best is None:
            return
        variant, ms = progress.best.variant, progress.best.ms
        known, before = self._best.setdefault(progress.problem, (variant, ms))
        if known != variant:
            self._best[progress.problem] = variant, before
            self.pipe.send(Won(progress.problem.key(), before, ms))


def main(pipe: Connection, index: int, trials: int) -> None:
    """Serve: the tuning process's whole work.

    Args:
        pipe: to the program.
        index: of the device in `oclgen.opencl.device.devices()`.
        trials: variants per problem.
    """
    system.leave_cores_to_others()
    server = Server(pipe, trials)
    session = Session(index, with_peak=False, is_resident=True, leave=server.leave)
    try:
        server.run(session)
    finally:
        session.close()


if __name__ == "__main__":
    # imported by its name, because the values that it pickles name their module
    from search_spaces.background import main as serve

    serve(Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))
