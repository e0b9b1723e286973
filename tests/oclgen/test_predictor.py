"""The model that ranks unmeasured variants: its trees, its files, and that it fits its tables."""

from __future__ import annotations

import io
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np
import pytest

from benchmarks.choice.cases import Case, cases_of_rows
from benchmarks.choice.evaluate import TABLES, mean_quality
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_mma, gemm_pairs
from oclgen.limits import Limits
from oclgen.opencl.probe import TILES as PRODUCT_OF_TILES
from oclgen.predictor import model as models
from oclgen.predictor.features import EVEN, of_problem, of_variant
from oclgen.predictor.forest import Forest
from oclgen.predictor.model import MISSING, Model, least_ms, predict, rates_of, shipped
from oclgen.predictor.products import product_of
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from tests.guessed import valid_guesses
from tuned_db.choosing.option import guesses
from tuned_db.files.table import read

GPU = Limits("gpu", 48_000, 1024, (1024, 1024, 64), 1 << 34, 1 << 36, 132, 1)
BF16_LAYER = ConvProblem(2, 64, 14, 14, 96, 5, 5, 2, 2, 2, 2, dtype="bf16")
PROBLEMS: list[Problem] = [
    GemmProblem(1000, 777, 333),
    GemmProblem(1, 4096, 4096, trans_b=True),
    ConvProblem(8, 64, 28, 28, 64, 3, 3, pad_h=1, pad_w=1),
    ConvProblem(8, 64, 28, 28, 64, 3, 3, 2, 2, 1, 1, direction="bwd_data", layout="nhwc"),
    ConvProblem(8, 64, 28, 28, 64, 5, 5, pad_h=2, pad_w=2, groups=64, direction="bwd_weights"),
]


def stumps() -> Forest:
    """Two trees: x0 <= 1 ? (x1 <= 5 ? 1 : 2) : 4, and the constant 10."""
    return Forest(
        feature=np.array([0, 1, 0, 0, 0, 0], np.int16),
        threshold=np.array([1, 5, 0, 0, 0, 0], np.float32),
        left=np.array([1, 2, 2, 3, 4, 5], np.int32),
        right=np.array([4, 3, 2, 3, 4, 5], np.int32),
        value=np.array([0, 0, 1, 2, 4, 10], np.float32),
        roots=np.array([0, 5], np.int32),
        base=0.5,
        depth=2,
    )


def test_trees_add_up() -> None:
    rows = np.array([[1, 5], [1, 6], [2, 0]], np.float32)
    assert stumps().predict(rows).tolist() == [11.5, 12.5, 14.5]


def test_a_file_holds_the_whole_model() -> None:
    made = Model(("x", "y"), ("toy",), stumps())
    file = io.BytesIO()
    made.save(file)
    file.seek(0)
    read = Model.load(file)
    assert (read.names, read.families) == (made.names, made.families)
    assert read.row(Variant("toy", None), {"y": 2.0}) == [MISSING, 2.0, 1.0]
    assert read.excess([[1, 6, 0]]).tolist() == made.excess([[1, 6, 0]]).tolist() == [12.5]


def test_a_file_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    Model((), (), stumps()).save(file)
    file.seek(0)
    monkeypatch.setattr(models, "VERSION", 2)
    with pytest.raises(ValueError, match="a model of version 1; this reads 2"):
        Model.load(file)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.key())
def test_every_family_has_features_and_a_prediction(problem: Problem) -> None:
    variants = list(valid_guesses(problem, GPU))
    times = predict(problem, variants, GPU)
    assert times is not None
    assert len(times) == len(variants) > 2
    assert all(isfinite(ms) and ms > 0 for ms in times)
    model = shipped("gpu")
    assert model is not None
    for variant in variants:
        known = {*of_problem(problem, GPU), *of_variant(problem, variant, GPU)}
        assert len(known & set(model.names)) > 20


def test_what_cannot_be_planned_takes_for_ever() -> None:
    odd = Variant("gemm_register", None)
    assert predict(PROBLEMS[0], [odd], GPU) == [inf]


def test_the_product_of_a_convolution_is_its_implicit_gemm() -> None:
    layer = ConvProblem(8, 64, 28, 28, 32, 3, 3, pad_h=1, pad_w=1)
    m, n, k, batch = product_of(layer)
    assert 2 * m * n * k * batch == layer.flops


