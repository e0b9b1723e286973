"""What the convolution families say and generate, where no device is needed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families import FAMILIES, families_for, valid_configs
from oclgen.families.conv.conv_as_gemm import lowered
from oclgen.families.conv.correlation import Axis, correlations, windows
from oclgen.limits import Limits
from oclgen.plan import Buffer, Plan
from oclgen.problem import ConvProblem, Direction, GemmProblem, Memory
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import (
    DEPTHWISE_SHAPES,
    EVERY_WAY,
    OWN,
    SHAPES,
    VARIED,
    VARIED_PIXELS,
    label,
    pairs,
    varied,
)

CPU = Limits("cpu", 1 << 18, 4096, (4096,) * 3, 1 << 33, 1 << 34, 2, 16)
GPU = Limits("gpu", 47 * 1024, 1024, (1024, 1024, 64), 1 << 34, 1 << 37, 132, 1)
LAYER = ConvProblem(8, 64, 56, 56, 128, 3, 3, 2, 2, 1, 1)
POINTWISE = ConvProblem(8, 64, 56, 56, 128, 1, 1, bias=True, activation="relu")
DEPTHWISE = ConvProblem(8, 96, 112, 112, 96, 3, 3, 2, 2, 1, 1, groups=96)
NARROW = ConvProblem(8, 3, 112, 112, 32, 3, 3, 2, 2, 1, 1)


def of(name: str, problem: ConvProblem = LAYER) -> ConvProblem:
    return replace(problem, direction="bwd_weights") if name.endswith("_weights") else problem


def problem_of(name: str) -> ConvProblem:
    if "narrow" in name:
        return of(name, NARROW)
    return of(name, DEPTHWISE if name.startswith("depthwise") else LAYER)


def texts(plan: Plan) -> list[str]:
    return [launch.source for launch in plan.launches]


@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, "nchw") for name in VARIED), *((name, "nhwc") for name in VARIED_PIXELS)],
)
def test_every_parameter_changes_the_text(name: str, layout: Memory) -> None:
    problem, base = replace(problem_of(name), layout=layout), FAMILIES[name].DEFAULT
    of_any = {*VARIED[name], *VARIED_PIXELS.get(name, ())}
    assert of_any == {field.name for field in fields(base)}
    before = texts(FAMILIES[name].plan(problem, base))
    for parameter, value in varied(name, layout).items():
        changed = replace(base, **{parameter: value})
        assert texts(FAMILIES[name].plan(problem, changed)) != before, parameter


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("conv_register", {"vec": 3}, ("vec=3", "16")),
        ("conv_register", {"item_x": 14, "vecs": 4}, ("item_x=14", "56", "40")),
        ("conv_register", {"images": 9, "item_x": 4}, ("images=9", "batch of 8")),
        ("conv_register", {"item_x": 29}, ("item_x=29", "28")),
        ("conv_register_weights", {"item_c": 7, "vecs": 2}, ("item_c=7", "42", "40")),
        ("conv_register_weights", {"split": 999}, ("split=999", "224")),
        ("conv_narrow_weights", {"local_k": 4096}, ("59 registers", "8192")),
        ("conv_narrow_weights", {"split": 0}, ("split=0",)),
        ("conv_narrow_weights", {"item_m": 32}, ("item_m=32", "329", "224")),
        ("conv_narrow_weights", {"patch_h": 64}, ("patch_h=64", "437", "224")),
        ("conv_narrow_weights", {"stages": 2}, ("cp_async",)),
        ("conv_gemm", {"tile_m": 20}, ("tile_m=20", "32")),
        ("conv_gemm", {"tile_k": 3, "unroll_k": 2, "taps_outer": True}, ("tile_k=3",)),
        ("conv_gemm", {"local_m": 16, "local_n": 32, "tile_n": 128}, ("512", "256")),
        (
            "conv_gemm",
            {"tile_m": 256, "tile_n": 64, "tile_k": 256, "local_n": 16},
            ("327680", "262144"),
        ),
        ("conv_gemm", {"split_k": 1000}, ("split_k=1000", "72")),
        ("conv_gemm", {"buffers": 3}, ("buffers=3",)),
        ("conv_gemm", {"pad": 2}, ("pad=2", "vec_m=4")),
        ("conv_gemm", {"tile_n": 96}, ("tile_n=96", "64")),
        ("depthwise", {"local_size": 5000}, ("5000 x 1", "4096")),
        ("depthwise", {"patch_h": 16, "patch_w": 16}, ("patch_h=16", "1089", "256")),
        ("depthwise", {"vec_c": 2}, ("vec_c=2", "nchw", "use 1")),
        ("depthwise_weights", {"split": 65000}, ("split=65000", "6272")),
        ("depthwise_weights", {"patch_h": 16, "patch_w": 16}, ("patch_w=16", "1345", "256")),
    ],
)
def test_refusals_name_the_numbers(
    name: str, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    limits = replace(CPU, max_work_group=256) if "local_m" in change else CPU
    reason = replace(FAMILIES[name].DEFAULT, **change).why_not(problem_of(name), limits)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("depthwise", {"local_size": 5008}, ("16 x 313", "4096")),
        ("depthwise", {"local_c": 3}, ("local_c=3", "local_size=32")),
        ("depthwise", {"local_c": 1, "rounds": 2}, ("rounds=2", "local_c=1")),
        ("depthwise", {"patch_h": 64, "patch_w": 64}, ("patch_h=64", "16641", "8192")),
        ("depthwise", {"vec_c": 3}, ("vec_c=3", "96 channels")),
        ("depthwise", {"vec": 1}, ("vec=1", "nhwc", "use 4")),
        ("depthwise", {"guarded": False}, ("guarded=False", "nhwc", "use True")),
        ("depthwise_weights", {"split": 65000}, ("split=65000", "6272")),
        ("depthwise_weights", {"local_size": 8192, "local_c": 1}, ("8192", "4096")),
        ("depthwise_weights", {"local_c": 3}, ("local_c=3", "local_size=64")),
        ("depthwise_weights", {"vec_c": 16, "patch_w": 32}, ("vec_c=16", "11552", "8192")),
    ],
)
def test_refusals_of_images_in_channels_last_name_the_numbers(
    name: str, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    problem = replace(problem_of(name), layout="nhwc")
    reason = replace(FAMILIES[name].DEFAULT, **change).why_not(problem, CPU)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_vectors_of_channels_may_overlap_but_not_in_blocks_of_them() -> None:
    layer = replace(problem_of("depthwise"), layout="nhwc")
    problem = replace(layer, in_channels=90, out_channels=90, groups=90)
    config = replace(FAMILIES["depthwise"].DEFAULT, vec_c=8, local_c=1)
    assert config.why_not(problem, CPU) is None
    assert "local_c=16" in str(replace(config, local_c=16).why_not(problem, CPU))
    few = replace(layer, in_channels=4, out_channels=4, groups=4)
    assert "4 channels" in str(config.why_not(few, CPU))
    assert "fp16" in str(config.why_not(replace(problem, dtype="fp16"), CPU))


def test_phases_of_a_depthwise_gradient_are_one_launch() -> None:
    family, problem = FAMILIES["depthwise"], replace(DEPTHWISE, direction="bwd_data")
    [launch] = family.plan(problem, family.DEFAULT).launches
    # 1 x 4 results of four phases: two rows of eight neighbours
    assert launch.global_size[0] == 8 * 96 * 112 * 112 // 16
    assert launch.source.count("ALIGNED_STORE4(stored") == 2
    reason = replace(family.DEFAULT, patch_h=8, patch_w=12).why_not(problem, CPU)
    assert reason is not None
    assert all(word in reason for word in ("patch_h=8", "patch_w=12", "384", "256")), reason


@pytest.mark.parametrize(("name", "problem"), pairs(EVERY_WAY), ids=label)
def test_the_default_serves_the_smallest_device(name: str, problem: ConvProblem) -> None:
    assert FAMILIES[name].DEFAULT.why_not(problem, Limits()) is None


@pytest.mark.parametrize("name", ["conv_register", "conv_register_weights"])
def test_gpus_are_sent_elsewhere(name: str) -> None:
    reason = FAMILIES[name].DEFAULT.why_not(problem_of(name), GPU)
    assert reason is not None
    assert "conv_gemm" in reason


def test_every_convolution_is_served() -> None:
    wide = ConvProblem(1, 1, 40, 40, 1, 31, 31, 7, 5, 3, 2)
    for problem in (*EVERY_WAY, wide):
        assert "conv_gemm" in [family.NAME for family in families_for(problem)]
    found = ["conv_register", "conv_gemm", "conv_async"]
    assert [family.NAME for family in families_for(wide)] == found


LONG = ConvProblem(2, 8, 1, 300, 24, 1, 127, 1, 1, 0, 63, groups=2)


@pytest.mark.parametrize(
    ("change", "is_served"),
    [
        ({}, True),
        ({"direction": "bwd_data"}, True),
        ({"direction": "bwd_data", "stride_w": 16}, True),
        # each phase of the stride would have a text
        ({"direction": "bwd_data", "stride_w": 17}, False),
        # so would results of which each reaches other taps
        ({"width": 4000, "kernel_w": 4001, "pad_w": 2000}, False),
        ({"width": 4000, "kernel_w": 4000, "pad_w": 0}, True),
    ],
)
def test_taps_that_are_too_many_to_be_written_out_are_loops(
    change: dict[str, Any], is_served: bool
) -> None:
    family, problem = FAMILIES["conv_register"], replace(LONG, **change)
    assert family.serves(problem) == is_served
    if not is_served:
        return
    assert family.DEFAULT.why_not(problem, Limits()) is None
    guesses = family.guesses(problem, CPU)
    # a phase of a stride has few taps
    assert {guess.taps_outer for guess in guesses} == {problem.stride_w > 1}


@pytest.mark.parametrize("step", [-3, -1, 2])
@pytest.mark.parametrize("origin", [-7, 0, 5])
def test_a_result_reaches_the_taps_inside(step: int, origin: int) -> None:
    axis = Axis(9, read=6, written=9, taps=5, step=2, tap_step=step, origin=origin)
    for q in range(axis.results):
        places = [q * 2 + tap * step + origin for tap in range(5)]
        inside = [tap for tap, place in enumerate(places) if 0 <= place < 6]
        assert [*axis.reach(q)] == inside


DEFAULT_ON_CPUS = {"conv_gemm", "conv_as_gemm_staged"}
"""Families that stage through local memory: on a CPU their space is the default alone."""


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "problem", [LAYER, POINTWISE, DEPTHWISE, replace(DEPTHWISE, layout="nhwc")], ids=label
)
def test_spaces_and_seeds(problem: ConvProblem, limits: Limits) -> None:
    tried = {}
    for family in families_for(problem):
        if family.NAME in OWN:
            space = space_of(family.NAME, problem, limits)
            seeds = seeds_of(family.NAME, problem, limits)
            assert all(seed.why_not(problem, limits) is None for seed in seeds)
            assert all(space.row_of(seed) is not None for seed in seeds[:1])
            tried[family.NAME] = len(space)
    assert max(tried.values()) > 50, tried
    served = {name for name in tried if FAMILIES[name].DEFAULT.why_not(problem, limits) is None}
    assert {name for name in served if tried[name] == 1} == (
        served & DEFAULT_ON_CPUS if limits.kind == "cpu" else set()
    )


@pytest.mark.parametrize("shape", [*SHAPES, *DEPTHWISE_SHAPES], ids=label)
def test_phases_write_every_element_once(shape: ConvProblem) -> None:
    problem = replace(shape, direction="bwd_data")
    written = [
        (part.rows.first + y * part.rows.store_step, part.cols.first + x * part.cols.store_step)
        for part in correlations(problem)
        for y in range(part.rows.results)
        for x in range(part.cols.results)
    ]
    assert sorted(written) == [(y, x) for y in range(shape.height) for x in range(shape.width)]


@pytest.mark.parametrize("shape", [*SHAPES, *DEPTHWISE_SHAPES], ids=label)
def test_phases_read_what_forward_writes(shape: ConvProblem) -> None:
    """Result q of a phase must meet y at p through tap r if and only if p meets it through r."""
    forward = windows(shape).cols
    pairs_forward = {
        (p * forward.step + tap * forward.tap_step + forward.origin, p, tap)
        for p in range(forward.results)
        for tap in forward.reach(p)
    }
    parts = {part.cols for part in correlations(replace(shape, direction="bwd_data"))}
    pairs_backward = {
        (
            cols.first + q * cols.store_step,
            q * cols.step + tap * cols.tap_step + cols.origin,
            cols.kernel_first + tap * cols.kernel_step,
        )
        for cols in parts
        for q in range(cols.results)
        for tap in cols.reach(q)
    }
    assert pairs_backward == pairs_forward


def test_strung_rows_only_where_nothing_is_between() -> None:
    strung = windows(POINTWISE).strung()
    assert (strung.rows.results, strung.cols.results) == (1, 56 * 56)
    changes: tuple[dict[str, Any], ...] = ({"stride_w": 2}, {"pad_h": 1}, {"kernel_w": 3})
    for change in changes:
        part = windows(replace(POINTWISE, **change))
        assert part.strung() == part


def test_pointwise_convolutions_are_products() -> None:
    assert lowered(POINTWISE) == GemmProblem(
        128, 56 * 56, 64, batch=8, shared_a=True, bias="m", activation="relu"
    )
    backward = replace(POINTWISE, bias=False, activation="none", direction="bwd_data")
    assert lowered(backward) == GemmProblem(64, 56 * 56, 128, batch=8, shared_a=True, trans_a=True)
    assert lowered(LAYER) is None
    pixels = 8 * 56 * 56
    products: dict[Direction, GemmProblem] = {
        "fwd": GemmProblem(pixels, 128, 64, trans_b=True),
        "bwd_data": GemmProblem(pixels, 64, 128),
        "bwd_weights": GemmProblem(128, 64, pixels, trans_a=True),
    }
    for direction, product in products.items():
        problem = replace(backward, direction=direction, layout="nhwc")
        assert lowered(problem) == product
        assert lowered(replace(problem, stride_h=2)) is None
    assert lowered(replace(backward, direction="bwd_weights")) is None


@pytest.mark.parametrize(
    "name",
    [
        "conv_as_gemm_register",
        "conv_as_gemm_staged",
        "conv_as_gemm_async",
        "conv_as_gemm_pairs",
    ],
)
def test_a_product_borrows_the_convolutions_buffers(name: str) -> None:
    plan = FAMILIES[name].plan(POINTWISE, FAMILIES[name].DEFAULT)
    roles = {arg.role for launch in plan.launches for arg in launch.args if isinstance(arg, Buffer)}
    assert roles - {role for role, _ in plan.workspaces} == {"w", "x", "y", "bias"}


@pytest.mark.parametrize("name", OWN)
def test_a_stored_config_comes_back(name: str) -> None:
    default = FAMILIES[name].DEFAULT
    values = {field.name: getattr(default, field.name) for field in fields(default)}
    assert Variant.from_values(name, values).config == default


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_few_channels_of_results_have_tiles_of_few_rows(
    direction: Direction, layout: Memory
) -> None:
    """Rows beyond the channels are computed in vain: 12 of 16 for four channels, 4 of 8."""
    wide = ConvProblem(8, 64, 56, 56, 64, 3, 3, pad_h=1, pad_w=1, direction=direction)
    layer = replace(wide, layout=layout)
    back = direction == "bwd_data"
    few = replace(layer, in_channels=4) if back else replace(layer, out_channels=4)
    rows = [next(valid_configs(FAMILIES["conv_gemm"], one, GPU)).tile_m for one in (layer, few)]
    assert rows[0] > 16
    assert rows[1] == 8
