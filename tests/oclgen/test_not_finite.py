"""An infinity or a NaN reaches the results that it belongs to, and no others, in each family.

Zero times either is a NaN. So a kernel must not multiply what it reads beside an operand by zero,
nor an element by the zeros of gaps that it made itself. Winograd's families spread a NaN within a
tile, as torch's do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES, default_of, is_transforming
from oclgen.families.gemm import gemm_amx, gemm_pairs
from oclgen.measuring.measure import TOLERANCE, compare, decode, encode
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl.device import Device
from oclgen.opencl.probe import ANSWERS
from oclgen.plan import Plan
from oclgen.problem import DIRECTIONS, LAYOUTS, ConvProblem, GemmProblem
from oclgen.variant import Variant
from tests.oclgen.amx_emulated import tiles_in_c
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.fragments_emulated import emulate as emulate_fragments
from tests.oclgen.mma_emulated import emulate as emulate_mma
from tests.oclgen.not_finite import reached
from tests.oclgen.oclgrind_cases import CONV_MMA, DOT_PAIRS
from tests.oclgen.views_of_products import check_view

SHAPES = (
    # rows of odd length, of which pairs leave one over, and channels that fill no tile
    ConvProblem(2, 18, 7, 9, 20, 3, 3, 1, 1, 1, 1),
    ConvProblem(2, 6, 8, 9, 4, 3, 3, 2, 1, 1, 1),
    ConvProblem(1, 3, 6, 7, 18, 3, 5, 2, 2, 1, 2),
    ConvProblem(1, 5, 6, 7, 18, 3, 3),
    ConvProblem(2, 4, 7, 9, 4, 3, 3, 1, 1, 1, 1, groups=4),
    ConvProblem(2, 6, 7, 9, 8, 3, 3, 1, 1, 1, 1, groups=2),
    ConvProblem(2, 16, 7, 9, 17, 1, 1, 2, 2),
)
CASES = tuple(
    (name, problem)
    for shape in SHAPES
    for direction in DIRECTIONS
    for layout in LAYOUTS
    for dtype in ("fp32", "bf16")
    for problem in (replace(shape, direction=direction, layout=layout, dtype=dtype),)
    for name, family in FAMILIES.items()
    if family.serves(problem) and not is_transforming(name)
)
CONFIGS = tuple(
    (name, problem, changed)
    for name, shapes, configs in (
        (
            # patches of fewer columns than a vector has lanes, of more, and beyond the image
            "depthwise_weights",
            (
                ConvProblem(2, 4, 7, 18, 8, 3, 3, 1, 1, 1, 1, groups=4),
                ConvProblem(1, 3, 9, 23, 3, 3, 5, 2, 2, 1, 2, groups=3),
            ),
            tuple(
                {"patch_h": 2, "patch_w": patch_w, "vec": vec, "guarded": guarded}
                for patch_w, vec in ((3, 1), (6, 4), (16, 4), (32, 8))
                for guarded in (True, False)
            ),
        ),
        (
            "depthwise_weights",
            (ConvProblem(2, 4, 7, 9, 4, 3, 3, 1, 1, 1, 1, groups=4, layout="nhwc"),),
            ({"patch_h": 2, "patch_w": 4}, {"patch_h": 1, "patch_w": 3, "vec_c": 4}),
        ),
        (
            # some groups to a product and all in one, of one channel, too; results of phases
            "conv_mma",
            tuple(
                replace(shape, layout=layout)
                for layout in LAYOUTS
                for shape in (
                    ConvProblem(1, 72, 6, 7, 72, 3, 3, 2, 2, 1, 1, groups=18),
                    ConvProblem(2, 12, 9, 8, 18, 3, 2, 1, 2, 1, 0, 1, 2, groups=6),
                    ConvProblem(1, 6, 7, 6, 12, 5, 5, 1, 1, 2, 2, groups=6),
                )
            ),
            ({}, {"split_k": 2}),
        ),
    )
    for shape in shapes
    for direction in DIRECTIONS
    for dtype in ("fp32", "tf32", "bf16")
    for problem in (replace(shape, direction=direction, dtype=dtype),)
    if FAMILIES[name].serves(problem)
    for changed in configs
)
"""What the shapes above with the families' defaults leave out."""
PRODUCTS = tuple(
    (name, problem)
    for m, n, k in ((21, 35, 11), (18, 48, 33), (5, 3, 7))
    for trans_a in (False, True)
    for trans_b in (False, True)
    for dtype in ("fp32", "tf32", "fp16", "bf16")
    for problem in (GemmProblem(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b, batch=2),)
    for name, family in FAMILIES.items()
    if family.serves(problem)
)


def named(value: Any) -> str:
    """Return a case's part of a test's name."""
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in value.items())
    return value if isinstance(value, str) else value.key()


