"""What `gemm_async` says anywhere, and computes where the device has `cp.async`."""

from __future__ import annotations

from dataclasses import fields, replace
from math import prod
from typing import Any

import numpy as np
import pytest

from oclgen.families.gemm import gemm_async
from oclgen.families.gemm.gemm_async_text import Text
from oclgen.families.gemm.gemm_tiles import tiles_of
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.plan import Plan
from oclgen.problem import GemmProblem
from search_spaces.gemm.gemm_async import values
from search_spaces.space import PRODUCT_LIMIT, seeds_of, space_of
from tests.oclgen.cp_async_in_c import in_plain_c
from tests.oclgen.gemm_cases import (
    ASYNC,
    ASYNCS,
    BASE,
    BATCHES,
    EPILOGUES,
    GATHERED,
    SHARING,
    SIZES,
    label,
)

AMPERE = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 108, 1,
    instructions=frozenset({"cp_async", "mma"}),
)  # fmt: skip
PROBLEM = GemmProblem(200, 300, 400, trans_b=True)
CHANGES: dict[str, Any] = {
    "tile_m": 64, "tile_n": 64, "tile_k": 16, "local_m": 4, "local_n": 16, "warp_m": 8,
    "pad_a": 0, "pad_b": 4, "stages": 3, "split_k": 2, "group_m": 2, "pack_a": True, "pack_b": True,
    "local_k": 2, "order": "n", "groups": 24,
}  # fmt: skip
COMPANIONS: dict[str, dict[str, Any]] = {"local_n": {"tile_n": 64}, "pack_a": {"pad_a": 0}}
"""What a parameter needs beside it to be valid."""


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(ASYNC)}
    for name, value in CHANGES.items():
        first = replace(ASYNC, **COMPANIONS.get(name, {}))
        second = replace(first, **{name: value})
        for config in (first, second):
            assert config.why_not(PROBLEM, AMPERE) is None, config.why_not(PROBLEM, AMPERE)
        one, other = (gemm_async.plan(PROBLEM, config).launches for config in (first, second))
        assert [launch.source for launch in one] != [launch.source for launch in other], name


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(ASYNC, tile_m=40), ("tile_m=40", "local_m=8")),
        (replace(ASYNC, warp_m=16), ("warp_m=16", "local_m=8")),
        (replace(ASYNC, local_n=12, tile_n=48), ("warp_m=4 puts 8", "local_n=12")),
        (replace(ASYNC, tile_m=128, tile_n=128), ("256 acc", "at most 128")),
        (replace(ASYNC, stages=1), ("stages=1",)),
        (replace(ASYNC, pad_a=2), ("pad_a=2",)),
        (replace(ASYNC, local_k=8), ("tile_k=8", "local_k=8")),
        (replace(ASYNC, tile_m=64, tile_n=64, tile_k=32, local_k=16), ("1024", "96", "65536")),
        (replace(ASYNC, order="k"), ("order='k'",)),
        (replace(ASYNC, tile_k=24), ("64 work-items", "tile of a", "tile_k=24")),
        (replace(ASYNC, tile_k=64, stages=4), ("69632", "48128")),
        (replace(ASYNC, split_k=80), ("split_k=80", "k=400")),
        (replace(ASYNC, pack_a=True), ("pack_a", "pad_a=4")),
        (replace(ASYNC, groups=9, split_k=2), ("groups=9", "split_k=2")),
        (replace(ASYNC, groups=3501), ("groups=3501", "3500 steps")),
    ],
)
def test_refusals_name_the_numbers(config: gemm_async.Config, words: tuple[str, ...]) -> None:
    reason = config.why_not(PROBLEM, AMPERE)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_devices_that_copy_so_are_served() -> None:
    assert gemm_async.DEFAULT.why_not(PROBLEM, AMPERE) is None
    assert "none" in (gemm_async.DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert gemm_async.serves(replace(BASE, dtype="tf32"))
    assert not gemm_async.serves(replace(BASE, dtype="fp16"))
    assert len(space_of("gemm_async", PROBLEM, Limits())) == 0
    assert len(space_of("gemm_async", PROBLEM, AMPERE)) > 100
    for problem in (GemmProblem(4096, 4096, 4096), GemmProblem(128, 4096, 4096), PROBLEM):
        seeds = seeds_of("gemm_async", problem, AMPERE)
        assert any(seed.groups for seed in seeds)
        assert len(seeds) >= 4
        assert all(seed.why_not(problem, AMPERE) is None for seed in seeds)


@pytest.mark.parametrize("m", [1, 48, 63, 1024, 4096])
@pytest.mark.parametrize("n", [48, 63, 1024, 4096])
def test_no_problem_has_more_values_than_are_enumerated(m: int, n: int) -> None:
    worth_trying = values(GemmProblem(m, n, 8192, trans_b=True), AMPERE)
    assert prod(map(len, worth_trying.values())) <= PRODUCT_LIMIT
    assert 0 in worth_trying["groups"]


@pytest.mark.parametrize("tile", [16, 64])
@pytest.mark.parametrize("role", ["a", "b"])
def test_packing_turns_and_pads(device: Device, role: str, tile: int) -> None:
    """Work-groups take 32 rows: what a tile of 16 leaves of one is written nowhere."""
    problem = GemmProblem(97, 104, 75, trans_b=True, batch=2, shared_b=True)
    tiles = tiles_of(problem, role, tile=tile, tile_k=8)
    stored = np.random.default_rng(0).standard_normal(problem.buffers[role], dtype=np.float32)
    size = tiles.bytes // 4
    out = np.full(size + 16 * 80, np.nan, np.float32)
    buffers = {role: device.upload(stored), tiles.workspace: device.upload(out)}
    device.prepare(Plan((gemm_async.pack(tiles),)), buffers).run()
    batch, rows, k = stored.shape
    whole = np.zeros((batch, tiles.tiles * tile, 80), np.float32)
    whole[:, :rows, :k] = stored
    want = whole.reshape(batch, tiles.tiles, tile, 80).swapaxes(2, 3)
    got = device.download(buffers[tiles.workspace], out)
    assert np.array_equal(got[:size], want.ravel())
    assert np.isnan(got[size:]).all()


def assert_right(device: Device, problem: GemmProblem, config: gemm_async.Config) -> None:
    """Compare with float64, or skip where the device lacks the instruction."""
    if "cp_async" not in device.limits.instructions:
        pytest.skip(f"{device.name} has no cp.async")
    assert config.why_not(problem, device.limits) is None
    measurement = Bench(device, problem).measure(gemm_async.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.mark.parametrize("config", ASYNCS)
def test_sizes_and_transposes(device: Device, config: gemm_async.Config) -> None:
    for place, (m, n, k) in enumerate((*SIZES, (130, 72, 104))):
        packed = config.pack_a or config.pack_b
        trans_a, trans_b = place % 2 == 1, place % 4 > 1
        problem = GemmProblem(m, n, k, trans_a=trans_a and not packed, trans_b=trans_b or packed)
        if config.split_k == 1 or k > 2 * config.tile_k:
            assert_right(device, problem, config)


@pytest.mark.parametrize("problem", [*BATCHES, *EPILOGUES], ids=label)
def test_batches_and_epilogues(device: Device, problem: GemmProblem) -> None:
    assert_right(device, problem, ASYNC)


@pytest.mark.parametrize(("problem", "config"), GATHERED, ids=range(len(GATHERED)))
def test_uneven_rows_leave_through_local_memory(
    device: Device, problem: GemmProblem, config: gemm_async.Config
) -> None:
    plan = shared(device, problem, config)
    assert "tiles[i]" in plan.launches[0].source
    measurement = Bench(device, problem).measure(plan, 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.mark.parametrize(
    ("problem", "config"),
    [
        (GemmProblem(33, 44, 7), ASYNC),
        (GemmProblem(33, 45, 7, free=frozenset("n")), ASYNC),
        (GemmProblem(33, 45, 70), replace(ASYNC, split_k=2)),
        (GemmProblem(33, 45, 70), replace(ASYNC, tile_k=8, local_k=2)),
        (GemmProblem(33, 45, 70), replace(ASYNC, tile_n=256, tile_k=2, local_n=16)),
    ],
)
def test_others_are_stored_from_registers(problem: GemmProblem, config: gemm_async.Config) -> None:
    """Aligned rows, rows that may be, sums in local memory, and tiles that hold not one row."""
    assert not Text(problem, config).gathers


def test_more_steps_than_an_int_counts_are_refused() -> None:
    large = GemmProblem(2**16, 2**16, 2**13)
    sharing = replace(ASYNC, groups=132)
    assert sharing.why_not(replace(large, k=2**11), AMPERE) is None
    assert "4294967296 steps" in (sharing.why_not(large, AMPERE) or "")


def shared(device: Device, problem: GemmProblem, config: gemm_async.Config) -> Plan:
    """Return the plan, in plain C where the device lacks the instructions, or skip."""
    if config.groups and config.local_k > 1 and "Portable" in device.info.runtime:
        pytest.skip(
            "PoCL 3.1 and 7.1 compute loops under a condition wrong where a barrier is conditional "
            "too; other runtimes and oclgrind's watch for races agree"
        )
    shown = replace(device.limits, instructions=frozenset({"cp_async"}))
    assert config.why_not(problem, shown) is None
    plan = gemm_async.plan(problem, config)
    return plan if "cp_async" in device.limits.instructions else in_plain_c(plan)


@pytest.mark.parametrize("case", SHARING, ids=range(len(SHARING)))
def test_work_groups_share_tiles(device: Device, case: tuple[GemmProblem, Any]) -> None:
    problem, config = case
    plan = shared(device, problem, config)
    products = [launch for launch in plan.launches if not launch.kernel.startswith("packed")]
    assert len(products) == 1
    measurement = Bench(device, problem).measure(plan, 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


def test_sums_do_not_depend_on_who_comes_last(device: Device) -> None:
    problem, config = SHARING[1]
    bench = Bench(device, problem)
    like = np.empty(problem.buffers["c"], np.float32)
    out = device.upload(like)
    prepared = device.prepare(shared(device, problem, config), {**bench.buffers, "c": out})
    results = []
    for _ in range(20):
        prepared.run()
        results.append(device.download(out, like))
    assert all(np.array_equal(results[0], result) for result in results)
