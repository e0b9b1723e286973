"""A family-like config, its costs, and results in memory: a tuning without device or database."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf, log2
from typing import Any

from oclgen.measurement import PACE, Measurement
from oclgen.problem import Problem
from oclgen.variant import Variant

VALUES: dict[str, tuple[Any, ...]] = {
    "tile_m": (8, 16, 32, 64, 128),
    "tile_n": (8, 16, 32, 64, 128),
    "vec": (1, 2, 4, 8),
    "unroll": (1, 2, 4, 8, 16),
    "pad": (0, 1, 2),
    "stage": (False, True),
    "order": ("m", "n", "z"),
}
"""9000 configs, of which about 8000 are valid."""


@dataclass(frozen=True)
class Config:
    tile_m: int
    tile_n: int
    vec: int
    unroll: int
    pad: int
    stage: bool
    order: str

    @property
    def valid(self) -> bool:
        return self.tile_m * self.tile_n <= 8192 and self.tile_n >= 2 * self.vec


def cost(config: Config) -> float:
    """Milliseconds with one optimum, interactions and a ragged floor, as kernels have them."""
    away = abs(log2(config.tile_m / 64)) + abs(log2(config.tile_n / 64))
    lopsided = abs(log2(config.tile_m / config.tile_n))
    vector = abs(log2(config.vec / 4)) * (1.5 if config.stage else 0.8)
    conflict = 0.4 if config.stage and config.pad == 0 and config.vec > 1 else 0.05 * config.pad
    unroll = 0.15 * abs(log2(config.unroll * config.vec / 16))
    order = {"m": 0.0, "n": 0.1, "z": 0.25}[config.order]
    stage = 0.0 if config.stage else 0.5
    ragged = 0.02 * (hash(tuple(asdict(config).values())[:5]) % 7) / 7
    return (
        1 + 0.3 * away + 0.1 * lopsided + 0.2 * vector + conflict + unroll + order + stage + ragged
    )


@dataclass
class Memory:
    """Results in memory, as `search_spaces.progress.Results` wants them; keeps the order."""

    asked: list[tuple[Problem, Variant, Measurement]] = field(default_factory=list)
    winners: dict[Problem, tuple[Variant, float]] = field(default_factory=dict)
    promoted: list[tuple[Variant, Measurement]] = field(default_factory=list)
    foreign_trials: int = 0

    def record(self, problem: Problem, variant: Variant, measurement: Measurement) -> bool:
        self.asked.append((problem, variant, measurement))
        before = self.winners[problem][1] if problem in self.winners else inf
        if measurement.ms < before:
            self.winners[problem] = (variant, measurement.ms)
        return measurement.ms < before

    def promote(self, problem: Problem, variant: Variant, measurement: Measurement) -> None:
        self.promoted.append((variant, measurement))
        self.winners[problem] = (variant, measurement.ms)

    def measured(self, problem: Problem) -> dict[Variant, float]:
        mine = ((variant, m) for asked, variant, m in self.asked if asked == problem)
        return {variant: m.ms / m.conditions.get(PACE, 1.0) for variant, m in mine}

    def timeouts(self, problem: Problem) -> set[Variant]:
        mine = ((variant, m) for asked, variant, m in self.asked if asked == problem)
        return {variant for variant, m in mine if m.invalidity == "timeout"}

    def trials(self, problem: Problem) -> int:
        return max(len(self.measured(problem)), self.foreign_trials)

    def incumbent(self, problem: Problem) -> tuple[Variant, float] | None:
        return self.winners.get(problem)


@dataclass
class Clock:
    """A clock that goes only when something takes its time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
