"""Tunes untuned problems while a program runs; variants run in moments when the device is idle.

A second process searches (`search_spaces.background`). It asks before it runs a variant. This
program says yes when it has just waited for the device (a copy to the host, `synchronize`), or
after an optimizer's step, and only while all runs together keep to the share of time that was set.
The program waits meanwhile, so neither disturbs the other. Winners serve from the next such moment
on.
"""

from __future__ import annotations

import atexit
import logging
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

from ocl_backend.dispatch import racing, tuned
from ocl_backend.runtime import idle
from ocl_backend.runtime.idle import Share
from oclgen.measuring.child import spawn
from oclgen.opencl.device import devices
from oclgen.problem import Problem
from search_spaces.background import GO, RAN, READY, Won

log = logging.getLogger("oclgen.background")
PATIENCE_S = 10.0
"""Longest that the program waits for a run of a variant; it goes on beside one that is slower."""
SWAP_S = 30.0
"""Seconds between two exchanges of winners: after each, every call is prepared and learnt anew."""
MEMORY_PART = 0.05
"""Part of the device's memory that a problem's tensors may fill: copies of them lie beside the
program's."""


class Tuning:
    """The tuning of one device beside the program.

    Args:
        pipe: to the process that searches.
        share: of the time, for runs of variants and exchanges of winners.
        swap: called to let new winners serve.
        clock: seconds.
    """

    def __init__(
        self,
        pipe: Connection,
        share: Share,
        swap: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipe, self._share, self._swap, self._clock = pipe, share, swap, clock
        self._lock = threading.Lock()
        self._told: set[Problem] = set()
        self._untold: list[Problem] = []
        self._is_asked = self._has_news = False
        self._swapped = -SWAP_S
        self.is_over = False
        """The process that searches has ended."""

    def met(self, problem: Problem) -> None:
        """Note a problem without a record; it is sent to the search at the next moment."""
        if problem not in self._told:
            self._told.add(problem)
            self._untold.append(problem)

    @property
    def waits(self) -> bool:
        """Whether a variant may run as soon as the device is idle."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._listen()
            return self._is_asked and self._share.is_due
        finally:
            self._lock.release()

    def use_moment(self) -> None:
        """Let a variant run if one waits and it is due; the device is idle. Threads do not wait."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._listen()
            if self._is_asked and self._share.is_due:
                self._let_run()
            elif self._has_news and self._share.is_due and self._is_long_ago:
                self._take_winners()
        finally:
            self._lock.release()

    @property
    def _is_long_ago(self) -> bool:
        return self._clock() >= self._swapped + SWAP_S

    def _let_run(self) -> None:
        began = self._clock()
        self._is_asked = False
        self._send(GO)
        while not self.is_over and self._clock() < began + PATIENCE_S:
            if self._pipe.poll(PATIENCE_S) and self._hear() == RAN:
                break
        self._share.took(self._clock() - began)

    def _take_winners(self) -> None:
        began = self._clock()
        self._has_news = False
        self._swap()
        self._swapped = self._clock()
        self._share.took(self._swapped - began)

    def _listen(self) -> None:
        """Tell what was met, and hear what the search has said, without waiting."""
        if self._untold:
            problems, self._untold = self._untold, []
            self._send(problems)
        try:
            while not self.is_over and self._pipe.poll():
                self._hear()
        except OSError:
            self.is_over = True

    def _hear(self) -> str:
        try:
            said = self._pipe.recv()
        except (EOFError, OSError):
            self.is_over = True
            return ""
        if isinstance(said, Won):
            self._has_news = True
            log.info("%s: %.4g to %.4g ms", said.problem, said.before_ms, said.ms)
            return ""
        self._is_asked = self._is_asked or said == READY
        return str(said)

    def _send(self, message: object) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            self.is_over = True


class Background:
    """The searches beside the program, by device, while background tuning is on."""

    def __init__(self, part: float, trials: int) -> None:
        self._part, self._trials = part, trials
        self._running: dict[int, tuple[subprocess.Popen[bytes], Tuning]] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Notice problems and idle moments from now on."""
        idle.use(self)
        racing.pause(True)
        tuned.when_met(self._met)
        tuned.reload_tuned()  # what was met before is met again

    def stop(self) -> None:
        """End all of it."""
        idle.use(self, on=False)
        racing.pause(False)
        tuned.when_met(self._met, on=False)
        with self._lock:
            for process, _ in self._running.values():
                process.kill()
                process.wait()
            self._running.clear()

    def _met(self, device: int, problem: Problem) -> None:
        room = devices()[device].limits.global_bytes * MEMORY_PART
        if problem.bytes <= room and not torch.are_deterministic_algorithms_enabled():
            self._of(device).met(problem)

    def _of(self, device: int) -> Tuning:
        with self._lock:
            if device not in self._running:
                process, pipe = spawn("search_spaces.background", str(device), str(self._trials))
                tuning = Tuning(pipe, Share(self._part), tuned.reload_tuned)
                self._running[device] = process, tuning
            return self._running[device][1]

    def idle(self, device: int) -> None:
        """Use a moment in which a device has nothing to do."""
        found = self._running.get(device)
        if found is not None and not torch.are_deterministic_algorithms_enabled():
            found[1].use_moment()

    def waiting(self) -> list[int]:
        """Return the devices on which a variant may run as soon as they are idle."""
        return [device for device, (_, tuning) in list(self._running.items()) if tuning.waits]


_on: Background | None = None


def enable(part: float, trials: int) -> None:
    """Tune in the background from now on.

    Args:
        part: of the time that variants may run, above 0 and at most 0.5.
        trials: variants per problem.

    Raises:
        ValueError: the part is no such number.
    """
    global _on
    if not 0 < part <= 0.5:
        raise ValueError(f"a share of {part} of the time; use more than 0 and at most 0.5")
    disable()
    _on = Background(part, trials)
    _on.start()


@atexit.register
def disable() -> None:
    """Tune in the background no longer; what was measured is kept and serves."""
    global _on
    if _on is not None:
        _on.stop()
        _on = None


def is_enabled() -> bool:
    """Return whether problems are tuned in the background."""
    return _on is not None
