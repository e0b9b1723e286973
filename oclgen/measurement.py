"""What came of measuring one variant, as a plain value; how it is measured is `oclgen.measure`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

Invalidity = Literal["none", "constraints", "compile", "runtime", "timeout", "correctness"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one variant in milliseconds, or why there are none; `error` is relative L2."""

    samples: tuple[float, ...] = ()
    invalidity: Invalidity = "none"
    reason: str = ""
    error: float = float("nan")

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
