"""What `gemm_pairs` says anywhere, packs on any device, and computes on CPUs with AVX512-BF16."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_pairs
from oclgen.families.gemm.gemm_pairs import LANES
from oclgen.families.gemm.gemm_tiles import pack_panels, tiles_of
from oclgen.keys import parse_gemm
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.gemm_cases import (
    BASE,
    BATCHES,
    EPILOGUES,
    PAIRS,
    PAIRSES,
    SIZES,
    label,
    one_of,
    problems,
)
from tests.oclgen.views_of_products import check_view

ZEN4 = Limits(
    "cpu", 32 * KIB, 4096, (4096, 4096, 4096), 2**32, 2**34, 16, 16,
    instructions=frozenset({"vdpbf16ps"}),
)  # fmt: skip
PROBLEM = GemmProblem(200, 320, 400, dtype="bf16")
CHANGES: dict[str, Any] = {
    "item_m": 4, "item_n": 32, "loop_m": 2, "order": "n", "pack_a": True, "pack_b": True,
    "split_k": 2,
}  # fmt: skip
CONFIGS = st.builds(
    gemm_pairs.Config,
    **one_of(
        item_m=(1, 2, 5, 6), item_n=(16, 32, 64), loop_m=(1, 3), order=("m", "n"),
        pack_a=(False, True), pack_b=(False, True), split_k=(1, 2, 5),
    ),
)  # fmt: skip


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(PAIRS)}
    for name, value in CHANGES.items():
        other = replace(PAIRS, **{name: value})
        one, two = (gemm_pairs.plan(PROBLEM, config).launches for config in (PAIRS, other))
        assert [launch.source for launch in one] != [launch.source for launch in two], name


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(PAIRS, item_n=24), PROBLEM, ("item_n=24", "16")),
        (replace(PAIRS, item_m=12, item_n=48), PROBLEM, ("36 vectors", "at most 28")),
        (replace(PAIRS, order="k"), PROBLEM, ("order='k'",)),
        (PAIRS, replace(PROBLEM, trans_a=True), ("[k, m]", "pack_a=True")),
        (PAIRS, replace(PROBLEM, trans_b=True), ("[n, k]", "pack_b=True")),
        (PAIRS, replace(PROBLEM, n=321), ("n=321", "pack_b=True")),
        (replace(PAIRS, split_k=300), PROBLEM, ("split_k=300", "k=400")),
        (replace(PAIRS, pack_a=True), GemmProblem(2**17, 320, 2**15, "bf16"), ("packed_a",)),
    ],
)
def test_refusals_name_the_numbers(
    config: gemm_pairs.Config, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    reason = config.why_not(problem, ZEN4)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_processors_that_showed_the_instruction_are_served() -> None:
    assert "vdpbf16ps" in (gemm_pairs.DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert not gemm_pairs.serves(replace(PROBLEM, dtype="fp16"))
    assert len(space_of("gemm_pairs", PROBLEM, Limits())) == 0
    for text in ("1024x1024x1024:bf16", "1x4096x4096:bf16", "16x4096x4096:bf16", "3x5x7:bf16"):
        problem = parse_gemm(text)
        assert gemm_pairs.DEFAULT.why_not(problem, ZEN4) is None
        assert len(space_of("gemm_pairs", problem, ZEN4)) >= 8
        # few columns leave one width of tiles
        assert len(seeds_of("gemm_pairs", problem, ZEN4)) >= (3 if problem.n > LANES else 2)


def test_guesses_have_no_vector_without_columns() -> None:
    for n, most in ((7, 16), (16, 16), (17, 32), (40, 48), (2120, 64)):
        for m in (1, 3, 16, 645):
            problem = replace(PROBLEM, m=m, n=n)
            assert max(one.item_n for one in gemm_pairs.guesses(problem, ZEN4)) == most


def test_guesses_compute_several_tiles_where_cores_have_enough() -> None:
    small = replace(PROBLEM, m=79, n=896, k=16, batch=41)
    assert {one.loop_m for one in gemm_pairs.guesses(small, ZEN4)} == {8}
    few = replace(PROBLEM, m=79, n=64, k=4096)
    assert {one.loop_m for one in gemm_pairs.guesses(few, ZEN4)} == {1}


@pytest.mark.parametrize("width", [6, 32])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("role", ["a", "b"])
def test_packing_pairs_and_pads(device: Device, role: str, trans: bool, width: int) -> None:
    problem = GemmProblem(
        57, 57, 75, dtype="bf16", trans_a=trans, trans_b=trans, batch=2, shared_b=True
    )
    panels = tiles_of(problem, role, tile=width, tile_k=2)
    shape = problem.buffers[role]
    stored = np.arange(1, np.prod(shape) + 1, dtype=np.uint16).reshape(shape)
    out = np.full(panels.bytes // 2, 0xFFFF, np.uint16)
    buffers = {role: device.upload(stored), panels.workspace: device.upload(out)}
    device.prepare(Plan((pack_panels(panels, pairs=True),)), buffers).run()
    along_k = stored if trans == (role == "b") else stored.swapaxes(1, 2)
    tiles = -(-57 // width)
    packed = device.download(buffers[panels.workspace], out)
    found = packed.reshape(len(stored), tiles, 38, width, 2).swapaxes(2, 3)
    found = found.reshape(len(stored), tiles * width, 76)[:, :57]  # others meet no result
    assert np.array_equal(found[..., :75], along_k)
    assert not found[..., 75].any()


def assert_right(device: Device, problem: GemmProblem | ConvProblem, config: Any) -> None:
    """Compare with float64, or skip where the device lacks the instruction."""
    if gemm_pairs.INSTRUCTION not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {gemm_pairs.INSTRUCTION}")
    assert config.why_not(problem, device.limits) is None
    family = "gemm_pairs" if isinstance(problem, GemmProblem) else "conv_as_gemm_pairs"
    measurement = Bench(device, problem).measure(FAMILIES[family].plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"
    # what rounding the result to 8 bits leaves: the sums are exact to fp32
    assert measurement.error < 2.5e-3


@pytest.mark.parametrize("config", PAIRSES)
def test_sizes_and_transposes(device: Device, config: gemm_pairs.Config) -> None:
    for place, (m, n, k) in enumerate((*SIZES[1::2], (70, 65, 131))):
        problem = GemmProblem(
            m, n if config.pack_b else 48, k, dtype="bf16",
            trans_a=config.pack_a and place % 2 == 1, trans_b=config.pack_b and place > 1,
        )  # fmt: skip
        if k >= 4 * config.split_k:
            assert_right(device, problem, config)


@pytest.mark.parametrize("problem", [*BATCHES, *EPILOGUES], ids=label)
def test_batches_and_epilogues(device: Device, problem: GemmProblem) -> None:
    assert_right(device, replace(problem, dtype="bf16"), PAIRSES[2])


def test_sums_keep_fp32(device: Device) -> None:
    assert_right(device, GemmProblem(8, 32, 4096, dtype="bf16"), gemm_pairs.DEFAULT)


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_pointwise_convolutions(device: Device, direction: Any) -> None:
    problem = ConvProblem(2, 5, 4, 3, 7, 1, 1, dtype="bf16", direction=direction)
    assert_right(device, problem, FAMILIES["conv_as_gemm_pairs"].DEFAULT)


@pytest.mark.parametrize("config", [PAIRS, replace(PAIRS, pack_a=True, pack_b=True)])
def test_nothing_around_a_view_is_read_or_written(
    device: Device, config: gemm_pairs.Config
) -> None:
    if gemm_pairs.INSTRUCTION not in device.limits.instructions:
        pytest.skip(f"{device.name} has no {gemm_pairs.INSTRUCTION}")
    check_view(device, replace(BASE, n=48, dtype="bf16", batch=2), Variant("gemm_pairs", config))


@settings(
    max_examples=5, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(problem=problems(), config=CONFIGS)
def test_any_valid_variant(device: Device, problem: GemmProblem, config: gemm_pairs.Config) -> None:
    problem = replace(problem, dtype="bf16")
    assume(config.why_not(problem, ZEN4) is None)
    assert_right(device, problem, config)