class Able:
    """A device with the instructions that it has, or with all of them in plain OpenCL C."""

    def __init__(self, device: Device, in_c: bool) -> None:
        self.device, self.in_c = device, in_c

    def config(self, name: str, problem: Any) -> Any:
        """Return the config to try; skip where the device cannot run it."""
        family, limits = FAMILIES[name], self.device.limits
        if self.in_c and not family.TRAITS.instructions:
            pytest.skip(f"{name} asks for no instruction that would have to be emulated")
        if self.in_c and name == "gemm_tma":
            pytest.skip("bulk copies to local memory are not emulated")
        config = default_of(family, problem, limits)
        if name == "conv_mma" and self.in_c:
            config = CONV_MMA  # the default takes more local memory than processors have
        if reason := config.why_not(problem, limits):
            pytest.skip(reason)
        return config

    def runnable(self, plan: Plan) -> Plan:
        """Return the plan as the device can run it."""
        return in_plain_c(plan) if self.in_c else plan


@pytest.fixture(params=["own", "in C"])
def able(request: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> Able:
    """The device, and the device with every instruction emulated."""
    if request.param == "own":
        return Able(device, in_c=False)
    emulate_mma(monkeypatch)
    emulate_fragments(monkeypatch)
    monkeypatch.setattr(gemm_pairs, "dot", lambda: DOT_PAIRS)
    monkeypatch.setattr(gemm_amx, "tiles", tiles_in_c)
    limits = replace(device.limits, instructions=frozenset(ANSWERS))
    return Able(replace(device, limits=limits), in_c=True)


def spoiled(images: Any, layout: str, value: float) -> Any:
    """Return a copy with `value` in two corners and at the end of a row, in channels of their own.

    Args:
        images: batch of at least two channels.
        layout: of them.
        value: an infinity or a NaN.
    """
    result = images.copy()
    planes = result if layout == "nchw" else np.moveaxis(result, 3, 1)
    planes[0, 0, 0, 0] = planes[-1, 1, -1, -1] = planes[0, -1, 1, -1] = value
    return result


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "problem"), CASES, ids=named)
def test_an_image_that_is_not_finite(able: Able, name: str, problem: ConvProblem) -> None:
    check_image(able, problem, Variant(name, able.config(name, problem)))


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("name", "problem", "changed"), CONFIGS, ids=named)
def test_ends_of_patches_and_groups_side_by_side(
    able: Able, name: str, problem: ConvProblem, changed: dict[str, Any]
) -> None:
    config = replace(able.config(name, problem), **changed)
    if reason := config.why_not(problem, able.device.limits):
        pytest.skip(reason)
    check_image(able, problem, Variant(name, config))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("split_k", [1, 2])
def test_results_beside_another_groups_nan_are_right(able: Able, layout: Any, split_k: int) -> None:
    """`conv_mma` computes such a tile anew, bias and residual included."""
    added = split_k == 1
    problem = ConvProblem(
        2, 12, 9, 8, 24, 3, 3, 1, 1, 1, 1, groups=3, dtype="bf16", layout=layout, bias=added,
        residual=added,
    )  # fmt: skip
    config = replace(able.config("conv_mma", problem), split_k=split_k)
    drawn = random_inputs(problem, 0)
    drawn["x"] = spoiled(drawn["x"], layout, np.nan)
    stored = {role: encode(array, "bf16") for role, array in drawn.items()}
    buffers = {role: able.device.upload(array) for role, array in stored.items()}
    out = encode(np.zeros(problem.buffers["y"], np.float32), "bf16")
    buffers["y"] = able.device.upload(out)
    plan = able.runnable(Variant("conv_mma", config).plan(problem))
    able.device.prepare(plan, buffers).run()
    got = decode(able.device.download(buffers["y"], out), "bf16")
    want = reference(problem, {role: decode(array, "bf16") for role, array in stored.items()})
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.isnan(want).any()
    assert compare(got[~np.isnan(want)], want[~np.isnan(want)], TOLERANCE["bf16"])[1] == ""


def check_image(able: Able, problem: ConvProblem, variant: Variant) -> None:
    """Assert that what is not finite in an image reaches what it must, and no more."""
    device, dtype, drawn = able.device, problem.dtype, random_inputs(problem, 0)
    plan = able.runnable(variant.plan(problem))
    out = encode(np.zeros(problem.buffers[problem.output], np.float32), dtype)
    for role in {"x", "y"} & drawn.keys():
        for value in (np.inf, np.nan):
            inputs = drawn | {role: spoiled(drawn[role], problem.layout, value)}
            stored = {each: encode(array, dtype) for each, array in inputs.items()}
            buffers = {each: device.upload(array) for each, array in stored.items()}
            buffers[problem.output] = device.upload(out)
            device.prepare(plan, buffers).run()
            got = np.isnan(decode(device.download(buffers[problem.output], out), dtype))
            least, most = reached(
                problem, {each: decode(array, dtype) for each, array in stored.items()}
            )
            assert not (least & ~got).any(), f"{role}={value} is lost"
            assert not (got & ~most).any(), f"{role}={value} reaches {np.argwhere(got & ~most)[0]}"


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "problem"), PRODUCTS, ids=named)
def test_what_lies_beside_a_product(able: Able, name: str, problem: GemmProblem) -> None:
    config = able.config(name, problem)
    check_view(able.device, problem, Variant(name, config), able.runnable)
