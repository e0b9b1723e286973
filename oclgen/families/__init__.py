"""The kernel families: every way this project knows to solve a problem.

A family is a module: parameters as a frozen `Config`, the rule that says why one cannot serve,
a `DEFAULT` that is valid everywhere, and `plan`, which turns problem and config into text.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields
from typing import Any, Protocol, get_type_hints

from oclgen.families.conv import (
    conv_async,
    conv_gemm,
    conv_mma,
    conv_narrow_weights,
    conv_register,
    conv_register_weights,
)
from oclgen.families.conv.conv_as_gemm import conv_as_gemm
from oclgen.families.depthwise import (
    depthwise,
    depthwise_pixels,
    depthwise_pixels_weights,
    depthwise_weights,
)
from oclgen.families.gemm import (
    gemm_async,
    gemm_columns,
    gemm_dot,
    gemm_mma,
    gemm_pairs,
    gemm_register,
    gemm_staged,
    gemm_tma,
)
from oclgen.families.winograd import (
    winograd_blocked,
    winograd_fused,
    winograd_staged,
    winograd_weights,
)
from oclgen.limits import Limits
from oclgen.plan import Plan
from oclgen.problem import Problem


class Family(Protocol):
    """What a family's module offers."""

    NAME: str
    DEFAULT: Any
    """A `Config` that is valid on every device."""
    Config: Any
    """Frozen dataclass of int, bool and str fields with `why_not(problem, limits)`."""

    def serves(self, problem: Problem, /) -> bool:
        """Say whether the family can compute the problem at all, whatever the config."""
        ...

    def plan(self, problem: Any, config: Any, /) -> Plan:
        """Return the launch plan; the config must be valid for the problem."""
        ...


_MODULES: tuple[Family, ...] = (
    gemm_mma,
    gemm_tma,
    gemm_pairs,
    gemm_register,
    gemm_async,
    gemm_staged,
    gemm_dot,
    gemm_columns,
    conv_mma,
    depthwise,
    depthwise_weights,
    depthwise_pixels,
    depthwise_pixels_weights,
    winograd_blocked,
    conv_register,
    conv_register_weights,
    winograd_staged,
    winograd_weights,
    conv_gemm,
    conv_async,
    conv_narrow_weights,
    winograd_fused,
    conv_as_gemm(gemm_mma),
    conv_as_gemm(gemm_pairs),
    conv_as_gemm(gemm_register),
    conv_as_gemm(gemm_async),
    conv_as_gemm(gemm_staged),
)

FAMILIES: dict[str, Family] = {module.NAME: module for module in _MODULES}
"""Every family by name, in the order in which an untuned problem prefers them."""

_FOR_CPUS = frozenset({"gemm_register", "conv_as_gemm_register"})
"""Families that run anywhere and are elsewhere the last choice of an untuned problem."""

TRANSFORMING = frozenset(name for name in FAMILIES if name.startswith("winograd_"))
"""Families that compute in a transformed domain, which costs digits: see `winograd_matrices`."""


class ConfigError(ValueError):
    """A config that does not fit its family: unknown or missing parameter, or a wrong type."""


def families_for(problem: Problem) -> list[Family]:
    """Return the families that can compute `problem`, preferred ones first."""
    return [family for family in FAMILIES.values() if family.serves(problem)]


def preferred(problem: Problem, limits: Limits) -> list[Family]:
    """Return `families_for` the problem, those first whose defaults suit such a device."""
    on_cpu = limits.kind == "cpu"
    families = families_for(problem)
    return sorted(families, key=lambda one: not on_cpu and one.NAME in _FOR_CPUS)


def config_to_json(config: Any) -> str:
    """Return a config as canonical JSON: sorted keys, no blanks."""
    return json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))


def config_from_dict(family: str, values: dict[str, Any]) -> Any:
    """Return the config of `family` with these values.

    Raises:
        ConfigError: the family is unknown, a parameter is missing, unknown or of a wrong type;
            a config of another generator version is the usual reason.
    """
    if family not in FAMILIES:
        raise ConfigError(f"family {family!r} is unknown; known are {', '.join(FAMILIES)}")
    kind = FAMILIES[family].Config
    names = {field.name for field in fields(kind)}
    # a parameter that came later has a default, which is what older records mean
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= set(values) <= names:
        unknown, missing = sorted(set(values) - names), sorted(needed - set(values))
        raise ConfigError(
            f"{family}: unknown parameters {unknown}, missing {missing}; "
            "was the config written by another generator version?"
        )
    hints = get_type_hints(kind)
    for name, value in values.items():
        if type(value) is not (hints[name] if hints[name] in (int, bool, str) else str):
            raise ConfigError(f"{family}: {name} is {value!r}; it must be {hints[name]}")
    return kind(**values)
