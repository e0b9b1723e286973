"""A sample of every kernel family on small problems: the first test of a new device.

It opens no device; `search_spaces.selftest` and the tests run these problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oclgen.families import FAMILIES, Family, valid_configs
from oclgen.limits import Limits
from oclgen.problem import (
    DIRECTIONS,
    LAYOUTS,
    AttentionProblem,
    ConvProblem,
    GemmProblem,
    PackedProblem,
    Problem,
)
from oclgen.variant import Variant

PROBLEMS: tuple[Problem, ...] = (
    GemmProblem(17, 24, 19),
    AttentionProblem(1, 2, 1, 5, 9, 8, 16, causal=True),
    AttentionProblem(1, 2, 1, 5, 9, 8, 16, "bf16"),
    AttentionProblem(1, 2, 1, 5, 9, 8, 16, "bf16", "bwd"),
    GemmProblem(17, 24, 24, trans_b=True),
    GemmProblem(1, 24, 40),
    GemmProblem(17, 24, 40, "int8", trans_b=True),
    PackedProblem(3, 24, 64),
    PackedProblem(1, 24, 64),
    GemmProblem(16, 24, 32, dtype="bf16"),
    GemmProblem(16, 24, 32, dtype="bf16", trans_b=True),
    GemmProblem(7, 24, 20, batch=3, free=frozenset(("m",)), ragged="m"),
    GemmProblem(16, 24, 7, "bf16", True, batch=3, free=frozenset(("k",)), ragged="k"),
    ConvProblem(2, 16, 16, 16, 24, 1, 1, direction="bwd_weights"),
    ConvProblem(2, 40, 3, 4, 24, 1, 1, dtype="bf16", layout="nhwc"),
    *(
        replace(shape, layout=layout, direction=direction)
        for shape in (
            ConvProblem(2, 16, 9, 9, 16, 3, 3, pad_h=1, pad_w=1),
            ConvProblem(2, 16, 9, 9, 16, 3, 3, pad_h=1, pad_w=1, groups=16),
            ConvProblem(2, 16, 6, 6, 16, 1, 1),
            ConvProblem(2, 16, 6, 6, 16, 1, 1, dtype="bf16"),
            ConvProblem(2, 16, 6, 6, 16, 3, 3, dtype="bf16"),
        )
        for layout in LAYOUTS
        for direction in DIRECTIONS
    ),
)
"""Small problems, of which every family serves at least one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A family on a small problem; without a variant `reason` says why the device has none."""

    family: str
    problem: Problem
    variant: Variant | None
    reason: str = ""


def cases(limits: Limits) -> list[Case]:
    """Return every family's cases on such a device: first one of each, then the second of each.

    A family's cases are the problems that it serves, each by its first valid config. One that is
    valid for none is a single case, with the reason that its `DEFAULT` gives.
    """
    turns = [list(_of(family, limits)) for family in FAMILIES.values()]
    longest = max(map(len, turns))
    return [turn[place] for place in range(longest) for turn in turns if place < len(turn)]


def _of(family: Family, limits: Limits) -> Iterator[Case]:
    served = [problem for problem in PROBLEMS if family.serves(problem)]
    found = 0
    for problem in served:
        config: Any = next(valid_configs(family, problem, limits), None)
        if config is not None:
            found += 1
            yield Case(family.NAME, problem, Variant(family.NAME, config))
    if not found:
        reason = family.DEFAULT.why_not(served[0], limits)
        yield Case(family.NAME, served[0], None, reason or "no config is valid")
