"""Gradients of filters by Winograd in blocks of sums, on every device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.families.winograd import winograd_blocked_weights as blocked
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.problem import ConvProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.channels_last import difference
from tests.oclgen.conv_cases import check_sums, label

CPU = Limits("cpu", 2**15, 4096, (4096,) * 3, 2**31, 2**34, 8, 8)
LAYER = ConvProblem(
    4, 40, 14, 14, 24, 3, 3, pad_h=1, pad_w=1, direction="bwd_weights", layout="nhwc"
)
CHANGES: dict[str, Any] = {
    "out_tile": 2, "item_k": 3, "vec": 4, "vecs": 2, "loop_k": 2, "loop_c": 2, "tile": 16,
    "workers": 2, "split": 3, "taps": 3,
}  # fmt: skip
SHAPES = tuple(
    replace(shape, direction="bwd_weights", layout="nhwc")
    for shape in (
        # tiles that overhang on both sides; blocks of channels that overlap
        ConvProblem(2, 19, 9, 11, 13, 3, 3, pad_h=1, pad_w=1),
        ConvProblem(1, 9, 7, 6, 18, 3, 3, pad_h=2),
        # one tile an image
        ConvProblem(5, 4, 3, 4, 7, 3, 3),
        ConvProblem(2, 5, 8, 7, 6, 2, 2, pad_w=1),
        ConvProblem(1, 6, 9, 12, 5, 4, 4, pad_h=1, pad_w=2),
        ConvProblem(2, 8, 7, 9, 6, 5, 5, pad_h=2, pad_w=1),
        ConvProblem(1, 4, 10, 9, 6, 6, 6, pad_h=3),
        ConvProblem(1, 7, 9, 12, 4, 7, 7, pad_h=3, pad_w=3),
        # blocks of the filter that hang over
        ConvProblem(2, 5, 13, 11, 4, 9, 7, pad_h=4, pad_w=3),
        ConvProblem(1, 6, 12, 14, 5, 11, 11, pad_h=5, pad_w=5),
    )
)


def check(device: Device, problem: ConvProblem, config: blocked.Config) -> None:
    """Compare with float64 what the family computes; it must be able to."""
    assert config.why_not(problem, device.limits) is None
    check_sums(device, problem, Variant(blocked.NAME, config))


def default_of(problem: ConvProblem) -> blocked.Config:
    """The family's default, with tiles that the filter has."""
    if problem.kernel_h > 7:
        return replace(blocked.DEFAULT, taps=3)
    tiles = {2: 3, 4: 3, 6: 3, 7: 2}
    return replace(blocked.DEFAULT, out_tile=tiles.get(problem.kernel_h, 4))


def test_every_parameter_changes_the_plan() -> None:
    base, layer = blocked.DEFAULT, replace(LAYER, kernel_h=5, kernel_w=5)
    assert set(CHANGES) == {field.name for field in fields(base)}
    for parameter, value in CHANGES.items():
        plans = (blocked.plan(layer, one) for one in (base, replace(base, **{parameter: value})))
        before, after = ([one.source for one in plan.launches] for plan in plans)
        assert before != after, parameter


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"vec": 3}, ("vec=3",)),
        ({"out_tile": 3}, ("out_tile=3", "2, 4, 6")),
        ({"vec": 16, "vecs": 3, "loop_k": 8}, ("48", "40")),
        ({"vec": 8}, ("2 filters", "at least 8")),
        ({"item_k": 25}, ("25 filters", "24")),
        ({"item_k": 12, "vecs": 3}, ("36 vectors", "32")),
        ({"split": 17}, ("split=17", "16 rows")),
        ({"item_k": 8, "vec": 8, "loop_c": 5, "tile": 1024}, ("7130880", "4194304")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, int], named: tuple[str, ...]) -> None:
    reason = replace(blocked.DEFAULT, **changes).why_not(LAYER, CPU)
    assert reason is not None
    for name in named:
        assert name in reason


def test_sums_of_many_terms_are_cut() -> None:
    """Tiles of 64 points lose most digits: sums of steps, and the sum of these, stay short."""
    large = replace(LAYER, batch=64, height=112, width=112, kernel_h=7, kernel_w=7)
    config = replace(blocked.DEFAULT, out_tile=2, tile=16)
    reason = config.why_not(large, CPU)
    assert reason is not None and "256" in reason
    found = [one for one in blocked.guesses(large, CPU) if one.why_not(large, CPU) is None]
    assert all(one.split > 1 for one in found)
    whole = replace(large, batch=4)
    assert [one for one in blocked.guesses(whole, CPU) if one.why_not(whole, CPU) is None]


def test_only_gradients_of_filters_in_channels_last_are_served() -> None:
    assert blocked.serves(LAYER)
    for other in (
        replace(LAYER, layout="nchw"),
        replace(LAYER, direction="fwd"),
        replace(LAYER, stride_h=2),
        replace(LAYER, groups=8),
        replace(LAYER, in_channels=1),
        replace(LAYER, kernel_h=1, kernel_w=1, pad_h=0, pad_w=0),
    ):
        assert not blocked.serves(other)
    assert blocked.guesses(LAYER, replace(CPU, kind="gpu")) == []
    half = replace(LAYER, dtype="bf16")
    assert blocked.guesses(half, CPU)
    for instruction in (TILES, INSTRUCTION):
        able = replace(CPU, instructions=frozenset({instruction}))
        assert blocked.guesses(half, able) == []
        assert blocked.guesses(LAYER, able)
    assert len(space_of(blocked.NAME, LAYER, CPU)) >= 50
    assert len(seeds_of(blocked.NAME, LAYER, CPU)) >= 3


def test_more_cores_have_more_pieces() -> None:
    one, many = (blocked.guesses(LAYER, replace(CPU, compute_units=units))[0] for units in (1, 16))
    assert (one.workers, one.split) == (1, 1)
    assert many.workers == 16 and many.split > 1


@pytest.mark.parametrize("problem", SHAPES, ids=label)
def test_every_shape(device: Device, problem: ConvProblem) -> None:
    """The default, and each guess with weights of other strides, also in channels_last."""
    check(device, problem, default_of(problem))
    limits = replace(device.limits, kind="cpu", compute_units=2)
    found = blocked.guesses(problem, limits)
    valid = [one for one in found if one.why_not(problem, device.limits) is None]
    assert valid
    for config in valid:
        assert not difference(device, problem, blocked.plan(problem, config))


@pytest.mark.parametrize("problem", SHAPES[:4], ids=label)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_other_configs(device: Device, problem: ConvProblem, dtype: str) -> None:
    """Slices, steps that do not fill tiles, several work-items, and a free batch."""
    few = {"item_k": 3, "vec": 2, "vecs": 2, "loop_c": 1, "tile": 5, "split": 2, "workers": 3}
    base = replace(default_of(problem), out_tile=2 if problem.kernel_h == 3 else 3)
    rows = problem.batch * -(-problem.out_h // base.out_tile)
    few["split"] = min(few["split"], rows)
    stored = replace(problem, dtype=dtype)
    check(device, stored, replace(base, **few))
    check(device, stored, replace(base, item_k=1, loop_k=5, tile=1))
    check(device, replace(stored, free=frozenset({"batch"})), replace(base, **few))
