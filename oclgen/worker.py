"""Measures variants in a child process, so that one that crashes or hangs costs that process only.

What is measured, and how, is `oclgen.measure`; compilers of OpenCL runtimes run in our process
and do die of kernels they do not like.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal

from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.problem import Problem

Stage = Literal["starting", "preparing", "compiling", "running"]

TIMEOUTS: dict[Stage, float] = {
    "starting": 120.0,
    "preparing": 600.0,
    "compiling": 60.0,
    "running": 60.0,
}
"""Seconds that each stage may take. Preparing is the float64 reference of a large problem."""


class WorkerError(RuntimeError):
    """The child process cannot be started, or sees another device than its parent."""


@dataclass
class Worker:
    """Measures on the device with this global index; close it, or use it as a context manager.

    The child is started on entry or when it is first needed, and again after it died.
    """

    index: int
    info: DeviceInfo
    timeouts: dict[Stage, float] = field(default_factory=lambda: dict(TIMEOUTS))
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _pipe: Connection | None = field(default=None, init=False)

    def measure(
        self, problem: Problem, family: str, config: Any, best_ms: float = float("inf")
    ) -> Measurement:
        """Return times of a variant, or why there are none: a crash and a hang are reasons too.

        Raises:
            WorkerError: no child can be had.
        """
        pipe = self._pipe or self._start()
        stage: Stage = "preparing"
        try:
            pipe.send((problem, family, asdict(config), best_ms))
            while True:
                answer = self._receive(stage)
                if isinstance(answer, Measurement):
                    return answer
                stage = answer
        except TimeoutError:
            self.close()
            reason = f"{stage} took longer than {self.timeouts[stage]:.0f} s"
            return Measurement(invalidity="timeout", reason=reason)
        except (EOFError, OSError):
            reason = f"{stage} ended the process ({self._cause_of_death()})"
            return Measurement(
                invalidity="compile" if stage == "compiling" else "runtime", reason=reason
            )
        except BaseException:  # an interrupt: the answer that is under way belongs to nobody
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is no child."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the child, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def __enter__(self) -> Worker:
        """Start the child, so that one that cannot be had is no failure of a variant."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, stage: Stage) -> Any:
        assert self._pipe is not None
        if not self._pipe.poll(self.timeouts[stage]):
            raise TimeoutError
        return self._pipe.recv()

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "oclgen.worker", str(theirs.fileno())]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYOPENCL_NO_CACHE": "1",  # what is tried once is not worth keeping
        }
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(self.index)],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._pipe = Connection(ours.detach())
        try:
            seen = self._receive("starting")
        except (EOFError, OSError, TimeoutError) as error:
            cause = self._cause_of_death()
            raise WorkerError(
                f"no process to measure in: it ended at its start ({cause})"
            ) from error
        if seen != self.info:
            self.close()
            raise WorkerError(f"device {self.index} is {self.info.name} here and {seen} in a child")
        return self._pipe

    def _cause_of_death(self) -> str:
        """Return how the child ended, and forget it."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def serve(pipe: Connection, index: int) -> None:
    """Answer the parent's questions until it hangs up: the child's whole work."""
    from oclgen.device import select
    from oclgen.measure import Bench

    device = select(index)
    pipe.send(device.info)
    bench: Bench | None = None
    while True:
        try:
            problem, family, values, best_ms = pipe.recv()
        except EOFError:
            return
        if bench is None or bench.problem != problem:
            device.forget_programs()
            bench = Bench(device, problem)
        pipe.send(_answer(pipe, bench, family, values, best_ms))


def _answer(
    pipe: Connection, bench: Any, family: str, values: dict[str, Any], best_ms: float
) -> Measurement:
    """Measure one variant and tell the stages; what it raises is a failure of the variant."""
    from oclgen.device import BuildError
    from oclgen.families import FAMILIES, config_from_dict

    try:
        plan = FAMILIES[family].plan(bench.problem, config_from_dict(family, values))
        pipe.send("compiling")
        for launch in plan.launches:
            bench.device.build(launch.source)
        pipe.send("running")
        measurement: Measurement = bench.measure(plan, best_ms)
    except BuildError as error:
        return Measurement(invalidity="compile", reason=str(error))
    except Exception as error:
        return Measurement(invalidity="runtime", reason=f"{type(error).__name__}: {error}")
    return measurement


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
