"""Builds programs ahead in processes of their own, so that the device need not wait for compilers.

It measures nothing, and chooses nothing: `oclgen.measuring.worker` takes what it built to the
device.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue

from oclgen.measurement import Measurement
from oclgen.measuring.child import Child, ChildError, WorkerError
from oclgen.problem import Problem
from oclgen.variant import Variant

Built = dict[str, bytes] | Measurement
"""The binaries of a variant's programs by their source, or why there are none."""
Key = tuple[Problem, Variant]


@dataclass
class Builders:
    """A pool of building processes; one that dies or hangs costs its own build and is replaced.

    A thread waits for each process: compilers of OpenCL runtimes crash, so none runs in ours.
    """

    children: list[Child]
    _idle: SimpleQueue[Child] = field(default_factory=SimpleQueue, init=False)
    _builds: dict[Key, Future[Built]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Start no process yet: each starts with its first build."""
        self._threads = ThreadPoolExecutor(max(len(self.children), 1), "builder")
        for child in self.children:
            self._idle.put(child)

    def start(self, problem: Problem, variant: Variant) -> None:
        """Begin to build a variant, unless that was begun before or there is no process for it."""
        key = (problem, variant)
        if self.children and key not in self._builds:
            self._builds[key] = self._threads.submit(self._build, key)

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
        return future.result() if future else {}

    def close(self) -> None:
        """End all processes; builds under way come to nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self.children:
            child.close()

    def _build(self, key: Key) -> Built:
        child = self._idle.get()
        try:
            answer: Built = child.ask(key, "compiling")
        except ChildError as error:
            return error.as_failure()
        except WorkerError:  # no process to be had: the one that measures builds it
            return {}
        finally:
            self._idle.put(child)
        return answer
