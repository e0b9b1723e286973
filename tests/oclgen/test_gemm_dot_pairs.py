"""What `gemm_dot_pairs` says anywhere, and computes on CPUs with AVX512-BF16."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oclgen.families.gemm import gemm_dot_pairs, gemm_pairs
from oclgen.families.gemm.gemm_dot_pairs import DEFAULT, STEP, Config
from oclgen.families.gemm.gemm_dot_pairs_text import order
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.gemm_cases import BASE, EPILOGUES, label, one_of, problems
from tests.oclgen.views_of_products import check_view

ZEN4 = Limits(
    "cpu", 32 * KIB, 4096, (4096, 4096, 4096), 2**32, 2**34, 16, 16,
    instructions=frozenset({INSTRUCTION}),
)  # fmt: skip
PROBLEM = GemmProblem(9, 320, 470, dtype="bf16", trans_b=True)
CHANGES: dict[str, Any] = {"item_m": 3, "item_n": 8, "split_k": 2}
CONFIGS = st.builds(
    Config, **one_of(item_m=(1, 2, 3, 5, 14), item_n=(1, 2, 4, 8), split_k=(1, 2, 3))
)


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(DEFAULT)}
    for name, value in CHANGES.items():
        other = replace(DEFAULT, **{name: value})
        one, two = (gemm_dot_pairs.plan(PROBLEM, config).launches for config in (DEFAULT, other))
        assert [launch.source for launch in one] != [launch.source for launch in two], name


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(DEFAULT, item_n=3), ("item_n=3",)),
        (replace(DEFAULT, item_m=7), ("item_m=7", "33 vectors", "at most 30")),
        (replace(DEFAULT, split_k=16), ("split_k=16", "k=470")),
    ],
)
def test_refusals_name_the_numbers(config: Config, words: tuple[str, ...]) -> None:
    reason = config.why_not(PROBLEM, ZEN4)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_few_rows_along_k_are_served_by_processors_with_the_instruction() -> None:
    assert gemm_dot_pairs.serves(PROBLEM)
    for other in ({"dtype": "fp16"}, {"trans_b": False}, {"trans_a": True}, {"k": STEP - 1}):
        assert not gemm_dot_pairs.serves(replace(PROBLEM, **other)), other
    assert INSTRUCTION in (DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert len(space_of("gemm_dot_pairs", PROBLEM, Limits())) == 0
    for m in (1, 3, 9, 16, 33, 64):
        few = replace(PROBLEM, m=m)
        assert len(seeds_of("gemm_dot_pairs", few, ZEN4)) >= 3
        for config in gemm_dot_pairs.guesses(few, ZEN4):
            assert config.why_not(few, ZEN4) is None
    assert gemm_dot_pairs.guesses(replace(PROBLEM, m=65), ZEN4) == []


def test_short_sums_of_many_rows_are_left_to_panels_and_long_ones_of_few_are_not() -> None:
    for m, k, panels, dots in (
        (4, 239, True, True),
        (53, 141, True, False),
        (32, 511, True, True),
        (32, 512, False, True),
        (33, 2047, True, True),
        (64, 2048, False, True),
        (65, 4096, True, False),
    ):
        problem = replace(PROBLEM, m=m, k=k)
        assert bool(gemm_pairs.guesses(problem, ZEN4)) == panels, (m, k)
        assert bool(gemm_dot_pairs.guesses(problem, ZEN4)) == dots, (m, k)
    assert gemm_pairs.guesses(replace(PROBLEM, m=16, k=4096, trans_b=False), ZEN4)


def test_sums_of_lanes_come_out_in_order() -> None:
    """Each step adds one half of all lanes to the other, and all of a sum's stay together."""
    assert sorted(order()) == list(range(16))
    assert order() != tuple(range(16))


def assert_right(device: Device, problem: GemmProblem, config: Config) -> None:
    """Compare with float64, or skip where the device lacks the instruction."""
    if INSTRUCTION not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {INSTRUCTION}")
    assert config.why_not(problem, device.limits) is None
    measurement = Bench(device, problem).measure(gemm_dot_pairs.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"
    # what rounding the result to 8 bits leaves: the sums are exact to fp32
    assert measurement.error < 2.5e-3


@pytest.mark.parametrize("k", [32, 33, 63, 64, 95, 470])
def test_the_last_steps_of_k(device: Device, k: int) -> None:
    assert_right(device, replace(PROBLEM, n=21, k=k), Config(item_m=5, item_n=4, split_k=1))


@pytest.mark.parametrize("k", [65, 70, 95])
def test_slices_shorter_than_a_step(device: Device, k: int) -> None:
    assert_right(device, replace(PROBLEM, n=21, k=k), Config(item_m=3, item_n=8, split_k=3))


@pytest.mark.parametrize("problem", EPILOGUES, ids=label)
def test_epilogues(device: Device, problem: GemmProblem) -> None:
    given = replace(problem, dtype="bf16", trans_a=False, trans_b=True, k=max(problem.k, STEP))
    assert_right(device, given, Config(item_m=2, item_n=8, split_k=1))


def test_sums_keep_fp32(device: Device) -> None:
    assert_right(device, replace(PROBLEM, m=8, n=32, k=4096), DEFAULT)


def test_nothing_around_a_view_is_read_or_written(device: Device) -> None:
    if INSTRUCTION not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {INSTRUCTION}")
    problem = replace(BASE, n=47, k=70, dtype="bf16", batch=2, trans_b=True)
    check_view(device, problem, Variant("gemm_dot_pairs", DEFAULT))


@settings(
    max_examples=8, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(problem=problems(), config=CONFIGS, k=st.integers(STEP, 200))
def test_any_valid_variant(device: Device, problem: GemmProblem, config: Config, k: int) -> None:
    problem = replace(problem, dtype="bf16", trans_a=False, trans_b=True, k=k)
    assume(config.why_not(problem, ZEN4) is None)
    assert_right(device, problem, config)


def test_rows_and_columns_may_be_free(device: Device) -> None:
    free = replace(PROBLEM, free=frozenset({"m", "n"}))
    sizes = [replace(free, m=m, n=n) for m, n in ((1, 1), (7, 33), (64, 320))]
    texts = {gemm_dot_pairs.plan(one, DEFAULT).launches[0].source for one in sizes}
    assert len(texts) == 1
    assert "k" in (DEFAULT.why_not(replace(PROBLEM, free=frozenset({"k"})), ZEN4) or "")
    for one in sizes:
        assert_right(device, one, DEFAULT)
