"""Tables as cases: a problem on a device, with the times of many variants and their features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oclgen.keys import parse_key
from oclgen.predictor.features import Features, of_problem, of_variant
from oclgen.predictor.model import least_ms
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.files.table import Head, Row, read


@dataclass(frozen=True, eq=False)
class Case:
    """A problem on a device: `variants[i]` took `ms[i]`, and `features[i]` describe it.

    `halves` [2, variants] are the least times of the even turns and of the odd ones, None where the
    table keeps one figure alone. A variant that was so slow that no further turn timed it has the
    same time in both. `tried` are the variants and those that failed.
    """

    head: Head
    problem: Problem
    variants: tuple[Variant, ...]
    ms: NDArray[np.float64]
    features: tuple[Features, ...]
    halves: NDArray[np.float64] | None = None
    tried: frozenset[Variant] = frozenset()

    def only(self, keep: Sequence[int]) -> Case:
        """Return the case of some of its variants.

        Args:
            keep: their indices.
        """
        return replace(
            self,
            variants=tuple(self.variants[i] for i in keep),
            ms=self.ms[keep],
            features=tuple(self.features[i] for i in keep),
            halves=None if self.halves is None else self.halves[:, keep],
        )

    @property
    def kind(self) -> str:
        """The kind of the device: cpu or gpu."""
        return self.head.device.kind

    @property
    def least_ms(self) -> NDArray[np.float64]:
        """What the predicted time of each variant is counted from, as at dispatch."""
        return np.array(least_ms(self.problem, self.variants, self.features, self.head.limits))


def cases_of(table: Path) -> list[Case]:
    """Return the cases of a table, without what failed."""
    return cases_of_rows(read(table))


def cases_of_rows(rows: Iterable[tuple[Head, Row]]) -> list[Case]:
    """Return the cases of a table's rows, each with its head, without what failed."""
    groups: dict[tuple[str, str], list[tuple[Head, Row]]] = defaultdict(list)
    for head, row in rows:
        groups[head.device.name + head.device.runtime, row.problem].append((head, row))
    return [_case(group) for group in groups.values()]


def _case(rows: list[tuple[Head, Row]]) -> Case:
    head, problem = rows[0][0], parse_key(rows[0][1].problem)
    shared = of_problem(problem, head.limits)
    timed = [row for _, row in rows if isfinite(row.ms)]
    variants = tuple(Variant.from_values(row.family, row.config) for row in timed)
    return Case(
        head,
        problem,
        variants,
        np.array([row.ms for row in timed]),
        tuple(shared | of_variant(problem, variant, head.limits) for variant in variants),
        _halves(timed),
        frozenset(Variant.from_values(row.family, row.config) for _, row in rows),
    )


def _halves(rows: Sequence[Row]) -> NDArray[np.float64] | None:
    if not any(len(row.turns) > 1 for row in rows):
        return None
    turns = [row.turns if len(row.turns) > 1 else (row.ms, row.ms) for row in rows]
    return np.array([[min(each[half::2]) for each in turns] for half in (0, 1)])
