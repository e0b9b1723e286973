"""The model that ranks variants for problems without a record; one file for each kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from math import inf
from typing import IO

import numpy as np
from numpy.typing import NDArray

from oclgen.limits import Limits
from oclgen.predictor import gpus, processors
from oclgen.predictor.features import Features, of_problem, of_variant
from oclgen.predictor.forest import Forest
from oclgen.predictor.products import is_predicted
from oclgen.problem import Problem
from oclgen.variant import Variant

VERSION = 1
"""Of the files: a file of another version is no model of this package."""
MISSING = -99.0
"""What stands for a feature that a family does not have: below all values."""
LAUNCH_MS = 0.004
"""Time below which no launch gets, roughly; it keeps the smallest problems' ratios finite."""
RATES = {"cpu": (16.0, 25.0), "gpu": (460.0, 32.0), "other": (100.0, 8.0)}
"""GFLOP/s, of a processor for each lane of its vectors, and GB/s of a compute unit. A processor's
model is made by these rates: those that were measured beside other programs differ by a factor of
fifteen. On a GPU they are of those that were known, and rank no variants."""


@dataclass(frozen=True, eq=False)
class Model:
    """Predicts the logarithm of a time over the least one (`least_ms`), from features by name.

    Attributes:
        names: the forest's columns except for the last, which are `families`.
        families: each of its own column, 1 where the variant is of it.
        forest: what predicts.
    """

    names: tuple[str, ...]
    families: tuple[str, ...]
    forest: Forest

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.names)}

    @cached_property
    def _of_families(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.families, len(self.names))}

    @cached_property
    def blank(self) -> list[float]:
        """Return the row of a variant of no family that has no feature."""
        return [MISSING] * len(self.names) + [0.0] * len(self.families)

    def with_features(self, row: Sequence[float], values: Features) -> list[float]:
        """Return a row of the forest's columns with these features, of those that it knows."""
        filled = [*row]
        columns = self._columns
        for name, value in values.items():
            if (column := columns.get(name)) is not None:
                filled[column] = value
        return filled

    def row(
        self, variant: Variant, values: Features, shared: Sequence[float] | None = None
    ) -> list[float]:
        """Return a variant's features as the forest's columns have them.

        Args:
            variant: its family has a column, too.
            values: its features.
            shared: the row that the features of the problem make, if they are not among `values`.
        """
        row = self.with_features(self.blank if shared is None else shared, values)
        if (column := self._of_families.get(variant.family)) is not None:
            row[column] = 1.0
        return row

    def excess(self, rows: Sequence[Sequence[float]]) -> NDArray[np.float32]:
        """Return log2 of the time over the least one for each row."""
        return self.forest.predict(np.array(rows, dtype=np.float32))

    def save(self, file: IO[bytes]) -> None:
        """Write the model."""
        arrays = {name: getattr(self.forest, name) for name in _ARRAYS}
        texts = {"names": np.array(self.names), "families": np.array(self.families)}
        scalars = {"base": self.forest.base, "depth": self.forest.depth, "version": VERSION}
        np.savez_compressed(file, allow_pickle=False, **arrays, **texts, **scalars)

    @classmethod
    def load(cls, file: IO[bytes]) -> Model:
        """Read what `save` wrote.

        Raises:
            ValueError: the file has another version, or is no model.
        """
        with np.load(file, allow_pickle=False) as stored:
            if int(stored["version"]) != VERSION:
                raise ValueError(f"a model of version {stored['version']}; this reads {VERSION}")
            arrays = {name: stored[name] for name in _ARRAYS}
            forest = Forest(**arrays, base=float(stored["base"]), depth=int(stored["depth"]))
            return cls(
                tuple(map(str, stored["names"])), tuple(map(str, stored["families"])), forest
            )


_ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")


@cache
def shipped(kind: str) -> Model | None:
    """Return the model for a kind of device, None where none comes with the package.

    A device that is neither CPU nor GPU counts as a GPU.
    """
    path = resources.files(__package__).joinpath("cpu.npz" if kind == "cpu" else "gpu.npz")
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return Model.load(file)


def has_model(problem: Problem, limits: Limits) -> bool:
    """Say whether there is a model for such problems on devices of this kind."""
    return is_predicted(problem) and shipped(limits.kind) is not None


def predict(problem: Problem, variants: Sequence[Variant], limits: Limits) -> list[float] | None:
    """Return the predicted time of each variant in ms, infinite for those that cannot be planned.

    The ratios of variants are what is predicted well; all may be wrong by a common factor. None is
    returned where there is no model for such problems and devices.

    Args:
        problem: what is to be computed.
        variants: candidates, valid or not.
        limits: of the device.
    """
    model = shipped(limits.kind)
    if model is None or not is_predicted(problem):
        return None
    shared = model.with_features(model.blank, of_problem(problem, limits))
    rows: list[list[float]] = []
    owned: list[Features] = []
    planned: list[int] = []
    for index, variant in enumerate(variants):
        try:
            own = of_variant(problem, variant, limits)
        except Exception:  # a family may raise anything for a config that `why_not` refuses
            continue
        rows.append(model.row(variant, own, shared))
        owned.append(own)
        planned.append(index)
    times = [inf] * len(variants)
    least = least_ms(problem, [variants[at] for at in planned], owned, limits)
    for index, ms, excess in zip(planned, least, model.excess(rows) if rows else (), strict=True):
        times[index] = ms * 2.0 ** float(excess)
    return times


def rates_of(limits: Limits) -> tuple[float, float]:
    """Return the rates by which a device counts that was not measured, GFLOP/s and GB/s."""
    gflops, gbytes = RATES[limits.kind]
    lanes = limits.native_float_width if limits.kind == "cpu" else 1
    return gflops * lanes * limits.compute_units, gbytes * limits.compute_units


def least_ms(
    problem: Problem, variants: Sequence[Variant], features: Sequence[Features], limits: Limits
) -> list[float]:
    """Return the estimated times in ms that predictions are counted from (`processors`, `gpus`).

    Args:
        problem: what is computed.
        variants: each has a time.
        features: of each.
        limits: of the device.
    """
    if limits.kind != "cpu":
        return [gpus.least_ms(own) for own in features]
    pairs, rates = zip(variants, features, strict=True), rates_of(limits)
    return [processors.least_ms(problem, one, own, limits, rates) + LAUNCH_MS for one, own in pairs]
