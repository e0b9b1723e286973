"""Programs that are built on all cores while the caller goes on: requested now, waited for later.

A caller that waits loads what was built, and builds programs that no process has begun. So a single
program costs no process, and the caller's own core is used, too.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple

from oclgen import system
from oclgen.limits import Limits
from oclgen.measuring.builders import Pool, Source, Task, Texts
from oclgen.measuring.child import PROCESSES_VARIABLE, TIMEOUTS, Child, ChildError, WorkerError
from oclgen.opencl.programs import BuildError, Built, Programs

MOST_PROCESSES = 32
"""Each holds the runtime's library, some 100 MB of the host's memory."""
CONTEXT_BYTES, SHARE = 512 << 20, 8
"""Bytes of a GPU's memory that a process's context may take; all take at most 1/SHARE of it."""
MANY = 4
"""Processes of which each compiles few of the package's 90 templates."""
HELPS = True
"""Whether a thread that waits for a program builds, too: pools made from now on leave it one."""
IDLE_S = 5.0
"""Seconds after which a process without work ends."""
PATIENCE_S = 600.0
"""Seconds that a program may take, with a process at work on every core."""
LOOK_S = 0.05
"""Seconds between two looks at what a wait is for: it can be interrupted, and shows progress."""

Tell = Callable[[int, int], None]
"""Hears how many programs are built, and how many were asked for."""


