"""Products on matrix units whose last rows of tiles have their reduction cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_mma, gemm_tail, gemm_tma
from oclgen.families.parts.planes import PLANES
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Scalar
from oclgen.predictor import gpus
from oclgen.predictor.features import of_variant
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.space import space_of
from tests.oclgen import mma_emulated
from tests.oclgen.gemm_cases import MMA, WGMMA
from tests.oclgen.views_of_products import check_view

H200 = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma", "tma"}), declared_local_bytes=227 * KIB,
)  # fmt: skip
FAMILY_NAMES = ("gemm_mma", "gemm_tma")
BADLY = GemmProblem(3619, 1224, 6440, "bf16")
"""Tiles of 128x256 are 145: 29 rows of 5, of which 26 fill 130 of 132 compute units."""
FULLY = GemmProblem(4096, 4096, 4096, "bf16")
"""Tiles of 128x256 are 512, the last wave of which uses 116 units."""
SMALL = GemmProblem(200, 72, 100, "bf16")
TAILED = replace(MMA, tail_k=3, head_tiles=2)
TMA = replace(gemm_tma.DEFAULT, pack_a=False, pack_b=False)


def tailed_guesses(family: str, problem: GemmProblem, limits: Limits = H200) -> list[Any]:
    guesses = FAMILIES[family].guesses(problem, limits)
    return [one for one in guesses if one.tail_k > 1 and one.why_not(problem, limits) is None]


@pytest.mark.parametrize(
    ("problem", "config"),
    [
        (SMALL, TAILED),
        (replace(SMALL, n=70, bias="m", activation="relu"), TAILED),
        (replace(SMALL, m=163, residual=True, bias="n"), replace(TAILED, head_tiles=1, group_m=2)),
        (replace(SMALL, m=192, trans_a=True, bias="m", residual=True), TAILED),
        (
            replace(SMALL, m=195, trans_a=True, trans_b=True, k=101, bias="m"),
            replace(TAILED, head_tiles=1),
        ),
        (replace(SMALL, bias="m"), replace(TAILED, pack_a=True, pack_b=True)),
        (
            replace(SMALL, m=330, n=150, dtype="fp16", bias="m", residual=True),
            replace(WGMMA, tile_m=128, pending=1, tail_k=2, head_tiles=1, pack_a=True),
        ),
        (replace(SMALL, m=135, dtype="tf32", trans_b=True), replace(TAILED, tail_k=2)),
        # more planes than a text has as a constant
        (replace(SMALL, k=160, residual=True), replace(TAILED, tail_k=10, head_tiles=3)),
    ],
)
def test_head_and_tail_are_right(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    problem: GemmProblem,
    config: gemm_mma.Config,
) -> None:
    assert config.why_not(problem, H200) is None, config.why_not(problem, H200)
    mma_emulated.emulate(monkeypatch)
    measurement = Bench(device, problem).measure(gemm_mma.plan(problem, config), 0.0)
    assert measurement.ok, measurement.reason


@pytest.mark.parametrize("trans_a", [False, True])
def test_rows_of_views_lie_apart(
    device: Device, monkeypatch: pytest.MonkeyPatch, trans_a: bool
) -> None:
    mma_emulated.emulate(monkeypatch)
    problem = replace(SMALL, m=163, trans_a=trans_a)
    check_view(device, problem, Variant("gemm_mma", TAILED))


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32"])
def test_head_and_tail_are_right_by_bulk_copies(device: Device, dtype: str, trans_b: bool) -> None:
    if not {"wgmma", "tma"} <= device.limits.instructions:
        pytest.skip(f"{device.name} has no tensor memory accelerator")
    pack_b = dtype == "tf32" and not trans_b
    for pack_a in (False, True):
        config = replace(TMA, pack_a=pack_a, pack_b=pack_b, tail_k=3, head_tiles=2)
        problem = GemmProblem(
            200, 72, 400, dtype, trans_a=pack_a, trans_b=trans_b, bias="m", residual=True
        )
        assert config.why_not(problem, device.limits) is None
        measurement = Bench(device, problem).measure(gemm_tma.plan(problem, config), 0.0)
        assert measurement.ok, measurement.reason


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_planes_have_the_rows_of_the_tail_alone(family: str) -> None:
    base: Any = {"gemm_mma": MMA, "gemm_tma": TMA}[family]
    config = replace(base, tail_k=3, head_tiles=2)
    problem = replace(SMALL, n=128, k=400)
    plan, whole = (Variant(family, one).plan(problem) for one in (config, base))
    head, tail, added = plan.launches
    assert [one.kernel for one in plan.launches] == [family, family, "sum_planes"]
    assert head.source == whole.launches[0].source
    assert Scalar(128) in head.args
    assert (head.global_size[0], tail.global_size[0]) == (2 * 2 * 128, 2 * 2 * 128)
    assert (head.global_size[2], tail.global_size[2]) == (1, 3)
    assert all("first_row" in one.source and Scalar(128) in one.args for one in (tail, added))
    assert added.global_size[1] == 72
    assert dict(plan.workspaces)[PLANES] == 4 * 3 * 72 * 128


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(MMA, head_tiles=1), SMALL, ("head_tiles=1", "tail_k=1")),
        (replace(TAILED, split_k=2), SMALL, ("tail_k=3", "split_k=2")),
        (replace(TAILED, head_tiles=0), SMALL, ("1 to 3", "not 0")),
        (replace(TAILED, head_tiles=4), SMALL, ("1 to 3", "not 4")),
        (TAILED, replace(SMALL, batch=2), ("tail_k=3", "single product")),
        (TAILED, replace(SMALL, free=frozenset("m")), ("tail_k=3", "fixed sizes")),
        (TAILED, replace(SMALL, free=frozenset("n")), ("tail_k=3", "fixed sizes")),
        (replace(TAILED, tail_k=9), SMALL, ("tail_k=9", "k=100", "tail_k=7")),
    ],
)
def test_refusals_name_the_numbers(
    config: gemm_mma.Config, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    reason = config.why_not(problem, H200)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_bulk_copies_have_the_same_rules() -> None:
    """Rounds of 64 steps make two slices of 100."""
    config = replace(TMA, tail_k=2, head_tiles=2)
    assert config.why_not(SMALL, H200) is None
    changes: tuple[dict[str, Any], ...] = (
        {"tail_k": 3}, {"tail_k": 1}, {"head_tiles": 4}, {"split_k": 2},
    )  # fmt: skip
    for other in changes:
        assert "tail_k=" in (replace(config, **other).why_not(SMALL, H200) or ""), other


def test_a_tail_is_wanted_where_the_last_wave_is_nearly_empty() -> None:
    """15 tiles in 8 slices are one wave; slices have four rounds of 32 at least."""
    assert gemm_tail.wanted(BADLY, H200, 128, 256, 32) == (8, 26)
    assert gemm_tail.wanted(replace(BADLY, k=640), H200, 128, 256, 32).tail_k <= 5
    none = gemm_tail.Tail()
    for other in (FULLY, replace(BADLY, batch=2), replace(BADLY, free=frozenset("m"))):
        assert gemm_tail.wanted(other, H200, 128, 256, 32) == none
    assert gemm_tail.wanted(replace(BADLY, m=3300), H200, 128, 256, 32) == none
    assert gemm_tail.wanted(replace(BADLY, m=1000), H200, 128, 256, 32) == none


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_tails_are_guessed_searched_and_kept(family: str) -> None:
    guessed = tailed_guesses(family, BADLY)
    assert guessed
    assert not tailed_guesses(family, FULLY)
    narrow = replace(BADLY, k=1024)
    assert all(one in space_of(family, BADLY, H200) for one in guessed[:1])
    assert guessed[0].with_best_split(BADLY, H200) == guessed[0]
    assert guessed[0].with_best_split(FULLY, H200).tail_k == 1
    assert guessed[0].with_best_split(narrow, H200).tail_k <= guessed[0].tail_k


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_head_and_tail_are_estimated_as_what_they_do(family: str) -> None:
    def estimated_ms(problem: GemmProblem, config: Any) -> float:
        return gpus.least_ms(of_variant(problem, Variant(family, config), H200))

    def whole(config: Any) -> Any:
        return replace(config, tail_k=1, head_tiles=0)

    tailed = tailed_guesses(family, BADLY)[0]
    assert estimated_ms(BADLY, tailed) < 0.8 * estimated_ms(BADLY, whole(tailed))
    full = replace(tailed, head_tiles=FULLY.m // tailed.tile_m * 3 // 4)
    assert estimated_ms(FULLY, full) > estimated_ms(FULLY, whole(full))
    head = replace(BADLY, m=tailed.head_tiles * tailed.tile_m)
    assert estimated_ms(BADLY, tailed) > estimated_ms(head, whole(tailed))
