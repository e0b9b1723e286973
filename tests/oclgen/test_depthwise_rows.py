"""Depthwise convolutions in channels_last on processors: rows of vectors of channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.families.depthwise import depthwise, depthwise_weights
from oclgen.families.depthwise.patches import phases
from oclgen.families.depthwise.strips import Strip, met_by, strips
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import DIRECTIONS, ConvProblem, Direction
from oclgen.variant import Variant
from tests.oclgen.conv_cases import check_sums
from tests.oclgen.test_guesses import CPU

LAYER = ConvProblem(2, 48, 11, 13, 48, 3, 3, pad_h=1, pad_w=1, groups=48, layout="nhwc")
LAYERS = {
    "as it is": LAYER,
    "strided": replace(LAYER, stride_h=2, stride_w=2),
    "dilated, without padding": replace(LAYER, dilation_h=2, dilation_w=3, pad_h=0, pad_w=0),
    "stride 3 and 2, 4 x 5": replace(
        LAYER, stride_h=3, stride_w=2, kernel_h=4, kernel_w=5, pad_h=2, pad_w=3
    ),
    "fewer taps than phases": replace(
        LAYER, stride_h=3, stride_w=3, kernel_h=2, kernel_w=1, pad_h=0, pad_w=0
    ),
    "many taps": replace(LAYER, kernel_h=9, kernel_w=7, pad_h=4, pad_w=5),
    "an image that is all edges": replace(LAYER, height=2, width=3, kernel_w=5, pad_w=4),
}
CONFIGS: dict[str, Any] = {
    "depthwise": replace(depthwise.DEFAULT, patch_h=3, patch_w=4, local_c=1, local_size=4),
    "depthwise_weights": replace(
        depthwise_weights.DEFAULT, patch_h=2, patch_w=4, local_size=1, local_c=1, split=3
    ),
}
KINDS = (("fp32", 16, 48), ("fp32", 8, 45), ("bf16", 32, 43), ("bf16", 16, 40), ("bf16", 8, 21))


def variant_of(layer: ConvProblem, **changes: Any) -> Variant:
    name = "depthwise_weights" if layer.direction == "bwd_weights" else "depthwise"
    return Variant(name, replace(CONFIGS[name], **changes))


def of_channels(layer: ConvProblem, count: int) -> ConvProblem:
    return replace(layer, in_channels=count, out_channels=count, groups=count)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize(("dtype", "vec_c", "channels"), KINDS)
@pytest.mark.sampled(12)
def test_rows_add_what_the_reference_adds(
    layer: ConvProblem, direction: Direction, dtype: Any, vec_c: int, channels: int, device: Device
) -> None:
    problem = replace(of_channels(layer, channels), direction=direction, dtype=dtype)
    variant = variant_of(problem, vec_c=vec_c)
    assert variant.config.in_rows(problem)
    if dtype == "bf16":
        check_sums(device, problem, variant)
    else:
        result = Bench(device, problem).measure(variant.plan(problem), limit_ms=0.0)
        assert result.ok, result.reason


@pytest.mark.parametrize("vec_c", [8, 16, 32])
def test_words_have_all_terms(vec_c: int, device: Device) -> None:
    layer = replace(of_channels(LAYER, 43), dtype="bf16", bias=True, residual=True)
    problem = replace(layer, activation="relu")
    check_sums(device, problem, variant_of(problem, vec_c=vec_c))


def test_fp16_has_vectors_that_divide_the_channels(device: Device) -> None:
    for direction in DIRECTIONS:
        problem = replace(LAYER, dtype="fp16", direction=direction)
        variant = variant_of(problem, vec_c=16)
        result = Bench(device, problem).measure(variant.plan(problem), limit_ms=0.0)
        assert result.ok, result.reason


@pytest.mark.parametrize("taps", [1, 3])
def test_parts_of_the_taps_have_work_groups_of_their_own(taps: int, device: Device) -> None:
    problem = replace(LAYERS["many taps"], direction="bwd_weights")
    variant = variant_of(problem, vec_c=16, tap_rows=taps, split=2)
    result = Bench(device, problem).measure(variant.plan(problem), limit_ms=0.0)
    assert result.ok, result.reason


def test_the_batch_is_an_argument_where_it_is_free(device: Device) -> None:
    for direction in DIRECTIONS:
        problem = replace(LAYER, direction=direction, free=frozenset({"batch"}))
        variant = variant_of(problem, vec_c=16)
        texts = {variant.plan(replace(problem, batch=n)).launches[-1].source for n in (2, 5)}
        if direction != "bwd_weights":
            assert len(texts) == 1
        result = Bench(device, problem).measure(variant.plan(problem), limit_ms=0.0)
        assert result.ok, result.reason


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("depthwise", each) for each in ({"patch_h": 1}, {"patch_w": 5}, {"local_size": 16})),
        *(("depthwise_weights", each) for each in ({"patch_h": 1}, {"patch_w": 5}, {"split": 1})),
        ("depthwise", {"vec_c": 32}),
        ("depthwise_weights", {"vec_c": 32}),
        ("depthwise_weights", {"tap_rows": 2}),
    ],
    ids=str,
)
def test_each_parameter_changes_the_text(name: str, change: dict[str, Any]) -> None:
    direction: Direction = "fwd" if name == "depthwise" else "bwd_weights"
    layer = replace(LAYER, direction=direction, dtype="bf16")
    plans = [variant_of(layer, **{"vec_c": 16, **each}).plan(layer) for each in ({}, change)]
    one, other = ({launch.source for launch in plan.launches} for plan in plans)
    assert one != other


def test_strips_leave_out_what_lies_outside_of_the_image() -> None:
    cols = phases(replace(LAYER, width=12)).cols
    assert strips(cols, 4) == [
        Strip((0,), 1, 6, 4),
        Strip((1,), 0, 6, 4),
        Strip(None, 0, 5, 4),
    ]
    taps = [(tap, tap) for tap in range(3)]
    assert met_by(Strip(None, 0, 2, 4), [taps], 4, 1, 1) == [(0, [(0, 0)]), (1, [(1, 0), (0, 1)])]
    # a result beyond the output is computed by none
    assert {result for _, sums in met_by(Strip(None, 0, 6, 2), [taps], 4, 1, 1)
            for result, _ in sums} == {0, 1}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "vec_c", "local_c", "words"),
    [
        ("fp32", 32, 1, ("vec_c=32", "(1, 2, 4, 8, 16)")),
        ("bf16", 32, 4, ("vec_c=32", "blocks")),
        ("bf16", 64, 1, ("32",)),
    ],
)
def test_words_are_of_bf16_and_of_single_work_items(
    dtype: Any, vec_c: int, local_c: int, words: tuple[str, ...]
) -> None:
    layer = replace(of_channels(LAYER, 64), dtype=dtype)
    config = replace(CONFIGS["depthwise"], local_c=local_c, local_size=16)
    try:
        reason = replace(config, vec_c=vec_c).why_not(layer, CPU)
    except ValueError as error:
        reason = str(error)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_texts_that_compilers_take_seconds_for_are_refused() -> None:
    layer = replace(LAYER, width=300, kernel_w=81, pad_w=40)
    for direction in DIRECTIONS:
        one = replace(layer, direction=direction)
        reason = variant_of(one, vec_c=16, patch_w=16).config.why_not(one, CPU)
        assert "at most 2000" in str(reason) or "taps" in str(reason)


@pytest.mark.parametrize(
    ("width", "dtype", "columns"),
    [(56, "fp32", 14), (56, "bf16", 8), (13, "bf16", 7), (7, "bf16", 7), (17, "fp32", 9)],
)
def test_strips_divide_a_row_evenly(width: int, dtype: Any, columns: int) -> None:
    layer = replace(LAYER, batch=64, height=width, width=width, dtype=dtype)
    limits = replace(CPU, compute_units=2)
    first: Any = next(iter(FAMILIES["depthwise"].guesses(layer, limits)))
    assert (first.patch_h, first.patch_w) == (width, columns)
