"""The kernel families: every way this project knows to solve a problem.

A family is a module: parameters as a frozen `Config`, the rule that says why one cannot serve,
a `DEFAULT` that is valid everywhere, and `plan`, which turns problem and config into text.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from oclgen.families.conv import (
    conv_async,
    conv_gemm,
    conv_mma,
    conv_narrow_weights,
    conv_register,
    conv_register_weights,
)
from oclgen.families.conv.conv_as_gemm import conv_as_gemm
from oclgen.families.depthwise import depthwise, depthwise_weights
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
from oclgen.family import Family
from oclgen.limits import Limits
from oclgen.parameters import ConfigError
from oclgen.problem import Problem
from oclgen.variant import Variant

__all__ = [
    "FAMILIES", "TRANSFORMING", "ConfigError", "Family", "config_from_dict", "config_to_json",
    "families_for", "preferred",
]  # fmt: skip

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

TRANSFORMING = frozenset(name for name, one in FAMILIES.items() if one.TRAITS.transforming)
"""Families that compute in a transformed domain, which costs digits: see `winograd_matrices`."""


def families_for(problem: Problem) -> list[Family]:
    """Return the families that can compute `problem`, preferred ones first."""
    return [family for family in FAMILIES.values() if family.serves(problem)]


def preferred(problem: Problem, limits: Limits) -> list[Family]:
    """Return `families_for` the problem, those first whose defaults suit such a device."""
    on_cpu = limits.kind == "cpu"
    families = families_for(problem)
    return sorted(families, key=lambda one: not on_cpu and one.TRAITS.for_cpus)


def config_to_json(config: Any) -> str:
    """Return a config as canonical JSON: sorted keys, no blanks."""
    return json.dumps(asdict(config), sort_keys=True, separators=(",", ":"))


def config_from_dict(family: str, values: dict[str, Any]) -> Any:
    """Return the config of `family` with these values.

    Raises:
        ConfigError: see `Variant.from_values`.
    """
    return Variant.from_values(family, values).config
