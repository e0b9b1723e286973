"""Races: times the model's best variants for a problem without a record, beside the program.

The model's choice serves from the first call on. A race begins when the calls of a problem have
taken much more time than the race will. The processes that build programs (`oclgen.opencl.ahead`)
build its rivals, and in idle moments all of them run in turns on memory of their own. The fastest
serves from then on and is kept as a record (`tuned_db.choosing.raced`). There is no search here:
`ocl_backend.background` searches, and while it is on, nothing is raced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import tuned_db
from ocl_backend.dispatch import tuned
from ocl_backend.dispatch.settings import RACE
from ocl_backend.dispatch.tuned import TunedCall
from ocl_backend.fusion import held
from ocl_backend.runtime import idle, profiling, streams
from oclgen.measuring.measure import TOLERANCE, compare, decode, encode
from oclgen.measuring.reference import random_inputs
from oclgen.opencl.device import BuildError, LaunchError, devices
from oclgen.problem import Problem, stored_dtype
from tuned_db import Choice, DatabaseError
from tuned_db.choosing.raced import record_of, rivals

log = logging.getLogger("oclgen.racing")

RIVALS = 2
"""Variants that are raced beside the one that serves. Of the model's first choice, the best of two
and of three, processors reach 0.81, 0.91 and 0.94 of the best known time, GPUs 0.91, 0.95, 0.97."""
SHARE = 0.05
"""The most that races may take: a problem's race, of the time that its calls have taken; all races
and builds in idle moments, of the program's time."""
BUILD_S = {"cpu": 0.5}
"""Seconds that building a variant takes from a device: a compiler needs one of a processor's cores
for about a second. Beside other devices it takes `LOAD_S`."""
LOAD_S = 0.05
ROUNDS, LOSSES = 9, 3
"""How often each variant is timed, in turns. A rival is out after `LOSSES` rounds in which it needs
more than `WORTH` of the serving variant's time. At the end its least time must be less, too, so
that other programs do not decide a race."""
SAMPLE_S, LONG_S = 0.0004, 0.002
"""A time is the least of samples. Each takes at least `SAMPLE_S`, launches one after the other,
since to wait for one costs some 20 us. After `LONG_S` no other is taken."""
MOST_S = 1.0
"""Seconds of rounds, or twice what is expected of them, after which a race is given up: the program
waits meanwhile, and a device that is as busy tells little."""
WORTH = 0.97
"""A rival takes over if it needs at most this part of the time."""
LOOK_S = 1.0
"""Seconds between two looks for a problem that is worth a race."""
MEMORY_PART, MOST_BYTES = 0.05, 256 << 20
"""Bound of a race's tensors and workspaces: a part of the device's memory, and bytes, which the
host fills and compares in some tenths of a second."""

Seconds = Callable[[int, Choice, Callable[[], None]], float]
"""Returns how long a choice takes on a device; the function enqueues it once."""


def seconds(device: int, _choice: Choice, run: Callable[[], None]) -> float:
    """Return the seconds of one run: the least of some samples.

    What plans make of weights alone is kept between the runs where it is kept between calls: where
    the program records no gradient.

    Args:
        device: index.
        _choice: what is timed; clocks of tests ask for it.
        run: enqueues it.
    """
    count = 1
    while (spent := _burst_s(device, run, count)) < SAMPLE_S:
        count *= 2
    least = spent
    while spent < LONG_S:
        took = _burst_s(device, run, count)
        least, spent = min(least, took), spent + took
    return least / count


