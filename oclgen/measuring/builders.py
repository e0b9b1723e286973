"""Builds programs in processes of their own: for devices that wait for them, and for searches.

A thread waits for each process: compilers of OpenCL runtimes crash and take a core each, so none
runs in ours. It measures nothing, and chooses nothing: `oclgen.measuring.worker` is what runs in a
process, `oclgen.opencl.ahead` builds what operators ask for.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from oclgen.measurement import Measurement
from oclgen.measuring.child import Child, ChildError, WorkerError
from oclgen.problem import Problem
from oclgen.variant import Variant

Built = dict[str, bytes] | Measurement
"""The binaries of a variant's programs by their source, or why there are none."""
Key = tuple[Problem, Variant]

LIFE = 100
"""Builds of a process: what compilers allocate, Intel's 4 MB for a program, stays until its end."""
FIRST_IDLE_S = 30.0
"""Seconds that a process which was started ahead waits for its first question, at least."""
JOIN_S = 5.0
"""Seconds that a thread waits for its process to end; on a loaded machine it may take longer."""


class Source(NamedTuple):
    """A program that a process is asked to build, and the compiler's options."""

    text: str
    options: tuple[str, ...]


class Texts(NamedTuple):
    """Templates of this package, by name, that a process is asked to compile for all others."""

    templates: tuple[str, ...]


class Task(NamedTuple):
    """A request to a process, and where its answer goes."""

    question: Any
    answer: Future[Any]
    size: int


class Pool:
    """Processes that answer questions, the largest of those that wait first.

    All answers are there earlier so: a large program that is begun last is waited for while all
    processes but one rest. Equal ones are answered in the order in which they were asked. Each
    process starts when questions wait for it. One that dies costs the answer it was at and is
    replaced.
    """

    def __init__(
        self, children: Sequence[Child], idle_s: float | None = None, spare: int = 0
    ) -> None:
        """Start nothing yet.

        Args:
            children: the processes.
            idle_s: seconds without a question after which a process ends; None: it stays.
            spare: questions that wait without that a process is started for them.
        """
        self.children = [*children]
        self._free = [*children]
        self._idle_s, self.spare = idle_s, spare
        self._tasks: deque[Task] = deque()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self.is_closed = False
        self._process = os.getpid()

    def submit(self, question: Any, size: int = 0) -> Future[Any]:
        """Ask; the future ends with the answer, `ChildError` or `WorkerError`.

        Args:
            question: what a process is asked.
            size: of the question, whatever the unit.
        """
        task = Task(question, Future(), size)
        with self._changed:
            self._tasks.append(task)
            if len(self._tasks) > self._idle + self.spare:
                self._start_one()
            self._changed.notify()
        return task.answer

    def start(self) -> None:
        """Start all processes: many questions are to come."""
        with self._changed:
            while self._start_one(ahead=True):
                pass

    def serve(self) -> None:
        """Start a process for the waiting requests, even if no thread comes to `steal` them."""
        with self._changed:
            if self._tasks and not self._threads:
                self._start_one()

    def _start_one(self, ahead: bool = False) -> bool:
        """Start a process, unless all are; return whether one was."""
        if not self._free or self.is_closed:
            return False
        thread = threading.Thread(
            target=self._serve, args=(self._free.pop(), ahead), name="builder", daemon=True
        )
        self._threads.add(thread)
        thread.start()
        return True

    def steal(self) -> Task | None:
        """Return the oldest program that no process has begun: the caller builds it."""
        with self._changed:
            programs = (task for task in self._tasks if not isinstance(task.question, Texts))
            if (oldest := next(programs, None)) is not None:
                self._tasks.remove(oldest)
            return oldest

    def give_back(self, task: Task) -> None:
        """Undo `steal`."""
        with self._changed:
            self._tasks.appendleft(task)
            self._changed.notify()

    def close(self) -> None:
        """End all processes; what was not answered is cancelled or fails.

        A forked child does nothing: the processes are its parent's.
        """
        if os.getpid() != self._process:
            return
        with self._changed:
            self.is_closed = True
            tasks, threads = [*self._tasks], [*self._threads]
            self._tasks.clear()
            self._changed.notify_all()
        for task in tasks:
            task.answer.cancel()
            task.answer.set_running_or_notify_cancel()  # or `wait` would wait for it
        for child in self.children:
            child.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_S)
        for child in self.children:
            child.close()  # one that its thread was just starting

    def _serve(self, child: Child, ahead: bool) -> None:
        built, idle_s = 0, self._idle_s
        if ahead:
            with suppress(Exception):  # the first question hears of it; `close` takes the pipe away
                child.start()
            idle_s = None if idle_s is None else max(idle_s, FIRST_IDLE_S)
        while task := self._next(child, idle_s):
            idle_s = self._idle_s
            if not task.answer.set_running_or_notify_cancel():
                continue
            try:
                answer = child.ask(task.question, "compiling")
            except BaseException as error:
                task.answer.set_exception(error)
            else:
                task.answer.set_result(answer)
            built += 1
            if built % LIFE == 0:
                child.close()

    def _next(self, child: Child, idle_s: float | None) -> Task | None:
        """Return the next question, or None: the thread of `child` has come to its end."""
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._tasks or self.is_closed, idle_s)
                self._idle -= 1
                if self._tasks and not self.is_closed:
                    largest = max(self._tasks, key=attrgetter("size"))
                    self._tasks.remove(largest)
                    return largest
            child.close()  # first: another thread may start the process as soon as it is free
            with self._changed:
                if not self._tasks or self.is_closed:
                    self._threads.discard(threading.current_thread())
                    self._free.append(child)
                    return None


@dataclass
class Builders:
    """Builds a search's variants ahead; one whose build dies or hangs is a failure."""

    children: list[Child]
    _builds: dict[Key, Future[Built]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Start no process yet: each starts with its first build."""
        self._pool = Pool(self.children)

    def begin(self) -> None:
        """Start all processes: builds are to come."""
        self._pool.start()

    def start(self, problem: Problem, variant: Variant) -> None:
        """Begin to build a variant, unless that was begun before or there is no process for it."""
        key = (problem, variant)
        if self.children and key not in self._builds:
            self._builds[key] = self._pool.submit(key)

    def take(self, problem: Problem, variant: Variant, alone: bool) -> Built:
        """Return what became of a variant that was begun, once.

        Args:
            problem: as `start` was given it.
            variant: as `start` was given it.
            alone: wait until no build is under way: on a CPU they slow what is measured next.

        Returns:
            Binaries by source, or the failure; no binaries where the build was not begun.
        """
        future = self._builds.pop((problem, variant), None)
        if alone:
            wait([*self._builds.values(), *([future] if future else [])])
        if future is None:
            return {}
        with suppress(WorkerError):  # no process to be had: the one that measures builds it
            try:
                return future.result()
            except ChildError as error:
                return error.as_failure()
        return {}

    def drop(self, problem: Problem, variant: Variant) -> None:
        """Forget a variant that was begun; what no process has begun is not built."""
        if future := self._builds.pop((problem, variant), None):
            future.cancel()

    def close(self) -> None:
        """End all processes; builds under way come to nothing."""
        self._pool.close()
