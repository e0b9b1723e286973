"""Which variant a tuned operator runs: chosen once per problem, built once, then only launched.

The search finds variants, `ocl_backend.runtime.launch` launches them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from ocl_backend.dispatch import varying
from ocl_backend.dispatch.claims import checking
from ocl_backend.dispatch.explanation import ExplainRow, Explanation
from ocl_backend.dispatch.prepared_plan import PlanSequence, prepare_plan
from ocl_backend.dispatch.settings import CONV_ACCURACY, RACE, TUNE_FIRST
from ocl_backend.dispatch.varying import Varying
from ocl_backend.fusion import held, recall
from ocl_backend.runtime.launch import MOST_LAUNCHES, check_on_device
from oclgen.families import FAMILIES
from oclgen.opencl.device import BuildError, LaunchError, devices
from oclgen.plan import Plan
from oclgen.problem import STORED_BYTES, Known, Problem, stored_dtype
from tuned_db import Choice, Chooser, DatabaseError
from tuned_db.choosing.remembered_winners import RememberedWinners


class Prologue(Protocol):
    """Launches that prepare what a plan reads; equal ones prepare the same."""

    def roles(self, problem: Any) -> dict[str, int]:
        """Return the buffers that prologue and plan take, and the bytes of their items."""

    def before(self, plan: Plan, problem: Any) -> Plan:
        """Return prologue and plan as one."""


class Given(NamedTuple):
    """What a call asks of a plan: scalars to replace, and a prologue.

    `met` is the problem with free sizes, where these vary.
    """

    problem: Problem
    met: Problem
    scalars: tuple[tuple[str, float], ...]
    prologue: Prologue | None


class TunedCall:
    """A problem's chosen variant, ready to launch; call it with data pointers in role order.

    `choice` is that of `problem`, or, where sizes vary, of a typical problem with these sizes free.
    `replaceable` names the scalars that the plan let its caller replace.
    """

    __slots__ = (
        "__weakref__", "_given", "_launch", "_ran", "choice", "device", "operator", "problem",
        "replaceable",
    )  # fmt: skip

    def __init__(self, operator: str, device: int, choice: Choice, given: Given) -> None:
        self.operator = operator
        self.device = device
        self.problem = given.problem
        self.choice = choice
        self._given = given
        self._ran = 0
        self._launch, self.replaceable = _prepare(device, choice, given)
        if self._launch.is_pending:
            self._launch.complete_by(self._complete)
        _prepared_calls.add(self)

    def _complete(self) -> None:
        """Wait for the programs; where one does not build, let the next best variant take over.

        Raises:
            NoVariantError: none is left.
        """
        try:
            self._launch.complete()
        except (BuildError, LaunchError) as error:
            choice, refused = self.choice, error
            while True:  # an interrupt leaves everything as it was
                choice = _next_best(self.device, choice, refused)
                try:
                    launch, replaceable = _prepare(self.device, choice, self._given)
                    launch.complete()
                except (BuildError, LaunchError) as another:
                    refused = another
                    continue
                if self._replace(choice, launch, replaceable):
                    return
                refused = LaunchError("it cannot be called as the variant in whose place it is")

    def _replace(self, choice: Choice, launch: PlanSequence, replaceable: frozenset[str]) -> bool:
        """Let `launch` run in place of the old one, also in recalled calls.

        Returns:
            Whether it can be called in the same way.
        """
        if not replaceable >= self.replaceable:
            return False
        self._ran += self._launch.runs
        self._launch.replace(launch)
        self._launch, self.choice = launch, choice
        return True

    def switch(self, choice: Choice) -> bool:
        """Let another choice for the same problem serve from the next call on, if it can.

        Returns:
            Whether it does.
        """
        if choice.variant == self.choice.variant:
            self.choice = choice
            return True
        try:
            launch, replaceable = _prepare(self.device, choice, self._given)
            launch.complete()
        except (BuildError, LaunchError):
            return False
        return self._replace(choice, launch, replaceable)

    def alone(self, choice: Choice) -> PlanSequence:
        """Return a choice for the same problem prepared for dense buffers and without a prologue.

        Raises:
            BuildError, LaunchError: it does not build, or cannot be launched.
        """
        given = self._given._replace(scalars=(), prologue=None)
        launch, _ = _prepare(self.device, choice, given)
        launch.complete()
        return launch

    def sources(self, choice: Choice) -> list[str]:
        """Return the texts of a choice for the same problem."""
        return [one.source for one in varying.plan(choice.variant, self._given.met).launches]

    def __call__(self, *pointers: int) -> None:
        """Enqueue the variant; raises as `PlanSequence`."""
        self._launch(*pointers)
        for notice in _observers:
            notice(self)

    @property
    def launches(self) -> int:
        """How many launches a call is, without those that depend on weights alone."""
        return self._launch.per_call

    @property
    def runs(self) -> int:
        """How often it ran; what is held back runs first."""
        held.settle()
        return self._ran + self._launch.runs

    def offer(self, rule: held.Rule, pointers: tuple[int, ...]) -> None:
        """Hold the call back for what may follow, or run it.

        Args:
            rule: what the call is by itself, and how it continues a chain.
            pointers: addresses in the order of the call.
        """
        held.offer(rule, self._launch, pointers, is_observed=bool(_observers))


_prepared_calls: WeakSet[TunedCall] = WeakSet()
_observers: list[Callable[[TunedCall], None]] = []
_met: list[Callable[[int, Problem], None]] = []


def is_observed() -> bool:
    """Say whether someone sees every call, as `explain` does."""
    return bool(_observers)


def prepared_calls() -> list[TunedCall]:
    """Return the calls that are ready to launch."""
    return list(_prepared_calls)


def observe(notice: Callable[[TunedCall], None], on: bool = True) -> None:
    """Call `notice` after every tuned call from now on; with `on` False, no longer."""
    held.settle()  # what was called before is another's to notice
    if on == (notice in _observers):
        return
    (_observers.append if on else _observers.remove)(notice)
    recall.suspend(on)


def tune_when_met(tune: Callable[[int, Problem], None] | None) -> None:
    """Let `tune(device, problem)` run before an untuned problem is first served; None: no longer.

    What is prepared is forgotten, so that problems met before are met again.
    """
    if tune is not TUNE_FIRST.value:
        TUNE_FIRST.set(tune)


def when_met(notice: Callable[[int, Problem], None], on: bool = True) -> None:
    """Call `notice(device, problem)` when an untuned problem is first served, or no longer."""
    if on != (notice in _met):
        (_met.append if on else _met.remove)(notice)


_choosers: dict[int, Chooser] = {}


def chooser(device: int) -> Chooser:
    """Return the chooser of torch device `device`, which has read the user's database."""
    if device not in _choosers:
        _choosers[device] = _new_chooser(device)
    return _choosers[device]


