"""An excerpt of a large problem has exactly that part of the whole problem's output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oclgen.measuring.excerpt import excerpt
from oclgen.measuring.reference import random_inputs, reference
from oclgen.problem import DIRECTIONS, ConvProblem, GemmProblem, Problem, Volume

CONV = ConvProblem(5, 6, 9, 8, 12, 3, 3, 2, 1, 1, 1, groups=3)
VOLUME = ConvProblem(8, 12, 5, 4, 9, 3, 3, layout="nhwc", volume=Volume(4, 3, 1, 1))
PROBLEMS: list[Problem] = [
    GemmProblem(30, 7, 5, bias="m", activation="relu"),
    GemmProblem(30, 7, 5, trans_a=True, trans_b=True, bias="n"),
    GemmProblem(4, 7, 5, batch=9, shared_b=True),
    CONV,
    ConvProblem(5, 6, 9, 8, 12, 3, 3, groups=3, direction="bwd_data"),
    ConvProblem(5, 6, 9, 8, 12, 3, 3, groups=3, direction="bwd_weights"),
    ConvProblem(5, 6, 9, 8, 12, 3, 3, direction="bwd_weights"),
    replace(CONV, layout="nhwc"),
    replace(CONV, direction="bwd_weights", layout="nhwc"),
    ConvProblem(5, 6, 9, 8, 12, 3, 3, direction="bwd_weights", layout="nhwc"),
    *(replace(VOLUME, direction=direction) for direction in DIRECTIONS),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_it_is_a_part_of_the_whole(problem: Problem) -> None:
    inputs = random_inputs(problem, 1)
    whole = reference(problem, inputs)
    part = excerpt(problem, 1, affordable=1.0)
    assert part.problem.flops < problem.flops
    cut = {role: part.of(role, array) for role, array in inputs.items()}
    assert {role: array.shape for role, array in cut.items()}.items() <= (
        part.problem.buffers.items()
    )
    np.testing.assert_allclose(reference(part.problem, cut), part.of(problem.output, whole))


def test_what_is_affordable_is_compared_whole() -> None:
    part = excerpt(CONV, 0)
    assert part.problem == CONV
    assert not part.cuts


def test_both_ends_are_compared_and_the_seed_draws_the_rest() -> None:
    large = GemmProblem(4096, 4096, 4096)
    rows = [excerpt(large, seed).cuts["c"][1] for seed in (1, 2)]
    assert all({0, 4095} <= set(each.tolist()) for each in rows)
    assert set(rows[0].tolist()) != set(rows[1].tolist())
    assert 100 < len(rows[0]) < 4096


def test_large_inputs_repeat_with_a_period_that_no_row_has() -> None:
    a = random_inputs(GemmProblem(3000, 1, 3000), 0)["a"][0]
    assert len(np.unique(a[::100], axis=0)) == 30
