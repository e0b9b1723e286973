"""Measures variants in a child process, so that one that crashes or hangs costs only that process.

`oclgen.measuring.measure` says how a variant is measured. Compilers of OpenCL runtimes run in the
process that calls them, and some kernels crash them. So they run in child processes, too: ahead in
`oclgen.measuring.builders`, or in the process that measures.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from oclgen import system
from oclgen.limits import DeviceInfo
from oclgen.measurement import Cache, Measurement
from oclgen.measuring.builders import Builders, Source, Texts
from oclgen.measuring.child import ASKS, TIMEOUTS, Child, ChildError, Leave, Stage, WorkerError
from oclgen.measuring.excerpt import AFFORDABLE
from oclgen.parameters import ConfigError
from oclgen.problem import Problem
from oclgen.variant import Variant

if TYPE_CHECKING:
    from oclgen.measuring.measure import Bench
    from oclgen.opencl.device import Device

__all__ = ["TIMEOUTS", "Stage", "Worker", "WorkerError"]

SHARE, LOOK_S, TOO_LARGE = 2, 0.2, 77
"""A process has at most 1/SHARE of the machine's memory, else it ends with this exit code."""
MOST_BUILDERS = 8
"""More build faster than a device measures, and each holds a context on it."""
USUAL, SHORTEST_RUN_S = 10.0, 10.0
"""A variant may run for `USUAL` times as long as the slowest of its problem that was timed, and for
`SHORTEST_RUN_S` seconds at least. Of a slower variant only the first launches are timed, so one
that takes longer hangs, or is of no use. Where none was timed, nothing tells slow ones from hangs.
"""


@dataclass
class Worker:
    """Measures on the device with this global index; close it, or use it as a context manager.

    The child is started on entry or when it is first needed, and again after it died. `seed`
    draws the inputs of every problem, and is another one in every run. With `leave` a variant runs
    only within the context that it returns. `affordable` is the most work of a reference that is
    computed whole.
    """

    index: int
    info: DeviceInfo
    timeouts: dict[Stage, float] = field(default_factory=lambda: dict(TIMEOUTS))
    cache: Cache = "warm"
    seed: int = field(default_factory=lambda: secrets.randbits(31))
    builders: int = field(default_factory=lambda: min(os.cpu_count() or 1, MOST_BUILDERS))
    leave: Leave | None = None
    affordable: float = AFFORDABLE

    def __post_init__(self) -> None:
        """Start nothing yet."""
        self._child = Child("measure", self.index, self.info, self.timeouts)
        self._ran: dict[Problem, float] = {}  # seconds of the slowest that was timed
        children = [
            Child("build", self.index, self.info, self.timeouts) for _ in range(self.builders)
        ]
        self._builders = Builders(children)

    @property
    def overlaps(self) -> bool:
        """Whether builds may go on while the device measures: a CPU's cores are the device."""
        return self.info.kind != "cpu"

    def begin(self) -> None:
        """Start all processes without waiting, where the device does not need their cores."""
        if self.overlaps:
            self._child.begin()
            self._builders.begin()

    def build_ahead(self, problem: Problem, variant: Variant) -> None:
        """Begin to build a variant that will be measured soon."""
        self._builders.start(problem, variant)

    def drop_ahead(self, problem: Problem, variant: Variant) -> None:
        """Forget a variant that was begun by `build_ahead` and will not be measured."""
        self._builders.drop(problem, variant)

    def measure(
        self, problem: Problem, variant: Variant, best_ms: float = float("inf")
    ) -> Measurement:
        """Return times of a variant, or why there are none: a crash and a hang are reasons too.

        Args:
            problem: what is computed.
            variant: what computes it; it was begun by `build_ahead`, or is built first.
            best_ms: the best time so far: what is clearly slower is timed less often.

        Raises:
            WorkerError: no child can be had.
        """
        built = self._builders.take(problem, variant, alone=not self.overlaps)
        if isinstance(built, Measurement):
            return built
        asks = self.leave is not None
        settings = (self.seed, self.cache, built, asks, self.affordable)
        question = (problem, variant, best_ms, *settings)
        try:
            answer: Measurement = self._child.ask(
                question, "preparing", self.leave or nullcontext, self._may_run(problem)
            )
        except ChildError as error:
            return error.as_failure()
        if answer.ok:
            self._ran[problem] = max(self._ran.get(problem, 0.0), self._child.spent("running"))
        return answer

    def _may_run(self, problem: Problem) -> float:
        """Return the seconds that a variant may run; infinite where the problem's are unknown."""
        usual = self._ran.get(problem)
        return inf if usual is None else max(USUAL * usual, SHORTEST_RUN_S)

    @property
    def pid(self) -> int | None:
        """The measuring child's process id; None while there is no child."""
        return self._child.pid

    def close(self) -> None:
        """End the children, whatever they do."""
        self._builders.close()
        self._child.close()

    def __enter__(self) -> Worker:
        """Start the child, so that one that cannot be had is no failure of a variant."""
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_measurements(pipe: Connection, device: Device) -> None:
    """Measure what the parent asks for until it hangs up: a child's whole work."""
    from oclgen.measuring.measure import Bench

    bench: Bench | None = None
    while True:
        try:
            problem, variant, best_ms, seed, cache, binaries, asks, affordable = pipe.recv()
        except EOFError:
            return
        except ConfigError as error:  # a family that this process does not know
            pipe.send(_surprise(error))
            continue
        if bench is None or (bench.problem, bench.seed) != (problem, seed):
            device.programs.forget()
            leave = _asking(pipe) if asks else nullcontext
            bench = Bench(device, problem, seed, cache, leave, affordable)
        pipe.send(_measurement(pipe, bench, variant, best_ms, binaries))