def _burst_s(device: int, run: Callable[[], None], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        run()
    streams.synchronize(device)
    return time.perf_counter() - begin


class Scratch:
    """Memory of a race: random inputs, and outputs that each variant overwrites."""

    def __init__(self, device: int, problem: Problem) -> None:
        self.problem = problem
        place = torch.device("ocl", device)
        inputs = random_inputs(problem, seed=0)
        nothing = {r: np.full(problem.buffers[r], np.nan, np.float32) for r in problem.outputs}
        given = {**inputs, **nothing}
        self._like = {role: encode(given[role], self._dtype(role)) for role in problem.buffers}
        self._tensors = {role: _bytes(array).to(place) for role, array in self._like.items()}
        self.pointers = tuple(tensor.data_ptr() for tensor in self._tensors.values())

    def results(self, run: Callable[..., None]) -> dict[str, NDArray[Any]]:
        """Return all outputs by role as fp32, NaN where nothing was written."""
        for role in self.problem.outputs:
            self._tensors[role].copy_(_bytes(self._like[role]))
        run(*self.pointers)
        return {role: self._read(role) for role in self.problem.outputs}

    def _read(self, role: str) -> NDArray[Any]:
        like = self._like[role]
        stored = self._tensors[role].cpu().numpy().view(like.dtype).reshape(like.shape)
        return decode(stored, self._dtype(role))

    def _dtype(self, role: str) -> str:
        return stored_dtype(self.problem, role)


def _bytes(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


class Race:
    """The race of one problem on one device: `choices` take part, the first is what serves."""

    def __init__(self, call: TunedCall) -> None:
        self.call = call
        self.choices = [call.choice, *rivals(tuned.chooser(call.device), call.choice, RIVALS)]
        self._sources = {one.variant: call.sources(one) for one in self.choices}

    def is_ready(self) -> bool:
        """Say whether all programs are built, and ask for those that are not."""
        ahead, is_ready = devices()[self.call.device].ahead, True
        for one in self.choices[1:]:
            try:
                is_ready = ahead.are_built(self._sources[one.variant]) and is_ready
            except BuildError as error:
                self._drop(one, str(error))
        return is_ready

    def run(self, time_of: Seconds) -> tuple[Choice, list[float]]:
        """Return the winner and its times in ms.

        Raises:
            LaunchError, torch.OutOfMemoryError: what serves cannot run on memory of the race.
            TimeoutError: the rounds take too long.
        """
        device, served = self.call.device, self.choices[0]
        scratch = Scratch(device, self.call.problem)
        runs = dict(self._right(scratch))
        times: dict[Choice, list[float]] = {one: [] for one in runs}
        losses = Counter[Choice]()
        ends = time.monotonic() + max(MOST_S, 2 * _rounds_s(self.call))
        for number in range(ROUNDS):
            if time.monotonic() > ends:
                raise TimeoutError(f"{number} of {ROUNDS} rounds took too long")
            for one in [*runs][:: -1 if number % 2 else 1]:
                times[one].append(1e3 * time_of(device, one, runs[one]))
            bound = WORTH * times[served][-1]
            losses.update(one for one in runs if one != served and times[one][-1] > bound)
            runs = {one: run for one, run in runs.items() if losses[one] < LOSSES}
            if len(runs) == 1:
                break
        bound = WORTH * min(times[served])
        better = [one for one in runs if one != served and min(times[one]) <= bound]
        winner = min(better, key=lambda one: median(times[one]), default=served)
        log.info(
            "%s: %s", served.problem.key(),
            ", ".join(f"{one.variant.to_text()} {median(times[one]):.4g} ms" for one in times),
        )  # fmt: skip
        return winner, times[winner]

    def _right(self, scratch: Scratch) -> Iterator[tuple[Choice, Callable[[], None]]]:
        """Yield for each variant with the serving one's results a function that enqueues it."""
        tolerance = TOLERANCE[scratch.problem.dtype]
        want: dict[str, NDArray[Any]] = {}
        for one in [*self.choices]:
            try:
                plan = self.call.alone(one)
                got = scratch.results(plan)
            except (BuildError, LaunchError) as error:
                if not want:
                    raise
                self._drop(one, str(error))
                continue
            want = want or {role: each.astype(np.float64) for role, each in got.items()}
            wrong = [compare(got[role], want[role], tolerance)[1] for role in got]
            if any(wrong):
                self._drop(one, "; ".join(filter(None, wrong)))
            else:
                yield one, partial(plan, *scratch.pointers)

    def _drop(self, choice: Choice, reason: str) -> None:
        log.info("%s: %s: %s", choice.problem.key(), choice.variant.to_text(), reason)
        self.choices.remove(choice)


class Racing:
    """All races of a process, one at a time per device.

    Args:
        time_of: times a choice.
        clock: seconds, by which the program's time is shared.
    """

    def __init__(
        self, time_of: Seconds = seconds, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_of, self._clock = time_of, clock
        self._share = idle.Share(SHARE, clock)
        self._next_look = 0.0
        self._asked: dict[int, Race] = {}
        self._over: set[tuple[int, Problem]] = set()
        self._lock = threading.Lock()
        self.is_paused = False
        """Whether something better than a race tries variants."""
        self.spent_s = 0.0
        """Seconds of idle moments that were used."""

    def met(self, _device: int, _problem: Problem) -> None:
        """Hear of a problem without a record: idle moments are of use from now on."""
        if RACE.value:
            idle.use(self)

    def stop(self) -> None:
        """Race no longer; what won serves on."""
        idle.use(self, on=False)
        self._asked.clear()

    def idle(self, device: int) -> None:
        """Use a moment in which a device has nothing to do. Threads do not wait for each other."""
        if self._may and self._lock.acquire(blocking=False):
            began = self._clock()
            try:
                self._look()
                race = self._asked.get(device)
                if race is not None and race.is_ready():
                    del self._asked[device]
                    self._decide(race)
            finally:
                took = self._clock() - began
                self.spent_s += took
                self._share.took(took)
                self._lock.release()

    def waiting(self) -> list[int]:
        """Return the devices on which a race can begin."""
        if not self._may or not self._lock.acquire(blocking=False):
            return []
        try:
            self._look()
            return [device for device, race in self._asked.items() if race.is_ready()]
        finally:
            self._lock.release()

    @property
    def _may(self) -> bool:
        return (
            self._share.is_due
            and RACE.value
            and not self.is_paused
            and not torch.are_deterministic_algorithms_enabled()
            and not tuned.is_observed()
            and not profiling.is_recording()
        )

    def _look(self) -> None:
        """Ask for the programs of the problem on each device that a race pays for most."""
        if self._clock() < self._next_look:
            return
        self._next_look = self._clock() + LOOK_S
        known: dict[tuple[int, Problem], list[TunedCall]] = defaultdict(list)
        for call in tuned.prepared_calls():
            if call.choice.ms is None and call.choice.predicted_ms is not None:
                known[call.device, call.choice.problem].append(call)
        taken = {
            key: sum(call.runs * (call.choice.predicted_ms or 0.0) for call in calls) / 1e3
            for key, calls in known.items()
            if key not in self._over and key[0] not in self._asked
        }
        for key in sorted(taken, key=taken.__getitem__, reverse=True):
            call = known[key][0]
            if key[0] not in self._asked and taken[key] * SHARE >= _cost_s(call):
                self._over.add(key)
                race = Race(call)
                if len(race.choices) > 1 and _has_room(race):
                    self._asked[key[0]] = race

    def _decide(self, race: Race) -> None:
        """Race, keep the winner, and let it serve all calls of the problem."""
        call, served = race.call, race.choices[0]
        try:
            winner, times = race.run(self._time_of)
        except (BuildError, LaunchError, TimeoutError, torch.OutOfMemoryError) as error:
            log.info("%s is not raced: %s", served.problem.key(), error)
            return
        info = devices()[call.device].info
        record = record_of(info, winner, times, len(race.choices))
        with suppress(DatabaseError):  # what cannot be kept is raced again in the next program
            store = tuned_db.open_store()
            store.note_race(record)
            store.database.release()
        chooser = tuned.chooser(call.device)
        chooser.note_race(record)
        choice = chooser.choose(served.problem)
        for one in tuned.prepared_calls():
            if (one.device, one.choice.problem) == (call.device, served.problem):
                one.switch(choice)
        held.forget()  # recipes hold the plan from before, and with it what it made of weights


def _cost_s(call: TunedCall) -> float:
    """Return the seconds that a race takes from the device, roughly."""
    build = BUILD_S.get(devices()[call.device].limits.kind, LOAD_S)
    return RIVALS * build + _rounds_s(call)


def _rounds_s(call: TunedCall) -> float:
    return (1 + RIVALS) * ROUNDS * max(LONG_S, (call.choice.predicted_ms or 0.0) / 1e3)


def _has_room(race: Race) -> bool:
    call = race.call
    spaces = (one.variant.plan(call.problem).workspaces for one in race.choices)
    most = max(sum(size for _, size in each) for each in spaces)
    room = min(devices()[call.device].limits.global_bytes * MEMORY_PART, MOST_BYTES)
    return call.problem.bytes + most <= room


_racing = Racing()
tuned.when_met(_racing.met)
RACE.when_set(lambda on: None if on else _racing.stop())


def pause(on: bool) -> None:
    """Race nothing while something better tries variants, or go on."""
    _racing.is_paused = on
