"""What `gemm_mma` says anywhere, packs on any device, and computes where there are matrix units."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families.gemm import gemm_mma
from oclgen.families.gemm.gemm_mma_tiles import pack
from oclgen.families.gemm.gemm_tail import Tail
from oclgen.families.parts.mma_shapes import WIDE, Shape
from oclgen.families.parts.mma_staging import Staging
from oclgen.keys import parse_gemm, parse_key
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import TOLERANCE, Bench, compare, decode, encode
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl import byte_dots, probe, ptx
from oclgen.opencl.device import Device
from oclgen.opencl.fragments import UNITS
from oclgen.opencl.sub_groups import SUB_GROUPS
from oclgen.plan import Plan
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from search_spaces.space import seeds_of, space_of
from tests.oclgen import mma_emulated
from tests.oclgen.gemm_cases import BASE, BATCHES, EPILOGUES, MMA, MMAS, SIZES, WGMMA, label
from tests.oclgen.views_of_products import check_view

HOPPER = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma"}),
)  # fmt: skip
OF_OTHERS = {*UNITS, *SUB_GROUPS, *byte_dots.INSTRUCTIONS} - {"dp4a"}
"""Instructions of other makers' GPUs; `dp4a` is NVIDIA's."""
PROBLEM = GemmProblem(200, 300, 400, dtype="bf16")
CHANGES: dict[str, dict[str, Any]] = {
    "mma": {
        "tile_m": 128, "tile_n": 128, "tile_k": 32, "warps_m": 4, "warps_n": 4, "stages": 3,
        "split_k": 2, "group_m": 2, "pack_a": True, "pack_b": True,
    },
    "wgmma": {
        "unit": "mma", "tile_m": 128, "tile_n": 128, "tile_k": 32, "warps_m": 8, "warps_n": 2,
        "stages": 4, "pending": 1, "split_k": 2, "group_m": 2, "pack_a": True, "pack_b": True,
    },
}  # fmt: skip
COMPANIONS: dict[str, dict[str, Any]] = {
    name: {"tile_m": 128, "tile_n": 128} for name in ("warps_m", "warps_n")
}
"""What a parameter needs beside it to be valid."""


@pytest.mark.parametrize("base", [MMA, WGMMA], ids=["mma", "wgmma"])
def test_every_parameter_changes_the_text(base: gemm_mma.Config) -> None:
    known = {field.name for field in fields(base)} - set(Tail._fields)  # see test_gemm_tail
    assert set(CHANGES[base.unit]) == known - ({"unit", "pending"} if base.unit == "mma" else set())
    for name, value in CHANGES[base.unit].items():
        first = replace(base, **COMPANIONS.get(name, {}))
        second = replace(first, **{name: value})
        for config in (first, second):
            assert config.why_not(PROBLEM, HOPPER) is None, config.why_not(PROBLEM, HOPPER)
        one, other = (gemm_mma.plan(PROBLEM, config).launches for config in (first, second))
        assert [launch.source for launch in one] != [launch.source for launch in other], name


@pytest.mark.parametrize(
    ("config", "problem", "words"),
    [
        (replace(WGMMA, unit="mfma"), PROBLEM, ("mfma", "cp_async, mma, wgmma")),
        (replace(MMA, tile_m=24), PROBLEM, ("16 x 16", "12 x 32")),
        (replace(WGMMA, tile_m=96), PROBLEM, ("64 x 8", "96 x 64")),
        (replace(WGMMA, warps_m=2), PROBLEM, ("four warps", "warps_m=2")),
        (replace(WGMMA, tile_n=512), PROBLEM, ("512 columns", "256")),
        (replace(MMA, tile_m=256, tile_n=128), PROBLEM, ("128 work-items", "256 acc", "128 fit")),
        (replace(MMA, pending=1), PROBLEM, ("pending=1",)),
        (replace(WGMMA, stages=2, pending=1), PROBLEM, ("stages=2", "pending=1")),
        (replace(MMA, tile_k=128), PROBLEM, ("tile_k=128", "256 B")),
        (replace(MMA, tile_k=8), PROBLEM, ("16 B", "32, 64 or 128")),
        (replace(MMA, tile_n=192, tile_k=32, warps_n=4), PROBLEM, ("blocks of 48", "panels of 64")),
        (replace(MMA, tile_m=48, tile_k=64, warps_m=1, warps_n=4, pack_a=True), PROBLEM, ("64 r",)),
        (WGMMA, replace(PROBLEM, dtype="tf32"), ("tf32", "unit=mma")),
        (replace(MMA, tile_m=128, tile_n=128, tile_k=32, stages=3), PROBLEM, ("49152", "48128")),
        (replace(MMA, split_k=40), PROBLEM, ("split_k=40", "k=400", "split_k=25")),
    ],
)  # fmt: skip
def test_refusals_name_the_numbers(
    config: gemm_mma.Config, problem: GemmProblem, words: tuple[str, ...]
) -> None:
    reason = config.why_not(problem, HOPPER)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_devices_that_showed_the_instructions_are_served() -> None:
    assert gemm_mma.DEFAULT.why_not(PROBLEM, HOPPER) is None
    assert "none" in (gemm_mma.DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert not gemm_mma.serves(GemmProblem(64, 64, 64))
    assert len(space_of("gemm_mma", PROBLEM, Limits())) == 0
    assert seeds_of("gemm_mma", PROBLEM, Limits()) == []


@pytest.mark.parametrize("dtype", gemm_mma.DTYPES_SERVED)
@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16, 4096, 4096)], ids=["square", "skinny"])
def test_the_space_holds_both_units_and_the_seeds(dtype: str, size: tuple[int, int, int]) -> None:
    problem = GemmProblem(*size, dtype=dtype, trans_b=True)
    space, seeds = space_of("gemm_mma", problem, HOPPER), seeds_of("gemm_mma", problem, HOPPER)
    assert {space.config(row).unit for row in range(0, len(space), 7)} == {"mma", "wgmma"}
    assert len(seeds) >= 4
    assert all(seed.why_not(problem, HOPPER) is None for seed in seeds)


@pytest.mark.parametrize("config", MMAS)
def test_launches_read_what_the_packing_wrote(config: gemm_mma.Config) -> None:
    plan = gemm_mma.plan(PROBLEM, config)
    assert config.why_not(PROBLEM, HOPPER) is None
    assert sum(launch.kernel.startswith("packed") for launch in plan.launches) == (
        config.pack_a + config.pack_b
    )
    product = next(launch for launch in plan.launches if launch.kernel == gemm_mma.NAME)
    assert product.local_bytes == config.local_bytes(PROBLEM) <= HOPPER.local_bytes
    assert ptx.target_of(product.source) == ("sm_90a" if config.unit == "wgmma" else "")
    computed = product.global_size[0] // config.work_items * config.tile_m * config.tile_n
    assert computed >= PROBLEM.m * PROBLEM.n


def packed(layout: Any, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return op(operand) [batch, rows, k] as `Layout` says it lies: the slow, obvious way."""
    batch, rows, k = matrix.shape
    chunk = 16 // layout.elem_bytes
    tiles, steps = -(-rows // layout.tile), -(-k // layout.tile_k)
    whole = np.zeros((batch, tiles * layout.tile, steps * layout.tile_k), matrix.dtype)
    whole[:, :rows, :k] = matrix
    cut = whole.reshape(batch, tiles, layout.tile, steps, layout.tile_k // chunk, chunk)
    cut = cut.swapaxes(2, 3)
    lie = np.empty_like(cut)
    for row in range(layout.tile):
        for index in range(layout.tile_k // chunk):
            moved = index ^ (row * layout.row_bytes // 128 % (layout.row_bytes // 16))
            lie[..., row, moved, :] = cut[..., row, index, :]
    return lie


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
@pytest.mark.parametrize("trans", [False, True])
def test_packing_pads_turns_and_swizzles(device: Device, dtype: str, trans: bool) -> None:
    problem = GemmProblem(97, 104, 75, dtype=dtype, trans_a=trans, trans_b=trans, batch=2)
    rng = np.random.default_rng(0)
    for role, tile_k in (("a", 16), ("b", 32)):
        config = replace(MMA, tile_k=tile_k, pack_a=True, pack_b=True)
        tiles, layout = config.packed(problem)[role], config.layout(problem, role)
        values = rng.standard_normal(problem.buffers[role], dtype=np.float32)
        stored = encode(values, dtype)
        out = np.empty(tiles.bytes // layout.elem_bytes, stored.dtype)
        buffers = {role: device.upload(stored), tiles.workspace: device.upload(out)}
        device.prepare(Plan((pack(tiles, layout),)), buffers).run()
        got = device.download(buffers[tiles.workspace], out)
        turned = stored.swapaxes(1, 2) if trans == (role == "a") else stored
        want = packed(layout, turned).ravel()
        if dtype == "tf32":
            assert not (got.view(np.uint32) & 0x1FFF).any()
            assert np.abs(got - want).max() <= 2.0**-12 * 4
        else:
            assert np.array_equal(got, want)


ODD = (
    replace(MMA, tile_n=96, tile_k=32),
    replace(MMA, tile_n=80, tile_k=32, warps_n=1, stages=3, pack_a=True),
    replace(WGMMA, tile_m=128, tile_n=128, stages=2, split_k=2),
    replace(WGMMA, tile_n=128, stages=2),
)
"""Results of rows that banks do not divide, and of more bytes than the tiles have."""
CONFIGS = (*MMAS, *ODD)
EDGES = (*SIZES, (130, 72, 104), (70, 96, 200))


def assert_right(device: Device, problem: GemmProblem, config: gemm_mma.Config) -> None:
    """Compare with float64."""
    measurement = Bench(device, problem).measure(gemm_mma.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.fixture(params=["emulated", "units"])
def able(request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device with matrix units: in plain OpenCL C on all, its own where it has them."""
    if request.param == "emulated":
        mma_emulated.emulate(monkeypatch)
    elif not {"mma", "wgmma"} <= device.limits.instructions:
        pytest.skip(f"{device.name} has no matrix units")
    return device


def case(number: int) -> tuple[GemmProblem, gemm_mma.Config]:
    """Return a product and a config for it; sizes, dtypes, transposes and configs go round."""
    m, n, k = EDGES[number % len(EDGES)]
    dtype = gemm_mma.DTYPES_SERVED[number % 3]
    problem = GemmProblem(m, n, k, dtype, trans_a=number % 2 == 1, trans_b=number // 2 % 2 == 1)
    configs = (*CONFIGS[number % len(CONFIGS) :], *CONFIGS)
    return problem, next(each for each in configs if each.why_not(problem, HOPPER) is None)


def dealt(device: Device, cases: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all cases for units, and half of them for an emulation: the next device has others."""
    return cases[device.index % 2 :: 2] if gemm_mma.units is mma_emulated.units else cases


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(0, 3 * len(CONFIGS), 2))
def test_sizes_dtypes_and_transposes(able: Device, number: int) -> None:
    for each in dealt(able, (number, number + 1)):
        assert_right(able, *case(each))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", WIDE, ids=lambda shape: f"{shape.tile_m}x{shape.tile_n}")
def test_wide_shapes(able: Device, shape: Shape) -> None:
    config = gemm_mma.Config(
        shape.unit, shape.tile_m, shape.tile_n, shape.row_bytes // 2, shape.warps_m,
        shape.warps_n, shape.stages, shape.pending, 1, 8, False, False,
    )  # fmt: skip
    problem = GemmProblem(shape.tile_m + 3, shape.tile_n + 8, 300, "bf16", trans_b=True)
    if config.local_bytes(problem) > able.limits.most_local_bytes:
        pytest.skip(f"{able.name} has {able.limits.most_local_bytes} B of local memory")
    assert_right(able, problem, config)


def test_one_text_with_free_sizes_is_right_at_all_of_them(able: Device) -> None:
    free = frozenset(("m", "n", "k"))
    whole = GemmProblem(128, 128, 128, "bf16", trans_b=True, free=free)
    text = gemm_mma.plan(whole, MMA).launches[0].text
    for size in (128, 1, 40, 72, 200):
        problem = replace(whole, m=size, n=size + 8, k=size + 1)
        plan = gemm_mma.plan(problem, MMA)
        plan = replace(plan, launches=tuple(replace(one, text=text) for one in plan.launches))
        measurement = Bench(able, problem).measure(plan, 0.0)
        assert measurement.ok, f"{problem.key()}: {measurement.reason}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("problem", [*BATCHES, *EPILOGUES], ids=label)
def test_batches_and_epilogues(able: Device, problem: GemmProblem) -> None:
    for config in dealt(able, (MMA, replace(WGMMA, tile_m=128, pack_a=True))):
        assert_right(able, replace(problem, dtype="bf16"), config)


PIECES: tuple[tuple[str, int, dict[int, bool]], ...] = (
    ("bf16", 40, {}), ("bf16", 36, {8: False}), ("bf16", 34, {4: False}), ("bf16", 35, {4: True}),
    ("tf32", 40, {}), ("tf32", 34, {8: False}), ("tf32", 35, {4: False}),
)  # fmt: skip
"""Lengths of rows, the bytes of their pieces, and whether rows are shifted."""


@pytest.mark.parametrize(("dtype", "k", "bytes_of"), PIECES)
def test_uneven_rows_are_copied_in_the_largest_pieces(
    dtype: str, k: int, bytes_of: dict[int, bool]
) -> None:
    problem = GemmProblem(64, 64, k, dtype, trans_b=True)
    text = gemm_mma.plan(problem, MMA).launches[0].source
    for role in "ab":
        pieces = MMA.pieces(problem).get(role)
        assert (pieces is None) == (not bytes_of)
        assert pieces is None or {pieces.bytes: pieces.halved} == bytes_of
    assert set(replace(MMA, pack_a=True).pieces(problem)) == ({"b"} if bytes_of else set())
    assert all((f"void copy_piece{size}(" in text) == (size in bytes_of) for size in (4, 8))
    # by elements only what a view may misalign: neither words nor rows that are shifted
    of_views = not bytes_of or 4 not in bytes_of or (dtype == "bf16" and not bytes_of[4])
    assert ("void copy_elements" in text) == of_views
    assert ("shift_a(" in text) == any(bytes_of.values())
    assert MMA.pieces(replace(problem, free=frozenset("k"))) == {}


@pytest.mark.parametrize(
    ("problem", "config", "is_shifted"),
    [
        (GemmProblem(64, 97, 64, "bf16"), MMA, True),
        (GemmProblem(64, 98, 64, "tf32"), MMA, True),
        (GemmProblem(64, 100, 64, "bf16"), MMA, True),
        # planes are of fp32; whole chunks; rows of any length; parts of rows
        (GemmProblem(64, 100, 64, "bf16"), replace(MMA, split_k=2), False),
        (GemmProblem(64, 100, 64, "tf32"), MMA, False),
        (GemmProblem(64, 97, 64, "bf16", free=frozenset("n")), MMA, False),
        (
            GemmProblem(64, 297, 64, "bf16"),
            replace(WGMMA, tile_m=128, tile_n=128, warps_n=2, stages=2, split_k=2),
            False,
        ),
    ],
)
def test_uneven_rows_of_results_leave_by_whole_chunks(
    problem: GemmProblem, config: gemm_mma.Config, is_shifted: bool
) -> None:
    source = gemm_mma.plan(problem, config).launches[-1 - (config.split_k > 1)].source
    assert config.staging(problem).has_whole_rows or not is_shifted
    assert ("= shifted(" in source) == is_shifted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize(("dtype", "length"), [("bf16", 1), ("fp16", 2), ("bf16", 4), ("tf32", 1)])
def test_uneven_rows(able: Device, dtype: str, length: int, trans: bool) -> None:
    """Of both operands, then of one beside an even one; slices of k; more rows than work-items."""
    wide = replace(MMA, tile_m=128, tile_k=64, warps_m=1)
    for number, config in enumerate((replace(MMA, split_k=2), wide, WGMMA)):
        m, n, k = (size + length for size in (72, 40, 40 + 8 * number))
        problem = GemmProblem(m, n, k, dtype, trans_a=trans, trans_b=number % 2 == 0)
        one = problem if number else replace(problem, m=72, k=48 if trans else k)
        if config.why_not(one, HOPPER) is None:
            assert_right(able, one, config)


@pytest.mark.parametrize(
    ("n", "first", "beyond"), [(90, 3, 5), (90, 8, 6), (88, 8, 8), (91, 3, 5), (91, 4, 4)]
)
def test_views_need_not_be_aligned(able: Device, n: int, first: int, beyond: int) -> None:
    """Matrices start inside their buffers, rows lie apart; nothing beside C is written."""
    problem = GemmProblem(70, n, 40, dtype="bf16", batch=2, bias="n", activation="relu")
    exact = {
        role: decode(encode(array, problem.dtype), problem.dtype)
        for role, array in random_inputs(problem, 0).items()
    }
    want, shapes = reference(problem, exact), problem.buffers
    apart = {role: shapes[role][-1] + beyond for role in "abc"}
    stored = {}
    for role, shape in shapes.items():
        rows = np.full((*shape[:-1], apart.get(role, shape[-1])), 7.0, np.float32)
        rows[..., : shape[-1]] = exact.get(role, 7.0)
        stored[role] = encode(np.pad(rows.ravel(), (first, 0), constant_values=7.0), problem.dtype)
    scalars = {f"ld_{role}": ld for role, ld in apart.items()}
    scalars |= {f"batch_{role}": shapes[role][1] * ld for role, ld in apart.items()}
    for config in dealt(able, (MMA, replace(WGMMA, tile_n=128, stages=2))):
        buffers = {role: able.upload(array) for role, array in stored.items()}
        offsets = dict.fromkeys(buffers, first)
        able.prepare(gemm_mma.plan(problem, config), buffers, offsets, scalars).run()
        out = decode(able.download(buffers["c"], stored["c"]), problem.dtype)
        got = out[first:].reshape(2, problem.m, apart["c"])
        assert (out[:first] == 7.0).all()
        assert (got[..., n:] == 7.0).all()
        assert not compare(got[..., :n], want, TOLERANCE[problem.dtype])[1]


def test_a_view_misaligns_pieces_of_two_elements(able: Device) -> None:
    """Rows of 18 elements are copied by 8 bytes, and those of the view by elements of 4."""
    check_view(
        able, GemmProblem(18, 48, 33, "tf32", trans_a=True, batch=2), Variant("gemm_mma", MMA)
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_results_leave_in_the_largest_parts_that_fit(config: gemm_mma.Config) -> None:
    for problem in (PROBLEM, replace(PROBLEM, dtype="tf32", trans_b=True)):
        if config.why_not(problem, HOPPER) is None:
            part, room = config.staging(problem), config.local_bytes(problem)
            assert len(part.parts) * part.rows * part.columns == config.tile_m * config.tile_n
            assert part.bytes <= room
            assert len(part.parts) == 1 or 3 * part.bytes > room


@pytest.mark.parametrize("result_bytes", [2, 4])
@pytest.mark.parametrize("columns", [8, 16, 24, 64, 80, 96, 128, 192, 256])
def test_neither_staging_nor_storing_meets_a_bank_twice(columns: int, result_bytes: int) -> None:
    part = Staging(64, columns, 64, columns, 64, columns, result_bytes)
    lanes = [(lane // 4, 2 * (lane % 4)) for lane in range(16 if result_bytes == 4 else 32)]
    words = {(part.line_bytes * row + result_bytes * column) // 4 for row, column in lanes}
    banks = {word % 32 for word in words | {word + result_bytes // 4 for word in words}}
    assert len(banks) == 32
    assert part.line_bytes % 16 == 0
    assert part.line_bytes >= columns * result_bytes


def test_tf32_keys_and_short_forms() -> None:
    problem = replace(BASE, dtype="tf32")
    assert parse_key(problem.key()) == problem
    assert parse_gemm("17x24x19:tf32") == problem
    assert problem.bytes == BASE.bytes


def test_tf32_is_rounded_no_more_than_it_may(device: Device) -> None:
    problem = GemmProblem(33, 65, 129, dtype="tf32")
    values = np.array([1.0, 1 + 2**-20], np.float32)
    assert np.array_equal(decode(encode(values, "tf32"), "tf32"), values)
    from oclgen.families.gemm import gemm_register  # serves any dtype on any device

    plan = gemm_register.plan(problem, gemm_register.DEFAULT)
    assert Bench(device, problem).measure(plan, 0.0).error < 1e-6


def test_only_compilers_that_know_ptx_are_asked() -> None:
    assert probe.probes(["cl_khr_fp16", "cl_khr_fp64"]) == {}
    asked = probe.probes(["cl_nv_device_attribute_query"])
    assert set(asked) == set(probe.ANSWERS) - set(probe.FATAL) - OF_OTHERS
    assert ptx.target_of(asked["wgmma"].launches[0].source) == "sm_90a"


def test_probed_instructions_are_those_that_answered(device: Device) -> None:
    nvidia = any(name.startswith("cl_nv_") for name in device.limits.extensions)
    others = device.limits.instructions - set(probe.FATAL)
    assert nvidia or others <= OF_OTHERS
    assert device.limits.kind == "cpu" or device.limits.instructions == others
