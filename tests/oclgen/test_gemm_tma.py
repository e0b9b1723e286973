"""What `gemm_tma` says anywhere, and what it computes where the accelerator is."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from oclgen.families.gemm import gemm_tma
from oclgen.families.gemm.gemm_mma import DTYPES_SERVED
from oclgen.families.gemm.gemm_tail import Tail
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl import probe, ptx
from oclgen.opencl.device import Device
from oclgen.plan import Scalar
from oclgen.problem import GemmProblem
from search_spaces.space import seeds_of, space_of
from tests.oclgen.gemm_cases import BATCHES, EPILOGUES, SIZES, label

HOPPER = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma", "tma"}),
)  # fmt: skip
PROBLEM = GemmProblem(200, 320, 400, dtype="bf16")
TMA = gemm_tma.Config(
    tile_m=64, tile_n=64, groups=1, ahead=1, stages=3, split_k=1, group_m=1, pack_a=False,
    pack_b=False,
)  # fmt: skip
TMAS = (
    TMA,
    replace(TMA, ahead=3, stages=5, split_k=2, group_m=8, pack_a=True),
    replace(TMA, tile_m=256, tile_n=128, groups=2, ahead=2, stages=5),
    replace(TMA, tile_m=128, tile_n=128, pack_a=True, pack_b=True),
)
CHANGES: dict[str, Any] = {
    "tile_m": 128, "tile_n": 128, "groups": 2, "ahead": 2, "stages": 4, "split_k": 2, "group_m": 2,
    "pack_a": True, "pack_b": True,
}  # fmt: skip


def test_every_parameter_changes_the_text() -> None:
    base = replace(TMA, tile_m=128, tile_n=64)
    known = {field.name for field in fields(TMA)} - set(Tail._fields)  # see test_gemm_tail
    assert set(CHANGES) == known
    for name, value in {**CHANGES, "tile_m": 256}.items():
        changed = replace(base, **{name: value})
        assert changed.why_not(PROBLEM, HOPPER) is None, changed.why_not(PROBLEM, HOPPER)
        one, other = (gemm_tma.plan(PROBLEM, config).launches for config in (base, changed))
        assert [launch.source for launch in one] != [launch.source for launch in other], name


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(TMA, groups=2), PROBLEM, ("groups=2", "64 rows", "tile_m=64")),
        (replace(TMA, tile_n=48), PROBLEM, ("tile_n=48", "32", "256")),
        (replace(TMA, ahead=3), PROBLEM, ("ahead=3", "stages=3")),
        (replace(TMA, tile_m=192, tile_n=128), PROBLEM, ("192 + 48", "224")),
        (TMA, replace(PROBLEM, trans_a=True), ("along k", "pack_a")),
        (TMA, replace(PROBLEM, dtype="tf32"), ("tf32", "pack_b")),
        (replace(TMA, tile_n=96, pack_b=True), PROBLEM, ("64 columns", "96")),
        (replace(TMA, tile_n=96), PROBLEM, ("tile_n=96", "panels of 64")),
        (replace(TMA, tile_n=128, stages=6), PROBLEM, ("gemm_tma", "49352", "48128")),
        (replace(TMA, split_k=40), PROBLEM, ("split_k=40", "k=400", "split_k=13")),
    ],
)
def test_refusals_name_the_numbers(
    config: gemm_tma.Config, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    reason = config.why_not(problem, HOPPER)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("missing", ["wgmma", "tma"])
def test_only_devices_that_showed_both_instructions_are_served(missing: str) -> None:
    less = replace(HOPPER, instructions=HOPPER.instructions - {missing})
    assert gemm_tma.DEFAULT.why_not(PROBLEM, HOPPER) is None
    assert missing in (gemm_tma.DEFAULT.why_not(PROBLEM, less) or "")
    assert len(space_of("gemm_tma", PROBLEM, less)) == 0
    assert seeds_of("gemm_tma", PROBLEM, less) == []


@pytest.mark.parametrize("dtype", DTYPES_SERVED)
@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16, 4096, 4096), (64, 1001, 333)])
@pytest.mark.parametrize("trans", [False, True])
def test_seeds_pack_what_is_not_read_as_it_lies(
    dtype: str, size: tuple[int, int, int], trans: bool
) -> None:
    problem = GemmProblem(*size, dtype=dtype, trans_a=trans, trans_b=not trans)
    seeds = [s for s in seeds_of("gemm_tma", problem, HOPPER) if s != gemm_tma.DEFAULT]
    assert len(seeds) >= 2
    assert len(space_of("gemm_tma", problem, HOPPER)) > 20
    for seed in seeds:
        assert seed.why_not(problem, HOPPER) is None
        assert seed.pack_a == (trans or problem.k == 333)
        assert seed.pack_b == (problem.k == 333 or (trans and dtype == "tf32"))


@pytest.mark.parametrize("config", TMAS)
def test_each_work_group_has_a_map_unless_b_is_packed(config: gemm_tma.Config) -> None:
    plan = gemm_tma.plan(PROBLEM, config)
    product = next(launch for launch in plan.launches if launch.kernel == gemm_tma.NAME)
    assert config.why_not(PROBLEM, HOPPER) is None
    assert product.local_bytes == config.local_bytes(PROBLEM) <= HOPPER.local_bytes
    assert ptx.target_of(product.source) == "sm_90a"
    groups = product.global_size[0] * product.global_size[2] // config.work_items
    assert dict(plan.workspaces).get("maps", 0) == (0 if config.pack_b else 128 * groups)
    assert groups * config.tile_m * config.tile_n >= PROBLEM.m * PROBLEM.n * config.split_k


def test_slices_are_whole_rounds() -> None:
    config = replace(TMA, ahead=3, stages=5, split_k=2)
    product = gemm_tma.plan(PROBLEM, config).launches[0]
    assert Scalar(288) in product.args, "half of 400 in rounds of 96"


def test_the_probe_asks_for_a_map_made_by_a_kernel() -> None:
    asked = probe.probes(["cl_nv_device_attribute_query"])["tma"].launches[0].source
    assert "tensormap.replace" in asked
    assert ptx.target_of(asked) == "sm_90a"


def assert_right(device: Device, problem: GemmProblem, config: gemm_tma.Config) -> None:
    """Compare with float64, or skip where the device lacks the instructions."""
    if not {"wgmma", "tma"} <= device.limits.instructions:
        pytest.skip(f"{device.name} has no tensor memory accelerator")
    config = replace(
        config,
        pack_a=config.pack_a or problem.trans_a,
        pack_b=config.pack_b or (problem.dtype == "tf32" and not problem.trans_b),
    )
    assert config.why_not(problem, device.limits) is None
    measurement = Bench(device, problem).measure(gemm_tma.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.mark.parametrize("dtype", DTYPES_SERVED)
@pytest.mark.parametrize("config", TMAS)
def test_sizes_and_transposes(device: Device, dtype: str, config: gemm_tma.Config) -> None:
    for place, (m, n, k) in enumerate((*SIZES, (130, 72, 104), (264, 200, 320))):
        problem = GemmProblem(m, n, k, dtype, trans_a=place % 4 == 3, trans_b=place % 2 == 1)
        if config.split_k == 1 or k > 100:
            assert_right(device, problem, config)


@pytest.mark.parametrize("problem", [*BATCHES, *EPILOGUES], ids=label)
def test_batches_and_epilogues(device: Device, problem: GemmProblem) -> None:
    whole: dict[str, Any] = {"m": 72, "n": 40, "k": 80}
    for dtype, size in {"bf16": {}, "fp16": whole, "tf32": whole}.items():
        assert_right(device, replace(problem, dtype=dtype, **size), TMA)
