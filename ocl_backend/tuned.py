"""Which variant a tuned operator runs: chosen once per problem, built once, then only launched.

How a variant was found is the search's business, how it is launched `ocl_backend.launch`'s.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from ocl_backend.launch import PreparedPlan, prepare_plan
from oclgen.device import BuildError, LaunchError, devices
from oclgen.families import FAMILIES, config_to_json
from oclgen.problem import DTYPES, Problem
from tuned_db import Choice, Chooser, DatabaseError, open_store

STORAGE: dict[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""The dtypes that the generated families compute with."""


class ExplainRow(NamedTuple):
    """One line of a report: how often an operator met a problem, what ran, where it came from."""

    calls: int
    operator: str
    problem: str
    rung: str
    family: str
    config: str


@dataclass(frozen=True)
class Explanation:
    """What `torch.ocl.explain` saw: the function's result and one row per operator and problem."""

    result: Any
    rows: tuple[ExplainRow, ...]

    def __str__(self) -> str:
        """Return the rows as a plain table with aligned columns."""
        table = [ExplainRow._fields, *(tuple(map(str, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )
        return "\n".join(lines)


class TunedCall:
    """A problem's chosen variant, ready to launch; call it with data pointers in role order."""

    __slots__ = ("_launch", "choice", "operator")

    def __init__(self, operator: str, choice: Choice, launch: PreparedPlan) -> None:
        self.operator = operator
        self.choice = choice
        self._launch = launch

    def __call__(self, *pointers: int) -> None:
        """Enqueue the variant; raises as `ocl_backend.launch.PreparedPlan`."""
        self._launch(*pointers)
        if _trace is not None:
            _trace.append(self)


_trace: list[TunedCall] | None = None


@cache
def chooser(device: int) -> Chooser:
    """Return the chooser of torch device `device`, which has read the user's database.

    A database that cannot be read is warned of, and shipped and default variants serve.
    """
    target = devices()[device]
    try:
        return Chooser(open_store(), target.info, target.limits)
    except DatabaseError as error:
        warnings.warn(f"the ocl device runs on shipped and default variants: {error}", stacklevel=2)
        return Chooser(None, target.info, target.limits)


@lru_cache(maxsize=8192)
def tuned_call(
    operator: str,
    device: int,
    problem: Problem,
    scalars: tuple[tuple[str, int], ...] = (),
) -> TunedCall:
    """Return the call that computes `problem`; its pointers follow `problem.buffers`' order.

    `scalars` replace named scalars of the plan (row and batch strides). A variant that does not
    build is warned of and replaced by the next best.

    Raises:
        NoVariantError: no family serves the problem, or none of them builds here.
    """
    choice = chooser(device).choose(problem)
    while True:
        try:
            plan = FAMILIES[choice.family].plan(problem, choice.config)
            roles, size = tuple(problem.buffers), DTYPES[problem.dtype]
            launch = prepare_plan(device, plan, roles, size, dict(scalars))
            return TunedCall(operator, choice, launch)
        except (BuildError, LaunchError) as error:
            warnings.warn(
                f"{problem.key()}: {choice.family} from rung {choice.rung!r} does not build and "
                f"the next best is taken. Tune the problem anew. {error}",
                stacklevel=2,
            )
            choice = chooser(device).reject(choice)


def reload_tuned() -> None:
    """Read the database again and forget every prepared variant, as after tuning in between."""
    chooser.cache_clear()
    tuned_call.cache_clear()
    for forget in _dependents:
        forget()


_dependents: list[Callable[[], None]] = []


def remember(maxsize: int = 8192) -> Callable[[Callable[..., Any]], Any]:
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
    with _tracing() as calls:
        result = function(*args, **kwargs)
    counts = Counter((call.operator, call.choice) for call in calls)
    rows = (
        ExplainRow(
            count,
            operator,
            choice.problem.key(),
            choice.rung,
            choice.family,
            config_to_json(choice.config),
        )
        for (operator, choice), count in counts.items()
    )
    return Explanation(result, tuple(rows))


@contextmanager
def _tracing() -> Iterator[list[TunedCall]]:
    global _trace
    outer, _trace = _trace, []
    calls = _trace
    try:
        yield calls
    finally:
        _trace = outer
        if outer is not None:
            outer.extend(calls)
