"""A child process that may crash: starts it, sends requests, and says how and when it ended.

`oclgen.measuring.worker` says what the process does with a request.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any, Literal, cast

from oclgen import system
from oclgen.limits import DeviceInfo
from oclgen.measurement import Measurement
from oclgen.opencl.binaries import SIZE_VARIABLE

Stage = Literal["starting", "preparing", "compiling", "running"]
ASKS = "asks for leave"
"""Sent by a child in place of a stage before it runs a variant, if it must ask first."""
Leave = Callable[[], AbstractContextManager[object]]
"""Returns a context: entering it waits until a variant may run, leaving it says that it ran."""

PROCESSES_VARIABLE = "OCLGEN_BUILDERS"
SLEEP_AT_ONCE = {"OPENBLAS_THREAD_TIMEOUT": "4", "KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "PASSIVE"}
"""Environment of a process that measures: idle threads of NumPy's BLAS sleep. By default OpenBLAS's
threads spin for some 25 ms after a product, such as a reference. On a processor they occupy a core,
so that the kernel that is timed next takes twice its time."""
FEWEST_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""Environment of a process that builds: it launches nothing, so NVIDIA's driver makes one hardware
queue instead of several. 15 contexts, which the driver makes one after the other, are there after
1.6 s instead of 3.3 (H200)."""

TIMEOUTS: dict[Stage, float] = {
    "starting": 120.0,
    "preparing": 600.0,
    "compiling": 60.0,
    "running": 60.0,
}
"""Seconds that each stage may take. Preparing is the float64 reference of a large problem."""


class WorkerError(RuntimeError):
    """The child process cannot be started, or sees another device than its parent."""


class ChildError(RuntimeError):
    """The child died or did not answer in time while it did what `stage` says."""

    def __init__(self, stage: Stage, message: str, timed_out: bool) -> None:
        super().__init__(f"{stage} {message}")
        self.stage, self.timed_out = stage, timed_out

    def as_failure(self) -> Measurement:
        """Return what it means for the variant that was being built or measured."""
        if self.timed_out:
            return Measurement(invalidity="timeout", reason=str(self))
        compiling = self.stage == "compiling"
        return Measurement(invalidity="compile" if compiling else "runtime", reason=str(self))


def spawn(
    module: str, *arguments: str, variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a Python process of `module` and return it with our end of a pipe to it.

    Its arguments are the number of its end of the pipe, then `arguments`; `variables` join its
    environment. It prints nothing, and does not receive Ctrl-C, which the parent handles.
    """
    ours, theirs = socket.socketpair()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        SIZE_VARIABLE: "0",  # what is tried once is not worth keeping
        PROCESSES_VARIABLE: "0",  # this is the process that builds
        **SLEEP_AT_ONCE,
        **variables,
    }
    with theirs:
        number, handed = system.handing(theirs)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(number), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **handed,
            **system.apart(),
        )
    return process, Connection(ours.detach())


def ended_by(process: subprocess.Popen[bytes]) -> str:
    """Return how a process ended that hung up: the signal's name, or its exit code."""
    code = 0
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(timeout=5)
    return system.ended(code)


@dataclass
class Child:
    """A process that serves questions about one device, one at a time, and is replaced if it dies.

    It is started when it is first needed. `role` is what `oclgen.measuring.worker` runs in it.
    """

    role: Literal["build", "measure"]
    index: int
    info: DeviceInfo
    timeouts: Mapping[Stage, float] = field(default_factory=lambda: dict(TIMEOUTS))
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _pipe: Connection | None = field(default=None, init=False)
    _spent: dict[Stage, float] = field(default_factory=dict, init=False)
    _is_ready: bool = field(default=False, init=False)

    def ask(
        self, question: Any, stage: Stage, leave: Leave = nullcontext, running: float = inf
    ) -> Any:
        """Return the answer to `question`; until it comes, the child may name further stages.

        Args:
            question: anything that can be pickled.
            stage: what the child does with it first.
            leave: entered when the child asks to run something, until it says what it does next.
            running: seconds that the stage "running" may take, where they are fewer than its own.

        Raises:
            WorkerError: no child can be had.
            ChildError: it died or took too long, and was ended.
        """
        self.start()
        assert self._pipe is not None
        self._spent.clear()
        most = inf
        try:
            self._pipe.send(question)
            with ExitStack() as left:
                while True:
                    most = min(self.timeouts[stage], running if stage == "running" else inf)
                    answer = self._receive(stage, most)
                    left.close()
                    if not isinstance(answer, str):
                        return answer
                    if answer == ASKS:
                        left.enter_context(leave())
                        self._pipe.send(ASKS)
                        answer = "running"
                    stage = cast(Stage, answer)
        except TimeoutError:
            self.close()
            message = f"took longer than {most:.0f} s"
            raise ChildError(stage, message, timed_out=True) from None
        except (EOFError, OSError):
            message = f"ended the process ({self._cause_of_death()})"
            raise ChildError(stage, message, timed_out=False) from None
        except BaseException:
            # an interrupt: the answer under way must not be read as that to the next question
            self.close()
            raise

    def spent(self, stage: Stage) -> float:
        """Return the longest that the last question was in a stage without a word, in seconds."""
        return self._spent.get(stage, 0.0)

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the process, whatever it does."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        self._is_ready = False
        if process is not None:
            process.kill()
            process.wait()
        if pipe is not None:
            pipe.close()

    def begin(self) -> None:
        """Start the process unless there is one, without waiting until it is ready."""
        if self._pipe is None:
            self._spawn()

    def start(self) -> None:
        """Start the process unless there is one, and wait until it is ready.

        Raises:
            WorkerError: it ended at its start, or sees another device under this index.
        """
        if self._is_ready:
            return
        self.begin()
        try:
            seen = self._receive("starting", self.timeouts["starting"])
        except TimeoutError as error:
            self.close()
            raise WorkerError(f"no process to {self.role} in: it did not start in time") from error
        except (EOFError, OSError) as error:
            cause = self._cause_of_death()
            raise WorkerError(
                f"no process to {self.role} in: it ended at its start ({cause})"
            ) from error
        if seen != self.info:
            self.close()
            raise WorkerError(
                f"device {self.index} was {self.info} and is {seen} in a new process: has its "
                "driver changed? Start again; what was measured is kept under the old one"
            )
        self._is_ready = True

    def _receive(self, stage: Stage, most: float) -> Any:
        pipe = self._pipe
        if pipe is None:
            raise EOFError  # it was closed meanwhile
        began = time.monotonic()
        if not pipe.poll(most):
            raise TimeoutError
        self._spent[stage] = max(self.spent(stage), time.monotonic() - began)
        return pipe.recv()

    def _spawn(self) -> None:
        variables = FEWEST_QUEUES if self.role == "build" else {}
        self._process, self._pipe = spawn(
            "oclgen.measuring.worker", self.role, str(self.index), variables=variables
        )

    def _cause_of_death(self) -> str:
        """Return how the process ended, and forget it."""
        cause = ended_by(self._process) if self._process is not None else "exit code 0"
        self.close()
        return cause
