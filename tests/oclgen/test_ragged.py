"""Batch items that differ in a size: a kernel reads in the device's memory whose rows it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES, families_for, valid_configs
from oclgen.gemm_problem import GemmProblem
from oclgen.keys import parse_key
from oclgen.measuring import reference
from oclgen.measuring.excerpt import excerpt
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import ProblemError, with_sizes
from oclgen.variant import Variant
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.mma_emulated import emulate
from tests.oclgen.plan_texts import DEVICES

CPU, GPU = DEVICES
SERVING = "gemm_staged", "gemm_async", "gemm_mma"
ENDS = (
    (0, 0, 70, 70, 130),
    (130, 130, 130, 130, 130),
    (1, 64, 65, 129, 130),
    (3, 30, 30, 90, 99),
)
"""Empty items, all rows of one item, edges of tiles on either side, and rows of no item."""


def of_rows(dtype: str, n: int, k: int, trans_b: bool = False) -> GemmProblem:
    """Five items that share 130 rows of A."""
    free = frozenset(("m",))
    return GemmProblem(26, n, k, dtype, False, trans_b, 5, free=free, ragged="m")


def of_steps(dtype: str, m: int, n: int) -> GemmProblem:
    """Five items that share 130 rows of A and B."""
    return GemmProblem(m, n, 26, dtype, True, batch=5, free=frozenset(("k",)), ragged="k")


PROBLEMS = (
    of_rows("fp32", 40, 33), of_rows("fp32", 33, 40, True), of_steps("fp32", 40, 33),
    of_rows("bf16", 40, 32), of_rows("bf16", 35, 33, True), of_steps("bf16", 40, 33),
    of_rows("tf32", 36, 40, True), of_steps("fp16", 33, 40),
)  # fmt: skip


def first_of(family: str, problem: GemmProblem) -> Variant:
    """The family's first config for a GPU whose tiles have edges on both sides."""
    configs = valid_configs(FAMILIES[family], problem, GPU)
    return Variant(family, next(one for one in configs if one.tile_m <= 64))


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.key())
def test_items_of_any_size_are_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, problem: GemmProblem, ends: Sequence[int]
) -> None:
    emulate(monkeypatch)
    monkeypatch.setattr(reference, "_ends", lambda *_: np.array(ends, np.int32))
    for family in SERVING:
        if FAMILIES[family].serves(problem):
            variant = first_of(family, problem)
            measured = Bench(device, problem).measure(in_plain_c(variant.plan(problem)), 0.0)
            assert measured.ok, f"{variant.to_text()}: {measured.reason}"


def test_one_text_serves_any_number_of_rows() -> None:
    for problem in PROBLEMS:
        for family in SERVING:
            if FAMILIES[family].serves(problem):
                variant = first_of(family, problem)
                more = with_sizes(problem, {problem.ragged: 1000})
                texts = {variant.plan(one).launches[0].source for one in (problem, more)}
                assert len(texts) == 1, variant.to_text()


def test_only_families_that_find_rows_serve() -> None:
    for problem in PROBLEMS:
        for family in families_for(problem):
            found: list[Any] = list(valid_configs(family, problem, GPU))
            assert family.NAME in SERVING or not found
    reason = FAMILIES["gemm_dot"].DEFAULT.why_not(of_rows("fp32", 8, 8), CPU)
    assert reason == "its kernels read one m, in which batch items differ"
    reason = replace(FAMILIES["gemm_staged"].DEFAULT, split_k=2).why_not(
        of_rows("fp32", 8, 99), GPU
    )
    assert reason is not None and reason.startswith("split_k=2 and packed operands are for batch")


def test_ragged_problems_are_read_back_and_refused() -> None:
    for problem in PROBLEMS:
        assert parse_key(problem.key()) == problem
        assert problem.buffers["ends"] == (5,)
    rows = of_rows("fp32", 8, 8)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"free": frozenset()}, "has to be free; free are"),
        ({"trans_a": True}, "are rows of memory: A lies along k"),
        ({"ragged": "k", "free": frozenset("k")}, "are rows of memory: A lies along m"),
        ({"bias": "n"}, "have no bias"),
        ({"ragged": "n", "free": frozenset("n")}, "ragged 'n' is unknown; known are m, k"),
    )
    for wrong, reason in refused:
        with pytest.raises(ProblemError, match=reason):
            replace(rows, **wrong)


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=lambda one: one.key())
def test_an_excerpt_has_some_columns_of_all_items(problem: GemmProblem) -> None:
    part = excerpt(problem, 3, affordable=4e5)
    assert part.problem.buffers["c"][2] < problem.n
    inputs = reference.random_inputs(problem, 1)
    whole = reference.reference(problem, inputs)
    cut = {role: part.of(role, array) for role, array in inputs.items()}
    found = reference.reference(part.problem, cut)
    np.testing.assert_allclose(found, part.of("c", whole), rtol=1e-12, atol=1e-12)
