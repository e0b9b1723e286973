"""The kernel families: every way this project knows to solve a problem.

A family is a module of a folder here, under its own name, that keeps `oclgen.family.Family`:
parameters as a frozen `Config`, the rule that says why one cannot serve, a `DEFAULT` that is valid
everywhere, `guesses` for untuned problems, and `plan`, which turns problem and config into text.
The folders are walked: a module with a `NAME` and `TRAITS` is a family, and nothing else lists it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from typing import Any, cast

from oclgen.families.conv.conv_as_gemm import conv_as_gemm
from oclgen.family import Family
from oclgen.limits import Limits
from oclgen.parameters import ConfigError
from oclgen.problem import Problem, has_volume

__all__ = [
    "FAMILIES",
    "TRANSFORMING",
    "ConfigError",
    "Family",
    "default_of",
    "families_for",
    "preferred",
    "require_families",
    "valid_configs",
]


def _modules() -> Iterator[Family]:
    """Yield the modules of the folders here that are families; others are their shared parts."""
    for folder in iter_modules(__path__, f"{__name__}."):
        for found in iter_modules(import_module(folder.name).__path__ if folder.ispkg else ()):
            module = import_module(f"{folder.name}.{found.name}")
            if hasattr(module, "TRAITS") and found.name == module.NAME:
                yield cast(Family, module)


def _families() -> dict[str, Family]:
    modules = list(_modules())
    faces = [conv_as_gemm(one) for one in modules if one.TRAITS.conv_rank is not None]
    found: list[Family] = [*modules, *faces]
    return {one.NAME: one for one in sorted(found, key=lambda one: (one.TRAITS.rank, one.NAME))}


FAMILIES: dict[str, Family] = _families()
"""Every family by name, in the order in which an untuned problem prefers them."""

TRANSFORMING = frozenset(name for name, one in FAMILIES.items() if one.TRAITS.transforming)
"""Families that compute in a transformed domain, which costs digits: see `winograd_matrices`."""


def families_for(problem: Problem) -> list[Family]:
    """Return the families that can compute `problem`, preferred ones first."""
    volume = has_volume(problem)
    return [
        family
        for family in FAMILIES.values()
        if (family.Config.VOLUMES or not volume) and family.serves(problem)
    ]


def preferred(problem: Problem, limits: Limits) -> list[Family]:
    """Return `families_for` the problem: first those that lead, last those made for CPUs alone."""
    on_cpu = limits.kind == "cpu"

    def order(family: Family) -> tuple[bool, bool]:
        traits = family.TRAITS
        return not traits.leads(problem, limits), not on_cpu and traits.for_cpus

    return sorted(families_for(problem), key=order)


def default_of(family: Family, problem: Problem, limits: Limits) -> Any:
    """Return the config that a family falls back to on such a device.

    Args:
        family: whose config it is.
        problem: which the family serves; a very long sum is split.
        limits: of the device.
    """
    sparing = family.TRAITS.sparing if limits.has_few_registers else None
    return (family.DEFAULT if sparing is None else sparing).with_short_sums(problem)


def valid_configs(family: Family, problem: Problem, limits: Limits) -> Iterator[Any]:
    """Yield the family's valid guesses in their order, then its `default_of` the device, each once.

    Args:
        family: whose configs they are.
        problem: which the family serves.
        limits: of the device.
    """
    return _valid(family, problem, limits, family.guesses(problem, limits))


def _valid(
    family: Family, problem: Problem, limits: Limits, guesses: Iterable[Any]
) -> Iterator[Any]:
    seen = set()
    short = (one.with_short_sums(problem) for one in guesses)
    for config in chain(short, (default_of(family, problem, limits),)):
        if config not in seen and config.why_not(problem, limits) is None:
            seen.add(config)
            yield config


def suitable_configs(family: Family, problem: Problem, limits: Limits) -> Iterator[Any]:
    """Yield the `valid_configs` of a family that has a guess for such a device, else nothing.

    The `DEFAULT` of a family for GPUs is valid on a processor, and up to a hundred times as slow
    as its neighbours: it serves where no family has a guess. Where a family says so
    (`Traits.last_resort`), its own `DEFAULT` is left out behind a valid guess.

    Args:
        family: whose configs they are.
        problem: which the family serves.
        limits: of the device.
    """
    guesses = iter(family.guesses(problem, limits))
    if (first := next(guesses, None)) is None:
        return
    left_out = default_of(family, problem, limits) if family.TRAITS.last_resort else None
    for place, config in enumerate(_valid(family, problem, limits, chain((first,), guesses))):
        if place == 0 or config != left_out:
            yield config


def require_families(families: Collection[str], problems: Iterable[Problem]) -> None:
    """Refuse families that do not exist, or of which none serves one of the problems.

    Raises:
        ConfigError: the message names the families that there are, or that serve the problem.
    """
    for name in families:
        if name not in FAMILIES:
            raise ConfigError(f"family {name!r} is unknown; known are {', '.join(FAMILIES)}")
    for problem in problems:
        serving = [family.NAME for family in families_for(problem)]
        if families and not set(families) & set(serving):
            raise ConfigError(
                f"{', '.join(families)} cannot serve {problem.key()}; use {', '.join(serving)}"
            )