def _asking(pipe: Connection) -> Leave:
    """Return what asks the parent before something runs, and says when it ran."""

    @contextmanager
    def leave() -> Iterator[None]:
        pipe.send(ASKS)
        pipe.recv()
        try:
            yield
        finally:
            pipe.send("running")

    return leave


def serve_builds(pipe: Connection, device: Device) -> None:
    """Build what the parent asks for until it hangs up: a child's whole work."""
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        except ConfigError as error:  # a family that this process does not know
            pipe.send(_surprise(error))
            continue
        pipe.send(_built(device, question))
        device.programs.forget()


def _built(device: Device, question: Any) -> Any:
    """Build a `Source`, or all programs of a variant; what is wrong with them is an answer, too."""
    from oclgen.opencl.device import BuildError

    if isinstance(question, Texts):
        from oclgen.templates import templates  # mako is 0.1 s that no context has to wait for

        for name in question.templates:
            templates("oclgen").get(name)
        return None
    if isinstance(question, Source):
        try:
            return device.programs.built_for_others(question.text, question.options)
        except Exception as error:
            return error if isinstance(error, BuildError) else BuildError(str(_surprise(error)))
    problem, variant = question
    try:
        sources = [one.source for one in variant.plan(problem).launches]
        return {source: device.programs.binary(source) for source in sources}
    except BuildError as error:
        return Measurement(invalidity="compile", reason=str(error))
    except Exception as error:
        return _surprise(error)


def _measurement(
    pipe: Connection,
    bench: Bench,
    variant: Variant,
    best_ms: float,
    binaries: dict[str, bytes],
) -> Measurement:
    """Measure one variant and tell the stages; what it raises is a failure of the variant."""
    from oclgen.opencl.device import BuildError

    try:
        plan = variant.plan(bench.problem)
        pipe.send("compiling")
        for source, binary in binaries.items():
            bench.device.programs.load(source, binary)
        for launch in plan.launches:
            bench.device.build(launch.source)
        pipe.send("running")
        return bench.measure(plan, best_ms)
    except BuildError as error:
        return Measurement(invalidity="compile", reason=str(error))
    except Exception as error:
        return _surprise(error)


def _surprise(error: Exception) -> Measurement:
    return Measurement(invalidity="runtime", reason=f"{type(error).__name__}: {error}")


def main(role: str, pipe: Connection, index: int) -> None:
    """Open the device, say which it is, and serve: the child's end of a pipe.

    Args:
        role: "build" compiles, anything else measures.
        pipe: to the parent process.
        index: of the device in `oclgen.opencl.device.devices()`.
    """
    from oclgen.opencl import device as opencl

    _end_with_parent(pipe)
    if (memory := system.memory_bytes()) is not None:
        _end_beyond(memory // SHARE)
    device = (opencl.opened if role == "build" else opencl.select)(index)
    pipe.send(device.info)
    (serve_builds if role == "build" else serve_measurements)(pipe, device)


def _end_with_parent(pipe: Connection) -> None:
    """End this process once the other end of `pipe` is closed, whatever a compiler does here."""

    def watch() -> None:
        system.wait_for_hang_up(pipe.fileno())
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end_beyond(most: int) -> None:
    """End this process once it has `most` bytes of memory: a text or a compiler may take all."""

    def watch() -> None:
        while (system.used_bytes() or 0) < most:
            time.sleep(LOOK_S)
        os._exit(TOO_LARGE)

    if system.used_bytes() is not None:
        threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[2], Connection(int(sys.argv[1])), int(sys.argv[3]))
