"""Tables as cases: a problem on a device, with the times of many variants and their features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oclgen.keys import parse_key
from oclgen.predictor.features import Features, of_problem, of_variant
from oclgen.predictor.model import roofline_ms
from oclgen.problem import Problem
from oclgen.variant import Variant
from tuned_db.files.table import Head, Row, read


@dataclass(frozen=True, eq=False)
class Case:
    """A problem on a device: `variants[i]` took `ms[i]`, and `features[i]` describe it."""

    head: Head
    problem: Problem
    variants: tuple[Variant, ...]
    ms: NDArray[np.float64]
    features: tuple[Features, ...]

    @property
    def kind(self) -> str:
        """The kind of the device: cpu or gpu."""
        return self.head.device.kind

    @property
    def roofline_ms(self) -> float:
        """The least time by the rates that the device showed."""
        return roofline_ms(self.problem, self.head.gflops, self.head.gbytes)


def cases_of(table: Path) -> list[Case]:
    """Return the cases of a table, without what failed."""
    groups: dict[tuple[str, str], list[tuple[Head, Row]]] = defaultdict(list)
    for head, row in read(table):
        groups[head.device.name + head.device.runtime, row.problem].append((head, row))
    return [_case(rows) for rows in groups.values()]


def _case(rows: list[tuple[Head, Row]]) -> Case:
    head, problem = rows[0][0], parse_key(rows[0][1].problem)
    shared = of_problem(problem, head.limits)
    timed = list(_timed(rows))
    return Case(
        head,
        problem,
        tuple(variant for variant, _ in timed),
        np.array([ms for _, ms in timed]),
        tuple(shared | of_variant(problem, variant, head.limits) for variant, _ in timed),
    )


def _timed(rows: list[tuple[Head, Row]]) -> Iterator[tuple[Variant, float]]:
    for _, row in rows:
        if isfinite(row.ms):
            yield Variant.from_values(row.family, row.config), row.ms
