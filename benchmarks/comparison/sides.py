"""The two sides of a benchmark as processes that take turns; neither knows of the other.

CUDA and the device `ocl` do not share a process, and what crashes or hangs costs one row. A side is
a function that says of a task how it is prepared; this module carries questions and answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from benchmarks.timing import Prepare, Prepared

START_S = 300.0
"""Seconds a side may take to start: the first import of the torch device compiles its shim."""
LOST = "CUDA error"
"""In an answer: a kernel failed, and with it whatever the process would ask of its context."""
LONGEST = 400
"""Characters kept of an error."""


class SideError(RuntimeError):
    """A side failed, died or did not answer in time; the message says which and why."""


class Side:
    """Our end of a side's process; it starts with the first question, and again if it died.

    `start` is a function of a module, called there with `args`; it returns the `Prepare`.
    """

    def __init__(self, name: str, start: Callable[..., Prepare], *args: Any) -> None:
        self.name, self._start, self._args = name, start, args
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def prepare(self, kind: str, what: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Make ready for a task and return the notes on it; `contestants` are names among them.

        Args:
            kind: of `benchmarks.comparison.run.KINDS`, "sweep", "ahead" or "hello".
            what: the task, as the kind's `prepare` takes it.
            seconds: after them the side is ended.

        Returns:
            Notes; `contestants` are names among them.

        Raises:
            SideError: as `samples`.
        """
        notes: dict[str, Any] = self._ask((kind, what), seconds)
        return notes

    def samples(self, contestant: str, seconds: float) -> list[float]:
        """Return the times in ms of one turn of what was prepared.

        Raises:
            SideError: it failed, died, or took longer than `seconds`; a side that did is ended.
        """
        times: list[float] = self._ask(contestant, seconds)
        return times

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def _ask(self, question: object, seconds: float) -> Any:
        if self._process is None:
            self._begin()
        assert self._connection
        try:
            self._connection.send(question)
            if not self._connection.poll(seconds):
                self.close()
                raise SideError(f"{self.name}: no answer in {seconds:.0f} s")
            well, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._end_code()
            raise SideError(f"{self.name}: its process ended with code {code}") from error
        if not well:
            if LOST in answer:
                self.close()
            raise SideError(f"{self.name}: {answer}")
        return answer

    def _begin(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self._start, self._args), daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._connection.poll(START_S):
            self.close()
            raise SideError(f"{self.name}: did not start in {START_S:.0f} s")
        try:
            well, answer = self._connection.recv()
        except EOFError as error:
            code = self._end_code()
            raise SideError(f"{self.name}: ended with code {code} as it started") from error
        if not well:
            self.close()
            raise SideError(f"{self.name}: {answer}")

    def _end_code(self) -> int | None:
        assert self._process
        self._process.join(5.0)
        code = self._process.exitcode
        self.close()
        return code


def _serve(connection: Connection, start: Callable[..., Prepare], args: tuple[Any, ...]) -> None:
    """Answer questions until the other end is closed."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            prepare = start(*args)
        except Exception as error:
            connection.send((False, _text(error)))
            return
        connection.send((True, None))
        prepared = Prepared({}, {})
        while True:
            question = connection.recv()
            try:
                if isinstance(question, str):
                    answer: object = prepared.contestants[question]()
                else:
                    prepared = Prepared({}, {})  # lets go of memory first
                    prepared = prepare(*question)
                    answer = {**prepared.notes, "contestants": list(prepared.contestants)}
                connection.send((True, answer))
            except Exception as error:
                connection.send((False, _text(error)))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST]
