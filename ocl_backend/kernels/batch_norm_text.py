"""What the template of batch normalisation in channels_last writes: a vector of channels, moved."""

from __future__ import annotations

from dataclasses import dataclass

from ocl_backend.dtypes import DType
from ocl_backend.kernels import vectors


@dataclass(frozen=True)
class Channels:
    """Reads and writes of `width` neighbouring channels, from channel `c` on.

    Attributes:
        dtype: of the images.
        param: dtype of weights and statistics.
        width: channels that are moved at once.
        aligned: images begin where vectors may.
    """

    dtype: DType
    param: DType
    width: int
    aligned: bool

    def load(self, name: str, at: str = "at") -> str:
        """Return the items of image `name` from place `at` on."""
        return vectors.load(self.dtype, name, at, "1", self.width, self.aligned)

    def parameter(self, name: str) -> str:
        """Return the channels of a weight or a statistic."""
        return vectors.load(self.param, name, "c", "1", self.width)

    def set_parameter(self, name: str, value: str) -> list[str]:
        """Return the lines that store channels of a gradient or a statistic."""
        return vectors.store(self.param, name, "c", "1", value, self.width)

    def sums(self, of: str, row: int) -> str:
        """Return the channels of a row of sums, which lie at `of`."""
        at = f"{of} + {row} * channels + c"
        return f"*({at})" if self.width == 1 else f"vload{self.width}(0, {at})"

    def keep(self, pointer: str, value: str) -> str:
        """Return the statement that stores sums."""
        if self.width == 1:
            return f"*({pointer}) = {value};"
        return f"vstore{self.width}({value}, 0, {pointer});"
