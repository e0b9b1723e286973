"""A device and a database, opened for measuring: everything that tunes or verifies uses a session.

It is the one module of this package that opens devices and knows the store. In three lines:

    import oclgen
    for result in oclgen.tune("1024x1024x1024", device=0, trials=64):
        print(result)
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from math import inf

from oclgen.families import require_families
from oclgen.keys import parse_problem
from oclgen.measurement import Cache, Measurement
from oclgen.measuring import peak
from oclgen.measuring.child import TIMEOUTS, Leave, Stage, WorkerError
from oclgen.measuring.worker import Worker
from oclgen.opencl.device import Device, DeviceError, devices, select
from oclgen.opencl.exclusive import BusyError, exclusive, kind_of, locks
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces.progress import Budget, OutOfTimeError, Progress, TuneResult
from search_spaces.spaces import Spaces
from search_spaces.spread import Turn, tune_network
from search_spaces.timing import Durations
from search_spaces.tune import Tuner
from search_spaces.tune import tune as search
from tuned_db import Choice, Chooser, NoVariantError, Store, open_store
from tuned_db.trust.verify import Verdict
from tuned_db.trust.verify import verify as settle

SHORTEST_S = 0.1
"""Seconds that a stage of a trial is given at least: the time may have ended before it began."""

Report = Callable[[Progress], None]


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


def _no_report(_: Progress) -> None:
    pass


class Session:
    """A device that no other process measures on, its peak, a process to measure in, and a store.

    A context manager: the device's lock is held from its entry to its end. If the time ends while
    another process measures on the device, nothing is tuned, and every result says "not reached".

    Args:
        device: An opened device, an index in `oclgen.opencl.device.devices()`, or a part of a name.
        store: An opened store, a URL or a path; None: $OCLGEN_DB, else the user's database.
        ends: The value of `time.monotonic` from which on nothing is begun; what is being measured
            then is cut short, and is not held against the variant.
        say: Told in a sentence that another process is waited for, or that the device is loaded.
        with_peak: Measure the device's peak (0.3 s) on entry.
        is_resident: Keep the measuring process for further entries, until `close`.
        leave: Called before a variant runs; it runs within the context that is returned. Then one
            process builds, so that the program whose leave is asked keeps the other cores.

    Raises:
        DeviceError: no device fits, or several do.
        DatabaseError: the store cannot be opened.
        BuildError, LaunchError: on entry: the device cannot run the kernels of its peak.
    """

    def __init__(
        self,
        device: Device | int | str = 0,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        ends: float = inf,
        say: Callable[[str], None] = _warn,
        with_peak: bool = True,
        is_resident: bool = False,
        leave: Leave | None = None,
    ) -> None:
        chosen = device if isinstance(device, Device) else select(device)
        self._candidates = [one for one in locks(devices()) if one[0] is chosen]
        self.device = chosen
        self.store = store if isinstance(store, Store) else open_store(store)
        self.ends = ends
        self.level: peak.Level | None = None
        """What the device reached on entry; None before, and without its peak."""
        self.tolerance = inf
        """The relative L2 error against float64 beyond which a variant counts as wrong, where it is
        below the one that every variant is held to."""
        self._say, self._with_peak, self._is_resident = say, with_peak, is_resident
        self._leave = leave
        self._worker: Worker | None = None
        self._spaces = Spaces()
        self._took = Durations()
        self._stack = ExitStack()
        self._is_open = False

    @staticmethod
    def of_kind(kind: str, store: str, ends: float = inf, is_resident: bool = False) -> Session:
        """Return a session of whichever device of a kind (`exclusive.kind_of`) is free.

        Args:
            kind: as `exclusive.kind_of` names it.
            store: a URL or a path.
            ends: the value of `time.monotonic` from which on nothing is begun.
            is_resident: keep the measuring process for further entries, until `close`.

        Raises:
            DeviceError: this machine has no such device any more.
            DatabaseError: the store cannot be opened.
        """
        fits = [one for one in locks(devices()) if kind_of(one[0].info) == kind]
        if not fits:
            raise DeviceError(f"no device of kind {kind} is left here; see `oclgen devices`")
        device = fits[0][0]
        session = Session(device, store, ends=ends, say=lambda _: None, is_resident=is_resident)
        session._candidates = fits
        return session

    def __enter__(self) -> Session:
        """Wait for the device, start what measures on a GPU, and measure the device's peak."""
        with ExitStack() as stack:
            try:
                # the one whose process to measure in is there first, if it is free
                mine = sorted(self._candidates, key=lambda one: one[0] is not self.device)
                self.device = stack.enter_context(exclusive(mine, self._tell_waiting, self.ends))
            except BusyError:
                return self
            self.store.of(self.device.info).note_limits(self.device.limits)
            if self._left() > 0:
                self._worker_of("warm").begin()  # its processes start during what follows
                if self._with_peak:
                    self._measure_peak()
            self._is_open = self._left() > 0
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        if not self._is_resident:
            self.close()
        self._stack.close()

    def close(self) -> None:
        """End the process to measure in; one is started again when it is needed."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def notice(self) -> str:
        """A warning about times of this session, "" if there is none."""
        return self.level.notice if self.level else ""

    @cached_property
    def chooser(self) -> Chooser:
        """The chooser of the variants that serve on the device now."""
        return Chooser(self.store, self.device.info, self.device.limits)

    def tune(
        self,
        problems: Sequence[Problem] | Mapping[Problem, int],
        budget: Budget | None = None,
        families: Collection[str] = (),
        report: Report = _no_report,
    ) -> list[TuneResult]:
        """Search the fastest variant of each problem; what is measured is kept at once.

        Args:
            problems: In the order in which they are tuned and returned; or how often a network's
                run calls each: then trials go where its time goes, and results come with the most
                operations per run first.
            budget: Trials per problem, earlier runs included; its seconds count from now, and the
                session's end holds besides.
            families: The kernel families to try; all if empty.
            report: Called with every trial.

        Returns:
            One result per problem. A `KeyboardInterrupt` ends the tuning and is not passed on: the
            problem's status is "interrupted".

        Raises:
            ConfigError: a family is unknown, or none of them serves a problem.
            WorkerError: the process to measure in was lost and cannot be had again.
            DatabaseError: the store fails.
        """
        require_families(families, problems)
        tuner = self.tuner(budget or Budget(), families, report)
        if not self._is_open:
            return [TuneResult(one, "not reached", tuner.incumbent(one)) for one in problems]
        if isinstance(problems, Mapping):
            results = tune_network(tuner, problems)
        else:
            results = search(tuner, problems)
        return [self._noted(result) for result in results]

    def tuner(
        self, budget: Budget, families: Collection[str] = (), report: Report = _no_report
    ) -> Tuner:
        """Return what `tune` works with: the session's parts as `search_spaces.tune` takes them.

        Args:
            budget: trials, seconds and cache; its seconds end with the session's.
            families: the kernel families to try; all if empty.
            report: is called with every trial.
        """
        worker = self._worker_of(budget.cache)
        return Tuner(
            limits=self.device.limits,
            measure=self._measure,
            results=self.store.of(self.device.info, budget.cache),
            budget=replace(budget, seconds=min(budget.seconds, self._left())),
            families=frozenset(families) or None,
            starts=self._starts,
            report=report,
            label=kind_of(self.device.info),
            build_ahead=worker.build_ahead,
            drop_ahead=worker.drop_ahead,
            ahead=worker.builders,
            overlap=worker.overlaps,
            spaces=self._spaces,
            took=self._took,
        )

    def _starts(self, problem: Problem) -> list[Variant]:
        """Return the variant that serves the problem now, then those of the best records."""
        starts = self.chooser.starts(problem)
        with suppress(NoVariantError):
            starts.insert(0, self.chooser.choose(problem).variant)
        return list(dict.fromkeys(starts))

    def compare(self, problem: Problem, variants: Sequence[Variant]) -> list[float]:
        """Return the milliseconds of each of `variants`, infinite for one that fails.

        The measurements are not stored.

        Args:
            problem: what is computed.
            variants: are measured one right after the other.

        Raises:
            OutOfTimeError: the session's end came first.
            WorkerError: as `tune`.
        """
        if not self._is_open:
            raise OutOfTimeError
        self._worker_of("warm")
        return [self._measure_in_full(problem, variant).ms for variant in variants]

    def verify(self, claims: Sequence[Choice] | None = None) -> Iterator[Verdict]:
        """Measure what was imported or pulled and would serve here, and yield each verdict.

        Args:
            claims: Some of `chooser.unverified()`; None: all of them.

        Raises:
            WorkerError, DatabaseError: as `tune`.
        """
        if self._is_open:
            self._worker_of("warm")
            asked = self.chooser.unverified() if claims is None else claims
            yield from settle(
                self.chooser, self.store.of(self.device.info), asked, self._measure_in_full
            )

    def take(self, turn: Turn, families: Collection[str]) -> list[TuneResult]:
        """Take a turn of a spread tuning."""
        tuner = self.tuner(turn.budget, families)
        if not self._is_open:
            return [TuneResult(one, "not reached", tuner.incumbent(one)) for one in turn.problems]
        return [self._noted(result) for result in turn.take(tuner)]

    def _noted(self, result: TuneResult) -> TuneResult:
        return replace(result, notice=self.notice) if result.trials else result

    def _left(self) -> float:
        return self.ends - time.monotonic()

    def _tell_waiting(self) -> None:
        self._say("waiting: another process measures on the device")

    def _measure_peak(self) -> None:
        results = self.store.of(self.device.info)
        known, now = results.peak(), peak.measure(self.device)
        self.level = peak.Level(now, peak.Peak(*known) if known else None)
        is_new = known is None or now.gflops > known[0]  # the machine has less to do than ever
        peaks = peak.by_dtype(self.device, now.gflops, () if is_new else results.peaks())
        results.note_peak(now.gflops, now.gbytes, peaks)
        if self.notice:
            self._say(self.notice)

    def _worker_of(self, cache: Cache) -> Worker:
        """Return the worker, which takes times with such caches from now on."""
        if self._worker is not None and self._worker.index != self.device.index:
            self.close()
        if self._worker is None:
            asked = self.device.index, self.device.info, _Limits(self._left)
            if self._leave is None:
                self._worker = Worker(*asked)
            else:
                self._worker = Worker(*asked, builders=1, leave=self._leave)
        self._worker.cache = cache
        return self._worker

    def _measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        assert self._worker is not None
        try:
            measurement = self._worker.measure(problem, variant, best_ms)
        except WorkerError:
            if self._left() > 0:
                raise
            raise OutOfTimeError from None
        if measurement.invalidity == "timeout" and self._left() <= 0:
            raise OutOfTimeError
        if measurement.ok and measurement.error > self.tolerance:
            reason = f"relative L2 error {measurement.error:.2e}, allowed {self.tolerance:.0e}"
            measurement = replace(measurement, samples=(), invalidity="correctness", reason=reason)
        return replace(measurement, cache=self._worker.cache)  # of failures, too

    def _measure_in_full(self, problem: Problem, variant: Variant) -> Measurement:
        return self._measure(problem, variant, inf)


class _Limits(dict[Stage, float]):
    """Seconds that each stage of a trial may take: at most what is left of the session's time."""

    def __init__(self, left: Callable[[], float]) -> None:
        super().__init__(TIMEOUTS)
        self._left = left

    def __getitem__(self, stage: Stage) -> float:
        return min(super().__getitem__(stage), max(self._left(), SHORTEST_S))