def processes(limits: Limits) -> int:
    """Return how many processes build for a device, beside this one.

    `OCLGEN_BUILDERS` says it; without it there is one for each core but this process's, and no
    more than a GPU's memory has room for. Processes of one training share the machine's cores:
    torchrun says how many there are (`LOCAL_WORLD_SIZE`).
    """
    with suppress(KeyError, ValueError):
        return max(int(os.environ[PROCESSES_VARIABLE]), 0)
    room = MOST_PROCESSES
    if limits.kind != "cpu":
        room = min(room, limits.global_bytes // (SHARE * CONTEXT_BYTES))
    cores = system.cores()
    with suppress(KeyError, ValueError):
        cores //= max(int(os.environ["LOCAL_WORLD_SIZE"]), 1)
    return max(min(cores - 1, room), 1)


class Asked(NamedTuple):
    """A program that was asked for: its text, and what is waited for."""

    source: str
    known: Future[Any]


class Ahead:
    """Builds programs of a device ahead of their use."""

    def __init__(self, programs: Programs, index: int, limits: Limits) -> None:
        """Start nothing yet.

        Args:
            programs: where what was built is found.
            index: of the device in `oclgen.opencl.device.devices()`.
            limits: of the device.
        """
        self._programs, self._index, self._limits = programs, index, limits
        self._info = programs.info  # processes have to see the same
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._asked: dict[str, Future[Any]] = {}
        self._arrived: deque[tuple[Asked, Future[Any]]] = deque()
        self._news = threading.Event()
        self._begun = self._done = 0

    @cached_property
    def _processes(self) -> int:
        return processes(self._limits)

    def expect(self) -> None:
        """Start the processes if a first network may be about to come: they take a second or more.

        Where programs were built before, most may be there: then they start one by one. Many
        processes compile the templates first, which would take this one half a second. Some may
        have started: they built the small programs that ask a device for its instructions.
        """
        with self._lock:
            if self._programs.stored.is_new and self._processes:
                if self._pool is None:
                    self._pool = self._made()
                self._pool.start()
                if self._processes >= MANY:
                    from oclgen.templates import templates  # mako takes 0.1 s, only needed here

                    names = templates("oclgen").uncompiled()
                    for first in range(min(self._processes, len(names))):
                        self._pool.submit(Texts(tuple(names[first :: self._processes])))

    def find(self, source: str) -> Any:
        """Return the program of `source`, or the `Future` of it if it has yet to be built.

        What was asked for may be on disk before its `Future` has it, and is not loaded from there.

        Raises:
            BuildError: the compiler has refused it.
        """
        if (asked := self._asked.get(source)) is not None:
            return asked.result() if asked.done() else asked
        program = self._programs.find(source)
        if program is not None:
            return program
        if not self._processes:
            return self._programs.compile(source)
        future = self._request(source)
        return future.result() if future.done() else future

    def are_built(self, sources: Iterable[str]) -> bool:
        """Say whether all programs are built; a process builds what is not, and nothing waits.

        Raises:
            BuildError: the compiler has refused one.
        """
        while self._arrived:
            self._take_one()
        found = [self.find(source) for source in sources]
        are = not any(isinstance(one, Future) for one in found)
        if not are and self._pool is not None:
            self._pool.serve()
        return are

    def wait(self, future: Future[Any], tell: Tell | None = None) -> Any:
        """Return the program of a future, and build meanwhile what no process has begun.

        Raises:
            BuildError: the compiler refused it, or took its process with it.
            KeyboardInterrupt: the wait ended, the build goes on.
        """
        while not future.done():
            pool = self._pool
            if self._arrived:
                self._take_one()
            elif pool and (pool.spare or pool.is_closed) and (task := pool.steal()):
                self._build_here(pool, task)
            else:
                self._news.wait(LOOK_S)
                self._news.clear()
            if tell is not None:
                tell(self._done, self._begun)
        return future.result()

    def _request(self, source: str) -> Future[Any]:
        with self._lock:
            known = self._asked.get(source)
            if known is not None:
                return known
            if self._pool is None:
                self._pool = self._made()
            known = self._asked[source] = Future()
            self._begun += 1
            question = Source(source, self._programs.options(source))
            built = self._pool.submit(question, len(source))
        built.add_done_callback(partial(self._keep, Asked(source, known)))
        return known

    def _made(self) -> Pool:
        timeouts = {**TIMEOUTS, "compiling": PATIENCE_S}
        children = [
            Child("build", self._index, self._info, timeouts) for _ in range(self._processes)
        ]
        pool = Pool(children, IDLE_S, spare=int(HELPS))
        atexit.register(pool.close)
        return pool

    def _build_here(self, pool: Pool, task: Task) -> None:
        """Build what was stolen from the processes."""
        try:
            self._programs.compile(task.question.text)
        except BuildError as error:
            task.answer.set_exception(error)
        except BaseException:  # an interrupt
            pool.give_back(task)
            raise
        else:
            task.answer.set_result(None)

    def _keep(self, asked: Asked, built: Future[Any]) -> None:
        """Keep what was built on disk; the thread that waited for the process calls this.

        It loads nothing: a runtime that builds in another thread may let loads wait for that, and
        the process would wait, too.
        """
        if not built.cancelled() and not built.exception() and isinstance(built.result(), Built):
            self._programs.keep(asked.source, built.result())
        self._arrived.append((asked, built))
        self._news.set()

    def _take_one(self) -> None:
        """Load the oldest program that has arrived."""
        try:
            asked, built = arrived = self._arrived.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            asked.known.set_result(self._loaded(asked.source, built))
            with self._lock:
                del self._asked[asked.source]
        except Exception as error:
            asked.known.set_exception(error)
        except BaseException:  # an interrupt
            self._arrived.appendleft(arrived)
            raise
        self._done += 1
        self._news.set()

    def _loaded(self, source: str, built: Future[Any]) -> Any:
        if built.cancelled():
            raise BuildError(f"{self._info.name}: the process ends")
        try:
            answer = built.result()
        except ChildError as error:
            raise BuildError(f"{self._info.name}: the compiler's process: {error}") from error
        except WorkerError:
            return self._programs.compile(source)
        if isinstance(answer, BuildError):
            raise answer
        program = self._programs.take(source, answer) if isinstance(answer, Built) else None
        return self._programs.get(source) if program is None else program
