"""What `gemm_amx` says anywhere, packs on any device, and computes in tiles, its own or in C."""

from __future__ import annotations

import platform
import sys
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from oclgen import system
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_amx, gemm_dot, gemm_pairs, gemm_register
from oclgen.families.gemm.gemm_amx_blocks import PRODUCTS, STEP, are_fastest
from oclgen.keys import parse_gemm
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl import runtimes
from oclgen.opencl.device import Device
from oclgen.opencl.probe import TILES
from oclgen.plan import Plan
from oclgen.problem import ConvProblem, GemmProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen.gemm_cases import AMX, AMXES, BASE, BATCHES, EPILOGUES, label
from tests.oclgen.views_of_products import check_view

XEON = Limits(
    "cpu", 32 * KIB, 4096, (4096, 4096, 4096), 2**32, 2**34, 16, 16,
    instructions=frozenset({TILES}),
)  # fmt: skip
PROBLEM = GemmProblem(200, 320, 400, dtype="bf16")
CONFIG = AMX
CHANGES: dict[str, Any] = {
    "item_m": 32, "item_n": 16, "blocks": 2, "across": True, "within": True, "tile_k": 64,
    "order": "n", "swap": True, "pack_rows": False, "split_k": 2,
}  # fmt: skip
SIZES = ((5, 100, 34), (16, 16, 32), (33, 50, 96), (70, 65, 131), (49, 31, 20))


