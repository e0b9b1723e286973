"""Which variant a tuned operator runs: chosen once per problem, built once, then only launched.

The search finds variants, `ocl_backend.runtime.launch` launches them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from ocl_backend.dispatch import varying
from ocl_backend.dispatch.claims import checking
from ocl_backend.dispatch.explanation import ExplainRow, Explanation
from ocl_backend.dispatch.prepared_plan import PreparedPlan, prepare_plan
from ocl_backend.dispatch.settings import CONV_ACCURACY, TUNE_FIRST
from ocl_backend.dispatch.varying import Varying
from ocl_backend.fusion import held, recall
from ocl_backend.runtime.launch import MOST_LAUNCHES
from oclgen.limits import Limits
from oclgen.opencl.device import BuildError, LaunchError, devices
from oclgen.plan import Plan
from oclgen.predictor.model import LAUNCH_MS, has_model, rates_of
from oclgen.problem import DTYPES, STORED_BYTES, ConvProblem, Known, Problem, stored_dtype
from tuned_db import Choice, Chooser, DatabaseError, NoVariantError, open_store
from tuned_db.choice import Rung

RELATED: tuple[Rung, ...] = ("architecture", "shipped")
"""Rungs of what other devices' records say."""


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
        "__weakref__", "_given", "_launch", "choice", "device", "operator", "problem",
        "replaceable",
    )  # fmt: skip

    def __init__(
        self,
        operator: str,
        device: int,
        choice: Choice,
        given: Given,
    ) -> None:
        self.operator = operator
        self.device = device
        self.problem = given.problem
        self.choice = choice
        self._given = given
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
                if replaceable >= self.replaceable:
                    self._launch.replace(launch)
                    self._launch, self.choice = launch, choice
                    return
                refused = LaunchError("it cannot be called as the variant in whose place it is")

    def __call__(self, *pointers: int) -> None:
        """Enqueue the variant; raises as `PreparedPlan`."""
        self._launch(*pointers)
        for notice in _observers:
            notice(self)

    @property
    def runs(self) -> int:
        """How often it ran; what is held back runs first."""
        held.settle()
        return self._launch.runs

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


def when_met(notice: Callable[[int, Problem], None] | None) -> None:
    """Call `notice(device, problem)` when an untuned problem is first served; None: no longer."""
    _met[:] = [] if notice is None else [notice]


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
        store = open_store()
        made = Chooser(store, target.info, target.limits, checking(store, target))
    except DatabaseError as error:
        warnings.warn(f"the ocl device runs on shipped and default variants: {error}", stacklevel=2)
        made = Chooser(None, target.info, target.limits)
    made.bound_conv_error(CONV_ACCURACY.value)
    return made


@cache
def _varying(device: int) -> Varying:
    """Return what the calls of torch device `device` showed to vary."""
    return Varying(chooser(device))


def _as_met(device: int, problem: Known) -> Known:
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
    """
    met = _as_met(device, problem)
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


def _prepare(device: int, choice: Choice, given: Given) -> tuple[PreparedPlan, frozenset[str]]:
    """Return a chosen variant's plan, prepared, and the scalars that it let its caller replace."""
    problem = given.problem
    plan = varying.plan(choice.variant, given.met)
    roles = {role: STORED_BYTES[stored_dtype(problem, role)] for role in problem.buffers}
    if given.prologue is not None:
        plan, roles = given.prologue.before(plan, problem), given.prologue.roles(problem)
    launch = prepare_plan(device, plan, tuple(roles), roles, dict(given.scalars))
    return launch, plan.replaceable


def _next_best(device: int, choice: Choice, error: Exception) -> Choice:
    """Return what is chosen once `choice` has failed with `error`, which is warned of."""
    warnings.warn(
        f"{choice.problem.key()}: {choice.variant.family} from rung {choice.rung!r} does not "
        f"build and the next best is taken. Tune the problem anew. {error}",
        stacklevel=2,
    )
    return chooser(device).reject(choice)


def better_known(device: int, first: ConvProblem, second: ConvProblem) -> ConvProblem:
    """Return the convolution that is served by what is known better: `first` if both are as good.

    Of two layouts this is the one that was tuned or, where times are predicted, that is expected to
    be faster, copies of the images included. What a record of another device says of `second` is
    said of `first`, too, if its variant serves both: then the times decide.

    Args:
        device: its index.
        first: in the layout that the images have.
        second: the same in the other layout; is returned if no family serves `first`.
    """
    try:
        met = [varying.typical(_as_met(device, one)) for one in (first, second)]
        made, other = (chooser(device).choose(one) for one in met)
    except NoVariantError:
        return second
    limits = chooser(device).limits
    step, cost = other.order
    if made.step > step and other.ms is None and _serves(other, met[0], limits):
        step = made.step
    return first if made.order <= (step, cost + _copying_ms(met[1], limits)) else second


def _serves(choice: Choice, problem: ConvProblem, limits: Limits) -> bool:
    return choice.rung in RELATED and choice.variant.why_not(problem, limits) is None


def _copying_ms(problem: ConvProblem, limits: Limits) -> float:
    """Return the time in ms of copies of x and y; 0 where there is no model: costs are no times."""
    if not has_model(problem, limits):
        return 0.0
    _, gbytes = rates_of(limits)
    items = sum(prod(problem.buffers[role]) for role in "xy")
    return 2 * LAUNCH_MS + 2 * items * DTYPES[problem.dtype] / gbytes * 1e-6


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


for _setting in (CONV_ACCURACY, TUNE_FIRST):
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
