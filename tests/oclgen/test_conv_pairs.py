"""Convolutions by pairs of bf16: what the families say anywhere, pack and compute on CPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES
from oclgen.families.conv import conv_pairs, conv_pairs_weights
from oclgen.families.gemm.gemm_pairs import INSTRUCTION
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import encode
from oclgen.opencl.device import Device
from oclgen.plan import Launch, Plan
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.conv_cases import DEPTHWISE_SHAPES, SHAPES, check_sums, label

ZEN4 = Limits(
    "cpu", 32 * KIB, 4096, (4096, 4096, 4096), 2**32, 2**34, 16, 16,
    instructions=frozenset({INSTRUCTION}),
)  # fmt: skip
LAYER = ConvProblem(8, 64, 28, 28, 128, 3, 3, 2, 2, 1, 1, dtype="bf16")
VARIED: dict[str, dict[str, Any]] = {
    "conv_pairs": {
        "images": 2, "item_x": 3, "vecs": 2, "unroll": 2, "taps_outer": True,
        "channels_fastest": True,
    },
    "conv_pairs_weights": {
        "item_c": 2, "vecs": 2, "unroll": 2, "split": 2, "outputs_fastest": True,
    },
}  # fmt: skip
"""Another value of every parameter."""
EVERY_WAY = tuple(
    problem
    for shape in (
        *SHAPES,
        DEPTHWISE_SHAPES[1],
        # rows of vectors and more, channels of a block and more, an odd number of results
        ConvProblem(2, 34, 5, 37, 70, 3, 3, pad_h=1, pad_w=1),
        # pairs of channels that pixels hold, and groups of them
        ConvProblem(4, 8, 9, 19, 24, 3, 2, 1, 3, 1, 0, 1, 2, groups=2),
        ConvProblem(2, 66, 4, 9, 34, 1, 1),
    )
    for direction in DIRECTIONS
    for layout in LAYOUTS
    for problem in (replace(shape, direction=direction, layout=layout, dtype="bf16"),)
    if any(FAMILIES[name].serves(problem) for name in VARIED)
)


def family_of(problem: ConvProblem) -> str:
    return "conv_pairs_weights" if problem.direction == "bwd_weights" else "conv_pairs"


def variant_of(problem: ConvProblem) -> Any:
    """The default with every parameter changed, within the sizes that the problem has."""
    name = family_of(problem)
    changes = dict(VARIED[name])
    if name == "conv_pairs":
        changes["images"] = min(2, problem.batch)
    else:
        rows = problem.batch * (1 if problem.kernel_h * problem.kernel_w == 1 else problem.out_h)
        depth = problem.in_channels // problem.groups
        changes |= {"item_c": min(2, depth), "split": min(2, rows)}
    return replace(FAMILIES[name].DEFAULT, **changes)


def check(device: Device, problem: ConvProblem, config: Any) -> None:
    """Compare with float64, or skip where the device lacks the instruction."""
    if reason := config.why_not(problem, device.limits):
        assert INSTRUCTION in reason
        pytest.skip(reason)
    check_sums(device, problem, Variant(family_of(problem), config))


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_parameter_changes_the_text(name: str, layout: Any) -> None:
    direction: Any = "bwd_weights" if name.endswith("weights") else "fwd"
    problem, base = replace(LAYER, layout=layout, direction=direction), FAMILIES[name].DEFAULT
    assert set(VARIED[name]) == {field.name for field in fields(base)}
    before = [one.source for one in FAMILIES[name].plan(problem, base).launches]
    for parameter, value in VARIED[name].items():
        plan = FAMILIES[name].plan(problem, replace(base, **{parameter: value}))
        assert [one.source for one in plan.launches] != before, parameter


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("conv_pairs", {"item_x": 14, "vecs": 4}, ("item_x=14", "56", "28")),
        ("conv_pairs", {"images": 9, "item_x": 3}, ("images=9", "batch of 8")),
        ("conv_pairs", {"item_x": 15}, ("item_x=15", "14")),
        ("conv_pairs_weights", {"item_c": 5, "vecs": 2}, ("item_c=5", "30", "28")),
        ("conv_pairs_weights", {"split": 999}, ("split=999", "112")),
    ],
)
def test_refusals_name_the_numbers(
    name: str, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    direction: Any = "bwd_weights" if name.endswith("weights") else "fwd"
    problem, default = replace(LAYER, direction=direction), FAMILIES[name].DEFAULT
    reason = replace(default, **change).why_not(problem, ZEN4)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_processors_that_showed_the_instruction_are_served(direction: Any) -> None:
    problem = replace(LAYER, direction=direction)
    name = family_of(problem)
    family = FAMILIES[name]
    assert INSTRUCTION in (family.DEFAULT.why_not(problem, Limits()) or "")
    assert not family.serves(replace(problem, dtype="fp16"))
    assert not list(family.guesses(problem, Limits()))
    assert len(space_of(name, problem, Limits())) == 0
    assert family.DEFAULT.why_not(problem, ZEN4) is None
    assert len(space_of(name, problem, ZEN4)) >= 8
    assert len(seeds_of(name, problem, ZEN4)) >= 3


def test_images_in_channels_last_are_read_as_they_lie() -> None:
    """Unless a group has an odd number of channels, of which a pair would have another group's."""
    for channels, kernels in ((64, 2), (63, 3)):
        problem = replace(LAYER, layout="nhwc", in_channels=channels)
        assert len(conv_pairs.plan(problem, conv_pairs.DEFAULT).launches) == kernels


