"""Two families, made-up times and a clock that only they move: a tuning without a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any

import pytest

from oclgen.families.gemm import gemm_register, gemm_staged
from oclgen.keys import parse_gemm
from oclgen.limits import Limits
from oclgen.measurement import Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant
from search_spaces import space
from search_spaces.progress import Budget, Results
from search_spaces.tune import Tuner
from tests.search_spaces.synthetic import Clock

GPU = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 2**34, 2**36, 132, 1)
PROBLEM = parse_gemm("512x512x512")
OTHER = parse_gemm("64x1000x2048:nt")
REGISTER, STAGED = gemm_register.NAME, gemm_staged.NAME


def fake_ms(variant: Variant) -> float:
    """The register family has its optimum at 4 x 8 and is twice as slow as the staged one."""
    config = variant.config
    if variant.family == REGISTER:
        return 2 + abs(log2(config.item_m / 4)) + abs(log2(config.item_n / 8))
    return 1 + abs(log2(config.tile_m / 64)) + abs(log2(config.tile_n / 64))


@dataclass
class Lab:
    """A measure that takes `seconds` of a clock that only it moves, and remembers its calls."""

    clock: Clock = field(default_factory=Clock)
    seconds: float = 1
    calls: list[tuple[Problem, Variant, float]] = field(default_factory=list)
    spell: dict[int, Exception | BaseException | Measurement] = field(default_factory=dict)
    """What happens at the call of that number instead."""

    def measure(self, problem: Problem, variant: Variant, best_ms: float) -> Measurement:
        self.calls.append((problem, variant, best_ms))
        self.clock.now += self.seconds
        event = self.spell.get(len(self.calls))
        if isinstance(event, BaseException):
            raise event
        return event or Measurement((fake_ms(variant),), error=1e-7)

    def variants(self, problem: Problem = PROBLEM) -> list[Variant]:
        return [variant for asked, variant, _ in self.calls if asked == problem]


def only_these(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, tuple[int, ...]]) -> None:
    """Let `gemm_register` have these values, and no guess but its `DEFAULT`."""
    monkeypatch.setitem(space.SPACES, REGISTER, lambda p, li: values)
    monkeypatch.setattr(gemm_register, "guesses", lambda p, li: [])


def tuner(lab: Lab, memory: Results, budget: Budget, **more: Any) -> Tuner:
    return Tuner(GPU, lab.measure, memory, budget, clock=lab.clock, **more)


def vars_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}