def of_tables(kind: str) -> list[Case]:
    """Return the cases of all tables of a kind of devices: each variant is planned for them."""
    tables = ([row for row in read(path) if row[0].limits.kind == kind] for path in TABLES)
    return [case for rows in tables for case in cases_of_rows(rows)]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_shipped_model_is_of_the_tables(kind: str) -> None:
    cases, model = of_tables(kind), shipped(kind)
    assert cases
    assert model is not None
    assert mean_quality(model, cases) > 0.93


def test_uneven_rows_count_as_even_where_a_family_copies_them_as_others() -> None:
    """A variant that packs its operands, or of another family, is told that rows are uneven."""
    uneven = GemmProblem(457, 873, 250, "bf16", trans_b=True)
    copied = Variant("gemm_mma", replace(gemm_mma.DEFAULT, pack_a=False, pack_b=False))
    packed = Variant("gemm_mma", replace(gemm_mma.DEFAULT, pack_a=True, pack_b=True))
    told = of_problem(uneven, GPU) | of_variant(uneven, copied, GPU)
    assert told["rows of a lie apart"] == told["rows of b lie apart"] == EVEN
    assert told["k has an edge"] == 0.0
    told = of_problem(uneven, GPU) | of_variant(uneven, packed, GPU)
    assert told["rows of a lie apart"] == told["rows of b lie apart"] == 1.0
    assert told["k has an edge"] == 1.0


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (GemmProblem(512, 705, 84, dtype="bf16"), "gemm_pairs"),
        (GemmProblem(40, 1326, 1475, trans_a=True, trans_b=True, dtype="bf16"), "gemm_pairs"),
        (GemmProblem(512, 705, 84), "gemm_register"),
        (GemmProblem(2, 230, 364, trans_a=True, dtype="bf16"), "gemm_register"),
        (BF16_LAYER, "conv_pairs"),
        (replace(BF16_LAYER, direction="bwd_data", layout="nhwc"), "conv_pairs"),
        (replace(BF16_LAYER, direction="bwd_weights", layout="nhwc"), "conv_pairs_weights"),
        (replace(BF16_LAYER, dtype="fp32"), "conv_register"),
    ],
)
def test_pairs_of_bf16_are_counted_by_their_instruction(problem: Problem, expected: str) -> None:
    """No table holds them: their registers and their rate are what the model knows of them."""
    limits = Limits(
        "cpu", 32 * 1024, 4096, (4096,) * 3, 1 << 34, 1 << 36, 2, 16,
        instructions=frozenset({gemm_pairs.INSTRUCTION}),
    )  # fmt: skip
    offered = list(guesses(problem, limits))
    times = predict(problem, offered, limits)
    assert times is not None
    assert offered[int(np.argmin(times))].family == expected


def test_beside_tiles_pairs_are_counted_as_slow_as_fp32() -> None:
    """On Sapphire Rapids a pair takes as long as two numbers, on Zen 5 as long as one."""
    problem = GemmProblem(512, 512, 512, dtype="bf16")
    variant = Variant("gemm_pairs", gemm_pairs.DEFAULT)
    plain = replace(GPU, kind="cpu", native_float_width=16, compute_units=1)
    tiled = replace(plain, instructions=frozenset({PRODUCT_OF_TILES}))
    counted = [_least_ms(problem, variant, limits) for limits in (plain, tiled)]
    assert counted[1] > 1.5 * counted[0]


def test_copies_of_operands_are_counted() -> None:
    problem = GemmProblem(512, 512, 512)
    limits = replace(GPU, kind="cpu", native_float_width=16, compute_units=1)
    config = replace(FAMILIES["gemm_register"].DEFAULT, pack_a=False, pack_b=False)
    counted = [
        _least_ms(problem, Variant("gemm_register", one), limits)
        for one in (config, replace(config, pack_b=True))
    ]
    copied = 1e-6 * 4 * problem.n * problem.k / rates_of(limits)[1]
    assert counted[1] - counted[0] == pytest.approx(copied, rel=0.01)


def _least_ms(problem: Problem, variant: Variant, limits: Limits) -> float:
    features = of_variant(problem, variant, limits)
    return least_ms(problem, [variant], [features], limits)[0]


def test_without_a_model_nothing_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "shipped", lambda kind: None)
    assert predict(PROBLEMS[0], [], GPU) is None


@pytest.mark.parametrize("kind", ["cpu", "gpu", "other"])
def test_a_model_comes_with_the_package_for_every_kind_of_device(kind: Any) -> None:
    device = replace(GPU, kind=kind, native_float_width=8)
    times = predict(PROBLEMS[0], [next(valid_guesses(PROBLEMS[0], device))], device)
    assert times is not None
    assert 0 < times[0] < inf