def tune(
    problems: str | Problem | Iterable[str | Problem] | Mapping[Problem, int],
    device: Device | int | str = 0,
    *,
    trials: int = 64,
    seconds: float = inf,
    store: Store | str | os.PathLike[str] | None = None,
    families: Collection[str] = (),
    seed: int = 0,
    cold: bool = False,
    report: Report = _no_report,
) -> list[TuneResult]:
    """Find the fastest kernels for problems on a device and keep them, as `oclgen tune` does.

    Also `oclgen.tune`. Dispatch uses the winners from then on (in a process that runs models, after
    `torch.ocl.reload_tuned()`).

    Args:
        problems: One problem or several: texts such as "1024x1024x1024:fp16" or
            "8,64,56,56,64,3,3,1,1" (`oclgen.keys`), keys, or values of `oclgen.problem`; or
            how often a network's run calls each.
        device: An opened device, an index as `oclgen devices` lists them, or a part of a name.
        trials: Variants to try per problem, earlier runs included.
        seconds: For all problems together, waiting for the device included.
        store: An opened store, a URL or a path; None: $OCLGEN_DB, else the user's database.
        families: The kernel families to try; all if empty.
        seed: Makes the search repeatable.
        cold: Take times with caches that hold none of the data.
        report: Called with every trial (`search_spaces.progress.Progress`).

    Returns:
        One `search_spaces.progress.TuneResult` per problem, in the problems' order; of a network
        those with the most operations per run first. Printed, each is a line.

    Raises:
        ProblemError: a text describes no problem.
        ConfigError: a family is unknown, or none of them serves a problem.
        DeviceError: no device fits, or several do.
        DatabaseError: the store cannot be opened, read or written.
        WorkerError: no process to measure in can be had.
    """
    ends = time.monotonic() + seconds
    budget = Budget(trials, seed=seed, cache="cold" if cold else "warm")
    with Session(device, store, ends=ends) as session:
        return session.tune(_problems(problems), budget, families, report)


def _problems(
    given: str | Problem | Iterable[str | Problem] | Mapping[Problem, int],
) -> Sequence[Problem] | Mapping[Problem, int]:
    if isinstance(given, Mapping):
        return given
    several = [given] if isinstance(given, (str, Problem)) else given
    return list(
        dict.fromkeys(parse_problem(one) if isinstance(one, str) else one for one in several)
    )
