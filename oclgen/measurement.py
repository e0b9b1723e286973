"""The result of measuring one variant, as a plain value; `oclgen.measuring.measure` measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median, quantiles
from typing import Literal

Invalidity = Literal["none", "constraints", "compile", "runtime", "timeout", "correctness"]
Cache = Literal["warm", "cold"]
"""`warm`: the same buffers again and again, so that what fits in the caches is in them; `cold`:
before each launch more than the last-level cache was written elsewhere."""

PACE = "pace"
"""Condition of a measurement: how many times as long variants took then as when the tuning of their
problem began, since other work may run on the device; a missing one is 1."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one variant in milliseconds, or why there are none; `error` is relative L2.

    `seed` drew the inputs. `conditions` are clocks in MHz and temperatures in °C before and after,
    by names such as `mhz_before`, where the device or its system tells.
    """

    samples: tuple[float, ...] = ()
    invalidity: Invalidity = "none"
    reason: str = ""
    error: float = float("nan")
    seed: int | None = None
    cache: Cache = "warm"
    conditions: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the variant was right and was timed."""
        return self.invalidity == "none" and bool(self.samples)

    @property
    def ms(self) -> float:
        """Median time in milliseconds; infinite for a failure."""
        return median(self.samples) if self.ok else float("inf")

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.ms if self.ms else 0.0


def undisturbed(samples: Sequence[float]) -> tuple[float, ...]:
    """Return the fastest quarter of `samples`, at least one, in ascending order.

    For processors: other programs take their cores away for whole samples, and so add to most of
    them or to few, as the load has it; what is left over is the variant's own time.
    """
    return tuple(sorted(samples)[: ceil(len(samples) / 4)])
