"""Runs the steps of a self-test in processes of their own, each of which may crash or hang.

A step's process names each item before it begins it. If the process ends, that item failed: it
becomes a line of the verdict, and another process goes on with the rest.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from oclgen.measuring.child import ended_by, spawn

Verdict = Literal["ok", "skipped", "fail"]
MOST_STARTS = 8
"""Processes that a step gets at most: each of them died of another item."""
MARGIN = 0.9
"""Part of a step's seconds that its process knows of: it ends by itself before it is ended."""
THE_STEP = "the step"
"""The item of a finding that belongs to no item of the step."""
LONGEST = 1000
"""Characters of a finding."""


class Finding(NamedTuple):
    """A line of the verdict: what was tried in which step, and its result."""

    step: str
    what: str
    verdict: Verdict
    found: str


class Talk:
    """The step's end of the pipe.

    Args:
        pipe: to the process that started this one.
        question: what is asked, with the names of items to `skip` and the `seconds` that are left.
    """

    def __init__(self, pipe: Connection, question: Mapping[str, Any]) -> None:
        self._pipe = pipe
        self.question = question
        self.ends = time.monotonic() + float(question["seconds"])

    def begins(self, what: str) -> bool:
        """Say that an item is begun; False where it is to be left out, or the time is up."""
        if what in self.question["skip"] or time.monotonic() > self.ends:
            return False
        self._pipe.send(("begin", what))
        return True

    def find(self, what: str, verdict: Verdict, found: str) -> None:
        """Send the result of an item.

        Args:
            what: the item.
            verdict: whether it is right.
            found: the same in words and numbers.
        """
        self._pipe.send(("finding", what, verdict, found[:LONGEST]))

    def tell(self, name: str, value: Any) -> None:
        """Hand over a value that JSON can carry."""
        self._pipe.send(("fact", name, value))


def serve(work: Callable[[Talk], None]) -> None:
    """Do a step's work: all that its process does. What it raises it says as its last word."""
    pipe = Connection(int(sys.argv[1]))
    try:
        work(Talk(pipe, json.loads(sys.argv[2])))
    except Exception as error:
        pipe.send(("died", f"{type(error).__name__}: {error}"[:LONGEST]))
    else:
        pipe.send(("end",))


def run(
    step: str,
    module: str,
    question: Mapping[str, Any],
    seconds: float,
    patience: float,
    starting: float,
    told: Callable[[str, Any], None] = lambda _name, _value: None,
) -> Iterator[Finding]:
    """Run a step and yield its findings; crashes and hangs are findings, too.

    Args:
        step: its name, in every finding.
        module: what its processes run; it calls `serve`.
        question: for the module; JSON can carry it.
        seconds: for the whole step.
        patience: seconds after which a process that says nothing more is ended.
        starting: seconds that it may take until it says something.
        told: is called with the values that the step hands over.
    """
    ends = time.monotonic() + seconds
    skip: list[str] = []
    for _ in range(MOST_STARTS):
        left = max(ends - time.monotonic(), 0.0)
        asked = {**question, "skip": skip, "seconds": MARGIN * left}
        known, begun = len(skip), ""
        for kind, *said in _messages(module, json.dumps(asked), ends, patience, starting):
            if kind == "begin":
                begun = said[0]
                skip.append(begun)
            elif kind == "finding":
                begun = ""
                yield Finding(step, *said)
            elif kind == "fact":
                told(*said)
            elif kind == "end":
                return
            else:
                verdict: Verdict = "skipped" if kind == "late" else "fail"
                yield Finding(step, begun or THE_STEP, verdict, said[0])
        if len(skip) == known or time.monotonic() > ends:
            return


def _messages(
    module: str, question: str, ends: float, patience: float, starting: float
) -> Iterator[tuple[Any, ...]]:
    """Yield what a process says, then how it died if it did not say that it is done."""
    process, pipe = spawn(module, question)
    allowed = starting
    try:
        while True:
            wait = min(allowed, max(ends - time.monotonic(), 0.0))
            if not pipe.poll(wait):
                if wait < allowed:
                    yield "late", "the time was up"
                else:
                    yield "died", f"it did not answer within {wait:.0f} s"
                return
            message, allowed = pipe.recv(), patience
            yield message
            if message[0] in ("end", "died"):
                return
    except (EOFError, OSError):
        yield "died", f"it ended the process ({ended_by(process)})"
    finally:
        process.kill()
        process.wait()
        pipe.close()