def choose_by(device: int, given: Chooser) -> None:
    """Let `given` choose for torch device `device` until `reload_tuned`; forget what is prepared.

    Args:
        device: its index.
        given: what `chooser` returned, perhaps before a tuning.
    """
    reload_tuned()
    _choosers[device] = given


def _new_chooser(device: int) -> Chooser:
    """Return a chooser that reads the user's database.

    A database that cannot be read is warned of, and shipped and default variants serve.
    """
    target = devices()[device]
    try:
        store = RememberedWinners(target.info)
        made = Chooser(store, target.info, target.limits, checking(store, target), store.mark)
    except DatabaseError as error:
        warnings.warn(f"the ocl device runs on shipped and default variants: {error}", stacklevel=2)
        made = Chooser(None, target.info, target.limits)
    made.serves_raced = RACE.value
    made.bound_conv_error(CONV_ACCURACY.value)
    return made


@cache
def _varying(device: int) -> Varying:
    """Return what the calls of torch device `device` showed to vary."""
    return Varying(chooser(device))


def as_met(device: int, problem: Known) -> Known:
    """Return the problem, with free sizes where they vary; what is tuned first keeps its own."""
    return problem if TUNE_FIRST.value is not None else _varying(device).form(problem)


@lru_cache(maxsize=MOST_LAUNCHES)
def tuned_call(
    operator: str,
    device: int,
    problem: Problem,
    scalars: tuple[tuple[str, float], ...] = (),
    prologue: Prologue | None = None,
) -> TunedCall:
    """Return the call that computes `problem`.

    A variant that does not build is warned of and replaced by the next best.

    Args:
        operator: named in warnings and profiles.
        device: its index.
        problem: its `buffers` are the order of the call's pointers.
        scalars: replace named scalars of the plan (row and batch strides), as pairs.
        prologue: what comes before the plan; pointers follow its roles.

    Raises:
        NoVariantError: no family serves the problem, or none of them builds here.
        LaunchError: `device` is -1, torch's index of the CPU.
    """
    check_on_device(device, operator)
    met = as_met(device, problem)
    choice = chooser(device).choose(varying.typical(met))
    if TUNE_FIRST.value is not None and choice.rung != "exact":
        TUNE_FIRST.value(device, problem)
        chooser(device).refresh()
        choice = chooser(device).choose(problem)
    if choice.rung != "exact":
        for notice in _met:
            notice(device, choice.problem)
    while True:
        try:
            given = Given(problem, met, scalars, prologue)
            return TunedCall(operator, device, choice, given)
        except (BuildError, LaunchError) as error:
            choice = _next_best(device, choice, error)