def packed_by(device: Device, problem: ConvProblem, launch: Launch, role: str) -> Any:
    """Return what a launch packs of numbers that count its elements, as words."""
    source = "y" if role == "packed" else "x"
    stored = np.arange(1, np.prod(problem.buffers[source]) + 1, dtype=np.uint16)
    name = family_of(problem)
    sizes = dict(FAMILIES[name].DEFAULT.needs(problem).workspaces)
    out = np.full(sizes[role] // 4, 0xFFFFFFFF, np.uint32)
    buffers = {source: device.upload(stored), role: device.upload(out)}
    device.prepare(Plan((launch,)), buffers).run()
    return device.download(buffers[role], out)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("channels", "width"), [(3, 7), (34, 39)])
def test_words_hold_an_element_and_its_neighbour(
    device: Device, layout: Any, channels: int, width: int
) -> None:
    problem = ConvProblem(
        2, channels, 3, width, 5, 3, 3, 1, 2, 1, 1, dtype="bf16", direction="bwd_weights",
        layout=layout,
    )  # fmt: skip
    launch = conv_pairs_weights.plan(problem, conv_pairs_weights.DEFAULT).launches[1]
    got = packed_by(device, problem, launch, conv_pairs_weights.WORDS)
    stored = np.arange(1, 2 * channels * 3 * width + 1, dtype=np.uint32)
    planes = (
        stored.reshape(2, 3, width, channels).transpose(0, 3, 1, 2)
        if layout == "nhwc"
        else stored.reshape(2, channels, 3, width)
    )
    # an element of padding on the left; two results further, a pair's second element
    results = (width + 2 - 3) // 2 + 1
    words = 2 * (results + results % 2 - 2) + 3
    padded = np.pad(planes, ((0, 0), (0, 0), (0, 0), (1, words + 2)))
    want = padded[..., :words] | padded[..., 2 : words + 2] << 16
    assert np.array_equal(got, want.ravel())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("problem", EVERY_WAY, ids=label)
def test_the_default(device: Device, problem: ConvProblem) -> None:
    check(device, problem, FAMILIES[family_of(problem)].DEFAULT)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("problem", EVERY_WAY, ids=label)
def test_variants(device: Device, problem: ConvProblem) -> None:
    check(device, problem, variant_of(problem))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [6, 7])
def test_epilogues(device: Device, layout: Any, channels: int) -> None:
    problem = ConvProblem(
        2, channels, 5, 9, 21, 3, 3, pad_h=1, pad_w=1, dtype="bf16", layout=layout, bias=True,
        activation="relu", residual=True,
    )  # fmt: skip
    check(device, problem, variant_of(problem))


def test_a_neighbour_that_is_no_number_spoils_nothing(device: Device) -> None:
    """The channel behind an odd group, and the pixel behind a row, are of other sums."""
    if INSTRUCTION not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {INSTRUCTION}")
    problem = ConvProblem(1, 6, 3, 5, 4, 1, 3, groups=2, dtype="bf16", layout="nhwc")
    x = np.ones(problem.buffers["x"], np.float32)
    x[..., 3:] = np.nan  # the second group's channels
    stored = {"x": x, "w": np.ones(problem.buffers["w"], np.float32)}
    out = np.zeros(problem.buffers["y"], np.uint16)
    buffers = {role: device.upload(encode(array, "bf16")) for role, array in stored.items()}
    buffers["y"] = device.upload(out)
    device.prepare(conv_pairs.plan(problem, conv_pairs.DEFAULT), buffers).run()
    got = device.download(buffers["y"], out).reshape(-1, 4)
    nine = encode(np.full(1, 9.0, np.float32), "bf16")
    assert (got[:, :2] == nine).all()
