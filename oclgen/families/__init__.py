"""The kernel families: every way this project knows to solve a problem.

A family is a module of a folder here, under its own name, that keeps `oclgen.family.Family`:
parameters as a frozen `Config`, the rule that says why one cannot serve, a `DEFAULT` that is valid
everywhere, `guesses` for untuned problems, and `plan`, which turns problem and config into text.
A module with a `NAME` and `TRAITS` in one of the folders is a family, and nothing else lists it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, MutableMapping
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from threading import Lock
from typing import Any

from oclgen.families.conv.conv_as_gemm import PREFIX, conv_as_gemm
from oclgen.family import Family
from oclgen.limits import Limits
from oclgen.parameters import ConfigError
from oclgen.problem import Problem, has_volume

__all__ = [
    "FAMILIES",
    "ConfigError",
    "Family",
    "default_of",
    "families_for",
    "is_transforming",
    "preferred",
    "require_families",
    "valid_configs",
]


class Families(MutableMapping[str, Family]):
    """Families by name, in the order in which an untuned problem prefers them.

    To import all takes a process 0.15 s. A process that finds its choices again needs few of them,
    so a name imports its own family, and only a walk imports all.
    """

    def __init__(self) -> None:
        """Import nothing yet."""
        self._met: dict[str, Family] = {}
        self._are_all_met = False
        self._lock = Lock()

    def __getitem__(self, name: str) -> Family:
        family = self._met.get(name)
        if family is None and not self._are_all_met:
            family = self._meet(name)
        if family is None:
            raise KeyError(name)
        return family

    def __setitem__(self, name: str, family: Family) -> None:
        self._all()[name] = family

    def __delitem__(self, name: str) -> None:
        del self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _meet(self, name: str) -> Family | None:
        """Return the family of this name once its module is imported, None if there is none."""
        own = name.removeprefix(PREFIX)
        module: Any = import_module(_places()[own]) if own in _places() else None
        if not hasattr(module, "TRAITS") or own != module.NAME:
            return None  # modules that several families share lie beside them
        if own != name and module.TRAITS.conv_rank is None:
            return None
        with self._lock:  # not around the import, which has locks of its own
            if name not in self._met:
                self._met[name] = module if own == name else conv_as_gemm(module)
            return self._met[name]

    def _all(self) -> dict[str, Family]:
        if not self._are_all_met:
            for own in _places():
                for name in (own, f"{PREFIX}{own}"):
                    self._meet(name)
            with self._lock:
                ranked = sorted(self._met.values(), key=lambda one: (one.TRAITS.rank, one.NAME))
                self._met = {one.NAME: one for one in ranked}
                self._are_all_met = True
        return self._met


@cache
def _places() -> dict[str, str]:
    """Return the modules of the folders here: their full names by their own."""
    found = {}
    for folder in iter_modules(__path__):
        for module in iter_modules([str(Path(root, folder.name)) for root in __path__]):
            found[module.name] = f"{__name__}.{folder.name}.{module.name}"
    return found


FAMILIES = Families()


def is_transforming(name: str) -> bool:
    """Say whether a family computes in a transformed domain, which costs digits.

    See `winograd_matrices`.

    Args:
        name: the family's; one that there is no more does not.
    """
    return name in FAMILIES and FAMILIES[name].TRAITS.transforming


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
