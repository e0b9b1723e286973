"""The roofline of a device from its measured rates: arithmetic alone, nothing is measured here.

Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

COPY = "copy bandwidth"
MULTIPLY_ADD = "fp32 multiply-add"


class Roof(NamedTuple):
    """The bound of a piece of work, and the least milliseconds that it allows."""

    name: str
    ms: float


@dataclass(frozen=True, slots=True)
class Roofs:
    """Measured rates: fp32 in GFLOP/s, matrix units in GFLOP/s by dtype, copies in GB/s."""

    gflops: float
    gbytes: float
    matrix: dict[str, float] = field(default_factory=dict)

    def over(self, flops: float, moved: float, dtype: str) -> Roof:
        """Return the roof over work: min(rate, intensity x bandwidth), said in time.

        A dtype without matrix units is computed in fp32. Transformed algorithms, which multiply
        less, may come through a roof of rate.

        Args:
            flops: operations, a multiply-add counted as two.
            moved: bytes that must be read or written.
            dtype: of the operands, a name of `DTYPES`.
        """
        name = f"{dtype} matrix units" if dtype in self.matrix else MULTIPLY_ADD
        rate = Roof(name, 1e-6 * flops / self.matrix.get(dtype, self.gflops))
        copy = Roof(COPY, 1e-6 * moved / self.gbytes)
        return max(rate, copy, key=lambda roof: roof.ms)

    def highest(self, other: Roofs) -> Roofs:
        """Return the higher of each rate: whatever else a machine does only lowers them."""
        dtypes = {*self.matrix, *other.matrix}
        matrix = {d: max(self.matrix.get(d, 0.0), other.matrix.get(d, 0.0)) for d in sorted(dtypes)}
        return Roofs(max(self.gflops, other.gflops), max(self.gbytes, other.gbytes), matrix)
