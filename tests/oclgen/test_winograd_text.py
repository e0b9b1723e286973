"""What the Winograd families say and generate, where no device is needed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES, families_for, is_transforming
from oclgen.families.gemm import gemm_register
from oclgen.families.winograd.winograd_blocked import phases
from oclgen.families.winograd.winograd_geometry import geometry
from oclgen.families.winograd.winograd_inputs import pixels_group
from oclgen.limits import KIB, Limits
from oclgen.plan import Buffer, Plan
from oclgen.problem import DIRECTIONS, ConvProblem, Direction
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.winograd_cases import (
    BASES,
    BLOCKED,
    CONFIGS,
    FUSED,
    REGISTER,
    SHAPES,
    STAGED,
    STAGED_PRODUCT,
    WEIGHTS,
    family_of,
    label,
    problems,
)

SMALLEST = Limits()
CPU = Limits("cpu", 256 * KIB, 8192, (8192,) * 3, 2**30, 2**33, 2, 16)
GPU = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1)
ODD = ConvProblem(2, 20, 15, 13, 24, 3, 3, pad_h=1, pad_w=1)
LAYER = ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1)

CHANGES: dict[str, dict[str, Any]] = {
    "winograd_blocked": {
        "out_tile": 2, "tile_rows": 3, "item_t": 4, "item_k": 4, "vec_k": 2, "unroll_c": 2,
        "workers": 3, "split_k": 2, "filters_inside": True, "taps": 3,
    },
    "winograd_fused": {
        "out_tile": 2, "tile_t": 16, "tile_k": 16, "tile_c": 4, "item_t": 4, "item_k": 4,
        "vec": 2, "stage_u": False, "pad_v": 0, "pad_u": 4, "pad_m": 0, "pass_k": 2,
    },
    "winograd_staged": {
        "out_tile": 2, "vec_t": 4, "local_t": 8, "vec_k": 2, "local_k": 4,
        "gemm": STAGED_PRODUCT, "taps": 3,
    },
    "winograd_weights": {
        "out_tile": 2, "slice_t": 32, "local_t": 8, "local_c": 4, "gemm": REGISTER,
        "taps": 3,
    },
}  # fmt: skip
GRADIENT = replace(ODD, direction="bwd_weights")


def texts(plan: Plan) -> list[str]:
    return [launch.source for launch in plan.launches]


@pytest.mark.parametrize("base", [*BASES.values(), WEIGHTS], ids=family_of)
def test_every_parameter_changes_the_text(base: Any) -> None:
    family = FAMILIES[family_of(base)]
    kernel = 3 if base is FUSED else 5
    direction: Direction = "bwd_weights" if base is WEIGHTS else "fwd"
    problem = replace(ODD, kernel_h=kernel, kernel_w=kernel, direction=direction)
    assert set(CHANGES[family.NAME]) == {field.name for field in fields(base)}
    before = texts(family.plan(problem, base))
    for name, value in CHANGES[family.NAME].items():
        changed = replace(base, **{name: value})
        assert changed.why_not(problem, CPU) is None, (name, changed.why_not(problem, CPU))
        assert texts(family.plan(problem, changed)) != before, name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slice_t": 24}, ("slice_t=24", "16")),
        ({"slice_t": 512}, ("slice_t=512", "32")),
        ({"local_c": 9999}, ("local_c=9999", "8192")),
        ({"out_tile": 3}, ("out_tile=3", "2, 4, 6")),
    ],
)
def test_refusals_of_gradients(change: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = replace(WEIGHTS, **change).why_not(GRADIENT, CPU)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_weights"])
def test_gpus_begin_with_winograd(direction: Any) -> None:
    """An untuned problem gets it first, and a search tries it first."""
    problem = replace(LAYER, direction=direction)
    names = [f.NAME for f in families_for(problem) if f.DEFAULT.why_not(problem, GPU) is None]
    assert names[0] == ("winograd_weights" if direction == "bwd_weights" else "winograd_staged")
    assert {seed.out_tile for seed in seeds_of(names[0], problem, GPU)[:2]} == {4, 6}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_channels_last_has_a_family_for_cpus_and_one_that_reads_neighbours(direction: Any) -> None:
    """Work-items of a warp take its width of channels, in the transforms on both sides."""
    problem = replace(LAYER, in_channels=96, direction=direction, layout="nhwc")
    transforming = {one.NAME: one for one in families_for(problem) if is_transforming(one.NAME)}
    of_weights = direction == "bwd_weights"
    blocked = transforming.pop("winograd_blocked_weights" if of_weights else "winograd_blocked")
    assert blocked.DEFAULT.why_not(problem, CPU) is None
    assert len(space_of(blocked.NAME, problem, GPU)) == 0
    [family] = transforming.values()
    assert "CPUs" in str(family.DEFAULT.why_not(problem, CPU))
    assert len(space_of(family.NAME, problem, CPU)) == 0
    assert len(space_of(family.NAME, problem, GPU)) > 10
    seed = seeds_of(family.NAME, problem, GPU)[0]
    launches = [x for x in family.plan(problem, seed).launches if x.kernel.endswith("put")]
    assert [launch.local_size for launch in launches] == [(32, 4), (32, 4)]
    reason = str(replace(STAGED, vec_t=8).why_not(replace(ODD, layout="nhwc"), GPU))
    assert "vec_t=8" in reason
    assert "20 channels" in reason
    odd = pixels_group(33, 128), pixels_group(3, 128), pixels_group(64, 8)
    assert odd == ((17, 7), (3, 42), (8, 1))


@pytest.mark.parametrize(
    ("config", "limits", "words"),
    [
        (replace(BLOCKED, out_tile=3), CPU, ("out_tile=3", "2, 4, 6")),
        (replace(STAGED, out_tile=3), CPU, ("out_tile=3", "2, 4, 6")),
        (replace(BLOCKED, vec_k=3), CPU, ("vec_k=3",)),
        (replace(BLOCKED, item_k=6), CPU, ("item_k=6", "vec_k=4")),
        (replace(BLOCKED, item_t=80), CPU, ("640", "512")),
        (replace(BLOCKED, split_k=4), CPU, ("split_k=4", "3 panels")),
        (BLOCKED, GPU, ("1 work-item", "winograd_fused")),
        (BLOCKED, replace(CPU, max_alloc_bytes=KIB), ("scratch", "1024 B")),
        (replace(FUSED, tile_t=12), GPU, ("tile_t=12", "item_t=8")),
        (replace(FUSED, item_t=32, tile_t=32), GPU, ("256", "160")),
        (replace(FUSED, tile_t=64, tile_k=64), GPU, ("2304", "1024")),
        (replace(FUSED, tile_c=64), GPU, ("184320", "48128")),
        (replace(FUSED, stage_u=False, pad_u=4), GPU, ("pad_u=4",)),
        (replace(FUSED, vec=3), GPU, ("vec=3",)),
        (replace(STAGED, vec_k=16), CPU, ("vec_k=16", "24 filters")),
        (replace(STAGED, local_t=2048), GPU, ("winograd_input", "2048 x 1", "1024")),
        (replace(STAGED, gemm="gemm_magic:a=1"), CPU, ("gemm_magic", "gemm_staged")),
        (replace(STAGED, gemm="gemm_register:a=1"), CPU, ("a=1", "item_m")),
        (replace(STAGED, gemm=STAGED.gemm.replace("item_n=4", "item_n=6")), CPU, ("item_n=6",)),
        (STAGED, replace(CPU, global_bytes=KIB), ("1024 B", "1/2")),
    ],
)  # fmt: skip
def test_refusals_name_the_numbers(config: Any, limits: Limits, words: tuple[str, ...]) -> None:
    reason = config.why_not(ODD, limits)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("family", BASES)
def test_defaults_serve_the_smallest_device(family: str) -> None:
    for problem in (*SHAPES, ODD, LAYER):
        assert FAMILIES[family].DEFAULT.why_not(problem, SMALLEST) is None


def test_they_serve_filters_of_two_rows_and_more() -> None:
    others: list[dict[str, Any]] = [
        {"kernel_h": 1}, {"stride_w": 2}, {"dilation_h": 2}, {"groups": 4}, {"pad_h": 3},
        {"direction": "bwd_weights"},
    ]  # fmt: skip
    for kernel in (1, 2, 3, 7, 8, 13):
        wide = replace(ODD, kernel_h=kernel, kernel_w=kernel, pad_h=0, pad_w=0)
        for family in ("winograd_blocked", "winograd_staged"):
            assert FAMILIES[family].serves(wide) == (kernel >= 2)
            assert FAMILIES[family].serves(replace(wide, kernel_w=5)) == (kernel >= 2)
        assert FAMILIES["winograd_fused"].serves(wide) == (kernel == 3)
    for family in BASES:
        assert FAMILIES[family].serves(ODD)
        assert not any(FAMILIES[family].serves(replace(ODD, **change)) for change in others)


@pytest.mark.parametrize(("kernel", "out_tile", "most"), [(3, 6, 512), (5, 4, 512), (7, 2, 256)])
def test_tiles_of_64_points_sum_no_more_than_their_errors_allow(
    kernel: int, out_tile: int, most: int
) -> None:
    layer = replace(ODD, kernel_h=kernel, kernel_w=kernel)
    full, over = (replace(layer, in_channels=count) for count in (most, most + 1))
    staged = replace(STAGED, out_tile=out_tile)
    assert staged.why_not(full, CPU) is None
    reason = staged.why_not(over, CPU)
    assert reason is not None
    assert str(most + 1) in reason
    halves = replace(staged, gemm=staged.gemm.replace("split_k=1", "split_k=2"))
    assert halves.why_not(over, CPU) is None
    summed = [
        FAMILIES["winograd_blocked"].plan(one, replace(BLOCKED, out_tile=out_tile)).launches[-1]
        for one in (full, over)
    ]
    added = f"min({most // 2 + 1}, CHANNELS - c)"
    assert [added in launch.source for launch in summed] == [False, True]
    large = replace(
        layer, batch=64, height=64, width=64, in_channels=64, out_channels=64,
        direction="bwd_weights",
    )  # fmt: skip
    guessed = list(FAMILIES["winograd_weights"].guesses(large, GPU))
    assert all(one.slice_t <= most for one in guessed if one.out_tile == out_tile)
    assert any(one.out_tile == out_tile for one in guessed)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_large_filters_are_cut_where_blocks_multiply_less(direction: Direction) -> None:
    """A product between transforms has the channels of all blocks, in slices that keep digits."""
    for kernel, cut in ((3, False), (5, False), (7, True), (9, True), (11, True)):
        layer = replace(LAYER, kernel_h=kernel, kernel_w=kernel, direction=direction)
        name = "winograd_weights" if direction == "bwd_weights" else "winograd_staged"
        best = next(one for one in FAMILIES[name].guesses(layer, GPU))
        assert best.why_not(layer, GPU) is None
        assert (best.taps > 0) == cut
        geo = best.geometry(layer)
        assert geo.summed == 64 * (-(-kernel // (best.taps or kernel))) ** 2
        assert best.multiplied(layer) < 1 / 3
        on_cpu = replace(layer, layout="nhwc" if direction == "bwd_weights" else "nchw")
        name = "winograd_blocked_weights" if direction == "bwd_weights" else "winograd_blocked"
        best = next(one for one in FAMILIES[name].guesses(on_cpu, CPU))
        assert best.why_not(on_cpu, CPU) is None
        assert (best.taps > 0) == cut


def test_products_of_points_are_copied_ahead_where_a_gpu_can() -> None:
    """Where tiles of `cp.async` fit the product, the first guess and the space have them."""
    able = replace(GPU, instructions=frozenset({"cp_async"}))
    for direction in DIRECTIONS:
        layer = replace(LAYER, out_channels=128, in_channels=128, direction=direction)
        name = "winograd_weights" if direction == "bwd_weights" else "winograd_staged"
        firsts = [next(iter(FAMILIES[name].guesses(layer, one))) for one in (GPU, able)]
        assert [one.gemm.partition(":")[0] for one in firsts] == ["gemm_staged", "gemm_async"]
        assert "cp_async" in str(firsts[1].why_not(layer, GPU))
        assert any("gemm_async" in str(one.gemm) for one in seeds_of(name, layer, able))
        assert len(space_of(name, layer, able)) > len(space_of(name, layer, GPU))


@pytest.mark.parametrize(
    ("sides", "taps", "words"),
    [
        ((9, 9), 0, ("blocks of 9 taps",)),
        ((9, 9), 9, ("taps=9", "9 rows")),
        ((9, 9), 2, ("kernels of 2", "5, 7")),
        ((3, 5), 0, ("3x5", "no square")),
        ((3, 5), 1, ("taps=1",)),
    ],
)
def test_refusals_of_blocks(sides: tuple[int, int], taps: int, words: tuple[str, ...]) -> None:
    problem = replace(ODD, kernel_h=sides[0], kernel_w=sides[1])
    for base in (BLOCKED, STAGED):
        reason = replace(base, taps=taps).why_not(problem, CPU)
        assert reason is not None
        assert all(word in reason for word in words), reason


def test_backward_data_swaps_roles_and_padding() -> None:
    geo = geometry(replace(ODD, pad_h=0, direction="bwd_data"), 4)
    assert (geo.source, geo.target, geo.channels, geo.filters) == ("y", "x", 24, 20)
    assert (geo.in_h, geo.out_h, geo.pad_h, geo.pad_w) == (13, 15, 2, 1)


def test_a_product_survives_its_text() -> None:
    text = Variant("gemm_register", gemm_register.DEFAULT).to_text()
    assert Variant.from_text(text) == Variant("gemm_register", gemm_register.DEFAULT)


@pytest.mark.parametrize("lanes", [1, 2, 4, 16])
@pytest.mark.parametrize("out_tile", [2, 4, 6])
def test_phases_pick_every_pixel_once(out_tile: int, lanes: int) -> None:
    statements, names = phases(geometry(ODD, out_tile), lanes)
    assert len(names) == out_tile + 2
    assert len(set(names)) == len(names)
    assert len(statements) == len(set(statements))


@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)  # fmt: skip
@given(problem=problems(), config=st.one_of(*CONFIGS.values()))
def test_launches_are_whole(problem: ConvProblem, config: Any) -> None:
    """Local sizes divide global ones, and every buffer is the problem's or a workspace."""
    assume(config.why_not(problem, CPU) is None)
    plan = FAMILIES[family_of(config)].plan(problem, config)
    known = set(problem.buffers) | {role for role, _ in plan.workspaces}
    for launch in plan.launches:
        assert f"void {launch.kernel}(" in launch.source
        pairs = zip(launch.global_size, launch.local_size, strict=True)
        assert all(size % local == 0 for size, local in pairs)
        assert {arg.role for arg in launch.args if isinstance(arg, Buffer)} <= known


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("problem", [LAYER, replace(LAYER, direction="bwd_data")], ids=label)
def test_seeds_are_valid_and_the_space_is_small(problem: ConvProblem, limits: Limits) -> None:
    for family in BASES:
        if family == "winograd_blocked" and limits is GPU:
            continue
        seeds = seeds_of(family, problem, limits)
        assert FAMILIES[family].DEFAULT in seeds
        assert all(seed.why_not(problem, limits) is None for seed in seeds)
        assert 1 <= len(space_of(family, problem, limits)) <= 100_000
    best = "winograd_blocked" if limits is CPU else "winograd_fused"
    assert len(seeds_of(best, problem, limits)) > 4