def _prepare(device: int, choice: Choice, given: Given) -> tuple[PlanSequence, frozenset[str]]:
    """Return a chosen variant's plan, prepared, and the scalars that it let its caller replace."""
    problem = given.problem
    plan = varying.plan(choice.variant, given.met)
    roles = {role: STORED_BYTES[stored_dtype(problem, role)] for role in problem.buffers}
    if given.prologue is not None:
        plan, roles = given.prologue.before(plan, problem), given.prologue.roles(problem)
    launch = prepare_plan(device, plan, tuple(roles), roles, dict(given.scalars))
    if FAMILIES[choice.variant.family].TRAITS.for_kept_weights:
        other = _without_kept_weights(device, choice.problem)
        launch.otherwise(_prepare(device, other, given)[0])
    return launch, plan.replaceable


def _without_kept_weights(device: int, problem: Problem) -> Choice:
    """Return the best choice that does as much for every call.

    Raises:
        LaunchError: there is none.
    """
    for choice in chooser(device).candidates(problem):
        if not FAMILIES[choice.variant.family].TRAITS.for_kept_weights:
            return choice
    raise LaunchError(f"{problem.key()}: only families that keep what they make of weights serve")


def _next_best(device: int, choice: Choice, error: Exception) -> Choice:
    """Warn that `choice` failed with `error`, and return the next best choice."""
    warnings.warn(
        f"{choice.problem.key()}: {choice.variant.family} from rung {choice.rung!r} does not "
        f"build and the next best is taken. Tune the problem anew. {error}",
        stacklevel=2,
    )
    return chooser(device).reject(choice)


def when_forgotten(notice: Callable[[], None]) -> Callable[[], None]:
    """Call `notice` whenever prepared calls are about to be forgotten; a decorator."""
    _leaving.append(notice)
    return notice


def reload_tuned() -> None:
    """Read the database again and forget every prepared variant, as after tuning in between."""
    for notice in _leaving:
        notice()
    _choosers.clear()
    _varying.cache_clear()
    tuned_call.cache_clear()
    _prepared_calls.clear()  # who still holds one prepares another before the next launch
    for forget in _dependents:
        forget()
    held.forget()  # last: what another thread learns from a call meanwhile goes, too


for _setting in (CONV_ACCURACY, RACE, TUNE_FIRST):
    _setting.when_set(lambda _: reload_tuned())


_dependents: list[Callable[[], None]] = []
_leaving: list[Callable[[], None]] = []


def remember(maxsize: int = MOST_LAUNCHES) -> Callable[[Callable[..., Any]], Any]:
    """Return `lru_cache(maxsize)` whose entries `reload_tuned` forgets: for what holds calls."""

    def decorate(function: Callable[..., Any]) -> Any:
        cached = lru_cache(maxsize)(function)
        _dependents.append(cached.cache_clear)
        return cached

    return decorate


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Run `function(*args, **kwargs)` and report every tuned operator it called; print the result.

    Rows are in order of first call. Calls that other threads make meanwhile are counted too.
    """
    calls: list[TunedCall] = []
    observe(notice := calls.append)
    try:
        result = function(*args, **kwargs)
    finally:
        observe(notice, on=False)
    counts = Counter((call.operator, call.choice) for call in calls)
    rows = (
        ExplainRow(
            count,
            operator,
            choice.problem.key(),
            choice.source,
            choice.ms,
            choice.predicted_ms,
            choice.variant.family,
            choice.variant.to_json(),
        )
        for (operator, choice), count in counts.items()
    )
    return Explanation(result, tuple(rows))