def assert_right(device: Device, problem: GemmProblem | ConvProblem, config: Any) -> None:
    """Compare with float64."""
    assert config.why_not(problem, device.limits) is None
    family = "gemm_amx" if isinstance(problem, GemmProblem) else "conv_as_gemm_amx"
    measurement = Bench(device, problem).measure(FAMILIES[family].plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"
    # what rounding the result to 8 bits leaves: the sums are exact to fp32
    assert measurement.error < 2.5e-3


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(CONFIG)}
    for name, value in CHANGES.items():
        other = replace(CONFIG, **{name: value})
        one, two = (gemm_amx.plan(PROBLEM, config).launches for config in (CONFIG, other))
        assert [launch.source for launch in one] != [launch.source for launch in two], name


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(CONFIG, item_n=24), PROBLEM, ("item_n=24", "16")),
        (replace(CONFIG, item_m=48, item_n=48), PROBLEM, ("11 tiles", "8")),
        (
            replace(CONFIG, item_m=48, pack_rows=False),
            replace(PROBLEM, k=90),
            ("item_m=48 item_n=32", "10 tiles"),
        ),
        (replace(CONFIG, within=True), replace(PROBLEM, trans_b=True), ("b is", "within=False")),
        (replace(CONFIG, within=True, tile_k=2048), PROBLEM, ("tile_k=2048", "32768")),
        (replace(CONFIG, item_m=32), replace(PROBLEM, m=20), ("item_m=32", "m=20")),
        (replace(CONFIG, swap=True), replace(PROBLEM, n=20), ("item_n=32", "n=20")),
        (replace(CONFIG, order="k"), PROBLEM, ("order='k'",)),
        (replace(CONFIG, tile_k=40), PROBLEM, ("tile_k=40", "32")),
        (replace(CONFIG, pack_rows=False), replace(PROBLEM, trans_a=True), ("a is not", "True")),
        (replace(CONFIG, pack_rows=False, swap=True), PROBLEM, ("b is not", "pack_rows=True")),
        (replace(CONFIG, split_k=300), PROBLEM, ("split_k=300", "k=400")),
    ],
)
def test_refusals_name_the_numbers(
    config: gemm_amx.Config, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    reason = config.why_not(problem, XEON)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_processors_that_showed_the_instruction_are_served() -> None:
    assert TILES in (gemm_amx.DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert not gemm_amx.serves(replace(PROBLEM, dtype="fp32"))
    assert len(space_of("gemm_amx", PROBLEM, Limits())) == 0
    assert gemm_amx.guesses(PROBLEM, Limits()) == []
    for text in ("1024x1024x1024:bf16", "197x768x768:bf16:nt", "16x4096x4096:bf16:tt"):
        problem = parse_gemm(text)
        assert gemm_amx.DEFAULT.why_not(problem, XEON) is None
        assert len(space_of("gemm_amx", problem, XEON)) > 4
        assert len(seeds_of("gemm_amx", problem, XEON)) >= 2


def test_vectors_keep_what_leaves_tiles_empty() -> None:
    limits = replace(XEON, instructions=XEON.instructions | {gemm_pairs.INSTRUCTION})
    for size in ({"m": 7}, {"n": 7}, {"k": 31}, {"m": 16, "n": 32, "k": 64}, {"dtype": "fp16"}):
        few = replace(PROBLEM, **size)
        assert not are_fastest(few, limits), size
    assert gemm_pairs.guesses(replace(PROBLEM, m=7), limits)
    assert are_fastest(PROBLEM, limits)
    for family in (gemm_pairs, gemm_register, gemm_dot):
        assert family.guesses(PROBLEM, limits) == []


def test_a_process_that_may_not_use_tiles_is_offered_none(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may show the instruction where its parent gets no permission."""
    monkeypatch.setattr(system, "allows_tiles", lambda: False)
    assert TILES not in runtimes.instructions(device.info.runtime_version, device.info.name)


def test_no_other_system_is_asked_for_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not system.allows_tiles.__wrapped__()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not system.allows_tiles.__wrapped__()


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("role", ["a", "b"])
def test_packing_fills_up_k_with_zeros(device: Device, role: str, trans: bool) -> None:
    problem = GemmProblem(57, 57, 75, dtype="bf16", trans_a=trans, trans_b=trans, batch=2)
    config = replace(CONFIG, item_n=16)
    packed = config.packed(problem)[role]
    shape = problem.buffers[role]
    stored = np.arange(1, np.prod(shape) + 1, dtype=np.uint16).reshape(shape)
    out = np.full(packed.bytes // 2, 0xFFFF, np.uint16)
    buffers = {role: device.upload(stored), packed.workspace: device.upload(out)}
    packs = [
        one for one in gemm_amx.plan(problem, config).launches if one.kernel == packed.workspace
    ]
    device.prepare(Plan(tuple(packs)), buffers).run()
    got = device.download(buffers[packed.workspace], out)
    along_k = stored if trans == (role == "b") else stored.swapaxes(1, 2)
    rows = 57 if role == "a" else 64
    want = np.zeros((2, rows, 96), np.uint16)
    want[:, :57, :75] = along_k
    if role == "b":
        # past the last column a panel holds any items
        got = got.reshape(2, 4, 48, 16, 2).swapaxes(2, 3).reshape(2, 64, 96)
        got[:, 57:] = 0
    assert np.array_equal(got.ravel(), want.ravel())


@pytest.mark.parametrize("config", AMXES)
def test_sizes_and_transposes(tiled: Device, config: gemm_amx.Config) -> None:
    tried = 0
    for place, (m, n, k) in enumerate(SIZES):
        free = config.pack_rows
        problem = GemmProblem(
            m, n, k, dtype="bf16",
            trans_a=(free or config.swap) and place % 2 == 1,
            trans_b=place > 1 if free or not config.swap else True,
        )  # fmt: skip
        if config.within:  # what a work-item packs does not lie along k
            trans_a = config.swap or problem.trans_a
            problem = replace(problem, trans_a=trans_a, trans_b=config.swap and problem.trans_b)
        if not config.why_not(problem, tiled.limits):
            assert_right(tiled, problem, config)
            tried += 1
    assert tried >= 2


@pytest.mark.parametrize("k", [1, 3, STEP + 1, 2 * STEP - 1, 301])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("dtype", PRODUCTS)
def test_the_last_of_an_odd_number_of_steps_is_added_by_vectors(
    tiled: Device, dtype: str, swap: bool, k: int
) -> None:
    if PRODUCTS[dtype] not in tiled.limits.instructions:
        pytest.skip(f"{tiled.name} has no {PRODUCTS[dtype]}")
    config = replace(CONFIG, item_m=16, item_n=16, tile_k=STEP, pack_rows=False, swap=swap)
    slices = (1,) if k <= STEP else (1, 2)
    for m, split_k in product((9, 37), slices):
        problem = GemmProblem(m, 21, k, dtype=dtype, trans_a=swap, trans_b=swap, batch=2)
        assert_right(tiled, problem, replace(config, split_k=split_k))
        if not swap:
            assert_right(tiled, problem, replace(config, within=True, split_k=split_k))


@pytest.mark.parametrize("config", AMXES)
def test_products_of_fp16(tiled: Device, config: gemm_amx.Config) -> None:
    if PRODUCTS["fp16"] not in tiled.limits.instructions:
        pytest.skip(f"{tiled.name} has no {PRODUCTS['fp16']}")
    for m, n, k in SIZES:
        problem = GemmProblem(m, n, k, dtype="fp16", trans_b=config.swap)
        if not config.why_not(problem, tiled.limits):
            assert_right(tiled, problem, config)


@pytest.mark.parametrize("problem", [*BATCHES, *EPILOGUES], ids=label)
@pytest.mark.parametrize("swap", [False, True])
def test_batches_and_epilogues(tiled: Device, problem: GemmProblem, swap: bool) -> None:
    assert_right(tiled, replace(problem, dtype="bf16"), replace(CONFIG, item_n=16, swap=swap))


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_pointwise_convolutions(tiled: Device, direction: Any, layout: Any) -> None:
    problem = ConvProblem(2, 5, 4, 3, 7, 1, 1, dtype="bf16", direction=direction, layout=layout)
    assert_right(tiled, problem, FAMILIES["conv_as_gemm_amx"].DEFAULT)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("pack_rows", [False, True])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("k", [STEP + 6, STEP + 7])
def test_nothing_around_a_view_is_read_or_written(
    tiled: Device, k: int, within: bool, pack_rows: bool, swap: bool
) -> None:
    turned = swap and within
    problem = replace(BASE, n=41, k=k, dtype="bf16", batch=2, trans_a=turned, trans_b=swap)
    config = replace(CONFIG, pack_rows=pack_rows, swap=swap, within=within)
    assert config.why_not(problem, tiled.limits) is None
    check_view(tiled, problem, Variant("gemm_amx", config))
