"""What the GEMM families say and generate, where no device is needed."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given, settings

from oclgen.families import FAMILIES
from oclgen.limits import KIB, Limits
from oclgen.plan import Buffer, Plan, Scalar
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.gemm_cases import (
    ANY_VARIANT,
    COLUMNS,
    DEFAULTS,
    DOT,
    REGISTER,
    STAGED,
    STREAMED,
    VARIANTS,
    label,
    problems,
)

SMALLEST = Limits()
CPU = Limits("cpu", 256 * KIB, 8192, (8192,) * 3, 2**30, 2**33, 2, 16)
GPU = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1)
ODD = GemmProblem(37, 53, 29, trans_b=True)

CHANGES: dict[str, dict[str, Any]] = {
    "gemm_register": {
        "item_m": 2, "item_n": 4, "vec_n": 8, "local_m": 4, "local_n": 2, "unroll_k": 1,
        "pack_a": True, "pack_b": True, "loop_m": 2, "order": "n", "split_k": 2,
    },
    "gemm_columns": {
        "item_m": 1, "vec_n": 2, "unroll_k": 2, "local_n": 4, "local_k": 2, "split_k": 2,
    },
    "gemm_stream": {"item_m": 1, "tile_n": 64, "vec_n": 8, "unroll_k": 2, "split_k": 2},
    "gemm_dot": {
        "item_m": 1, "item_n": 2, "vec_k": 8, "local_k": 8, "local_n": 1, "split_k": 2,
    },
    "gemm_staged": {
        "tile_m": 32, "tile_n": 32, "tile_k": 16, "local_m": 8, "local_n": 2, "vec_m": 4,
        "vec_n": 2, "stage_a": False, "stage_b": False, "pad_a": 2, "pad_b": 4,
        "double_buffer": True, "prefetch": True, "unroll_k": 2, "split_k": 2, "group_m": 2,
    },
}  # fmt: skip


def texts(plan: Plan) -> list[str]:
    return [launch.source for launch in plan.launches]


@pytest.mark.parametrize(
    ("family", "base"),
    [
        ("gemm_register", REGISTER),
        ("gemm_staged", STAGED),
        ("gemm_dot", DOT),
        ("gemm_columns", COLUMNS),
        ("gemm_stream", STREAMED),
    ],
)
def test_every_parameter_changes_the_text(family: str, base: Any) -> None:
    elsewhere = {"share", "ahead"}  # test_sub_groups.py and test_register_tiles.py
    assert set(CHANGES[family]) == {field.name for field in fields(base)} - elsewhere
    problem = ODD if FAMILIES[family].serves(ODD) else replace(ODD, trans_b=False)
    before = texts(FAMILIES[family].plan(problem, base))
    for name, value in CHANGES[family].items():
        changed = replace(base, **{name: value})
        assert changed.why_not(problem, CPU) is None, (name, changed.why_not(problem, CPU))
        assert texts(FAMILIES[family].plan(problem, changed)) != before, name


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_one_program_serves_many_sizes(variant: Variant) -> None:
    # the loops of `gemm_tall` are written out for one small B, those of `gemm_long` for a small C
    free = FAMILIES[variant.family].Config.FREE
    m, n = (size if axis in free else 96 for axis, size in (("m", 192), ("n", 384)))
    sizes = (GemmProblem(96, 96, 96), GemmProblem(m, n, 96 if "m" in free else 192))
    first, second = (texts(variant.plan(problem)) for problem in sizes)
    assert first == second


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(REGISTER, vec_n=3), ODD, ("vec_n=3",)),
        (replace(REGISTER, item_n=6), ODD, ("item_n=6", "vec_n=4")),
        (replace(REGISTER, item_m=100), ODD, ("800", "512")),
        (replace(REGISTER, order="k"), ODD, ("'k'",)),
        (replace(REGISTER, split_k=40), ODD, ("split_k=40", "k=29", "split_k=15")),
        (replace(REGISTER, local_m=64, local_n=2), ODD, ("128", "64")),
        (replace(REGISTER, pack_b=True), GemmProblem(1, 8192, 8192), ("268435456", "134217728")),
        (replace(COLUMNS, unroll_k=3), ODD, ("unroll_k=3",)),
        (replace(COLUMNS, vec_n=8), GemmProblem(3, 5, 7), ("vec_n=8", "n=5")),
        (replace(COLUMNS, item_m=64), ODD, ("256", "128")),
        (replace(STREAMED, vec_n=3), ODD, ("vec_n=3",)),
        (replace(STREAMED, tile_n=18), ODD, ("vec_n=4", "tile_n=18")),
        (replace(COLUMNS, local_k=1024), ODD, ("2 x 1024 x 1", "2048", "64")),
        (replace(DOT, local_k=6), ODD, ("local_k=6",)),
        (replace(DOT, item_m=20, item_n=20), ODD, ("1600", "512")),
        (replace(DOT, local_k=64, local_n=16, item_m=4), ODD, ("64 x 16 x 1", "1024", "64")),
        (replace(STAGED, tile_m=20), ODD, ("tile_m=20", "4 x 2 = 8")),
        (replace(STAGED, tile_m=256, tile_n=256), ODD, ("4096", "256")),
        (replace(STAGED, unroll_k=3), ODD, ("unroll_k=3", "tile_k=8")),
        (replace(STAGED, pad_a=1), ODD, ("pad_a=1", "multiple of 2")),
        (replace(STAGED, pad_a=2, stage_a=False), ODD, ("pad_a=2", "stage_a=0")),
        (replace(STAGED, tile_n=64, tile_k=1, unroll_k=1, local_m=8, tile_m=8, vec_m=1), ODD,
         ("tile of a", "8 x tile_k=1", "32 work-items")),
        (replace(STAGED, tile_k=128), ODD, ("16384", "16384")),
        (replace(STAGED, stage_a=False, stage_b=False, prefetch=True), ODD, ("stage_a=stage_b=0",)),
        (replace(STAGED, split_k=9), ODD, ("split_k=9", "k=29", "split_k=4")),
    ],
)  # fmt: skip
def test_refusals_name_the_numbers(
    config: Any, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    limits = replace(SMALLEST, local_bytes=16 * KIB - 4)
    reason = config.why_not(problem, limits)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("variant", DEFAULTS, ids=label)
def test_defaults_serve_the_smallest_device(variant: Variant) -> None:
    for problem in (GemmProblem(size, size, size) for size in (1, 7, 128, 1000)):
        if FAMILIES[variant.family].serves(problem):
            assert variant.config.why_not(problem, SMALLEST) is None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problem=problems(300), variant=ANY_VARIANT)
def test_launches_are_whole(problem: GemmProblem, variant: Variant) -> None:
    """Local sizes divide global ones, every buffer is given, and C is covered."""
    family, config = variant.family, variant.config
    assume(config.why_not(problem, CPU) is None)
    plan = variant.plan(problem)
    known = set(problem.buffers) | {role for role, _ in plan.workspaces}
    for launch in plan.launches:
        assert f"void {launch.kernel}(" in launch.source
        pairs = zip(launch.global_size, launch.local_size, strict=True)
        assert all(size % local == 0 for size, local in pairs)
        assert {arg.role for arg in launch.args if isinstance(arg, Buffer)} <= known
        assert launch.source.count("\n\n\n") == 0
    product = next(launch for launch in plan.launches if launch.kernel == family)
    if family == "gemm_register":
        each = config.item_m * config.item_n * config.loop_m
    elif family == "gemm_stream":
        each = config.item_m * config.tile_n
    else:
        each = config.item_m * config.item_n / getattr(config, "local_k", 1)
    computed = prod(product.global_size) * each
    assert computed >= problem.batch * getattr(config, "split_k", 1) * problem.m * problem.n
    named = {a.name for p in plan.launches for a in p.args if isinstance(a, Scalar) and a.name}
    assert named == {f"{what}_{role}" for what in ("ld", "batch") for role in "abc"}


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("family", ["gemm_register", "gemm_staged", "gemm_dot"])
@pytest.mark.parametrize(
    "problem",
    [GemmProblem(1, 1, 1), GemmProblem(1, 2048, 512), GemmProblem(1024, 1024, 1024, trans_b=True)],
    ids=GemmProblem.key,
)
def test_seeds_are_valid_and_the_space_is_small(
    problem: GemmProblem, family: str, limits: Limits
) -> None:
    seeds = seeds_of(family, problem, limits)
    assert len(seeds) >= 1
    assert len(seeds) >= 3 or (family, limits.kind) == ("gemm_staged", "cpu")
    assert all(Variant.from_values(family, asdict(seed)).config == seed for seed in seeds)
    assert 1 <= len(space_of(family, problem, limits)) <= 100_000


def test_a_splitting_gpu_gets_enough_work_groups() -> None:
    config = seeds_of("gemm_staged", GemmProblem(16, 4096, 4096), GPU)[0]
    launch = FAMILIES["gemm_staged"].plan(GemmProblem(16, 4096, 4096), config).launches[0]
    assert prod(launch.global_size) // prod(launch.local_size) >= GPU.compute_units
