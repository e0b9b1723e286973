"""Products with packed weights: keys, unpacking to the bit, and the families against float64."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES, valid_configs
from oclgen.families.packed import packed_gemm, packed_lanes, packed_mma, packed_rows
from oclgen.families.packed.packed_formats import TEXTS
from oclgen.families.packed.packed_unpacking import CPU, GPU, unpacking
from oclgen.keys import parse_key, parse_packed, parse_problem
from oclgen.limits import KIB, Limits
from oclgen.measuring.excerpt import excerpt
from oclgen.measuring.measure import Bench, decode, encode
from oclgen.measuring.packed_reference import random_weights, unpacked
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl.device import Device, PreparedPlan
from oclgen.packed_problem import FORMATS
from oclgen.plan import Plan, ceil_div
from oclgen.problem import PackedProblem, ProblemError
from search_spaces.space import space_of
from tests.guessed import valid_guesses
from tests.oclgen.packed_emulated import emulate

H200 = Limits("gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1)
UNITS = replace(H200, instructions=frozenset({"mma", "tma"}))
BASE = PackedProblem(3, 37, 512)
TOKEN = replace(BASE, m=1)
ROWS = (
    (BASE, packed_rows.DEFAULT),
    (replace(BASE, dtype="bf16"), packed_rows.Config(2, 3, 8, 1, 4, 2, 1)),
    (replace(BASE, m=1, dtype="fp16"), packed_rows.Config(1, 4, 16, 16, 1, 1, 4)),
    (replace(BASE, m=9, free=frozenset({"m"})), packed_rows.Config(8, 2, 16, 8, 1, 1, 2)),
    (replace(BASE, m=2), packed_rows.Config(2, 3, 16, 16, 1, 1, 4, loop_n=5, ahead=1024)),
    (replace(BASE, m=1, dtype="bf16"), packed_rows.Config(1, 1, 16, 8, 1, 1, 2, loop_n=8)),
)
LANES = (
    (TOKEN, packed_lanes.Config(2, 16, 2, 4096)),
    (replace(TOKEN, n=48), packed_lanes.Config(1, 8, 3)),
    (replace(TOKEN, dtype="bf16"), packed_lanes.Config(3, 4)),
    (replace(TOKEN, dtype="fp16"), packed_lanes.DEFAULT),
)
AS_LANES = [form for form in FORMATS if packed_lanes.serves(replace(TOKEN, format=form))]
MMAS = (
    (PackedProblem(11, 37, 512, "fp16"), packed_mma.Config(2, 2, 256, 2, 2, 1, groups=1)),
    (PackedProblem(3, 21, 768, "bf16", free=frozenset({"m"})), packed_mma.DEFAULT),
    (PackedProblem(2, 24, 768), packed_mma.Config(1, 2, 256, 2, 2, 2)),
    (PackedProblem(3, 24, 768), packed_mma.Config(1, 1, 256, 3, 3, 1, groups=1)),
    (PackedProblem(1, 37, 768, "bf16"), packed_mma.Config(1, 2, 256, 2, 2, 1)),
    (PackedProblem(1, 24, 1024, "fp16"), packed_mma.Config(1, 1, 512, 2, 2, 1, groups=1)),
    (PackedProblem(4, 21, 768, "fp16"), packed_mma.Config(1, 1, 256, 1, 2, 2)),
    (PackedProblem(9, 37, 1024, "bf16"), packed_mma.Config(1, 1, 256, 2, 2, 1, split_k=2)),
    (PackedProblem(3, 40, 1280), packed_mma.Config(1, 2, 256, 1, 2, 1, split_k=3)),
    (PackedProblem(5, 72, 1280), packed_mma.Config(1, 1, 256, 3, 2, 1, groups=2, split_k=2)),
)

DIRECT = (
    (PackedProblem(3, 37, 768, "bf16"), packed_mma.Config(1, 1, 256, 3, 1, 1)),
    (PackedProblem(8, 72, 1280), packed_mma.Config(1, 1, 256, 3, 1, 1, groups=2, split_k=2)),
    (PackedProblem(1, 40, 1280, "fp16"), packed_mma.Config(1, 2, 256, 2, 1, 2)),
    (PackedProblem(11, 37, 1024, "bf16"), packed_mma.Config(2, 1, 256, 2, 1, 1, groups=1)),
    (PackedProblem(2, 24, 512, "fp16"), packed_mma.Config(1, 1, 512, 1, 1, 1)),
)
"""Weights that go to registers without local memory."""
BULK = (
    (PackedProblem(3, 37, 768, "bf16"), packed_mma.Config(1, 1, 256, 3, 2, 1, bulk=1)),
    (PackedProblem(8, 72, 1280), packed_mma.Config(1, 1, 256, 4, 2, 1, 2, 2, bulk=2)),
    (PackedProblem(1, 40, 1024, "fp16"), packed_mma.Config(1, 2, 256, 4, 3, 1, bulk=4)),
    (PackedProblem(11, 69, 1024, "bf16"), packed_mma.Config(2, 1, 256, 4, 2, 1, 1, bulk=2)),
)
"""Rows of tiles that are bulk copies: of one warp, and of several together."""
AS_DIRECT = [form for form in FORMATS if packed_mma.tile(replace(BASE, format=form), 256).is_direct]


@pytest.fixture
def able(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device, with matrix units in OpenCL C where it has none."""
    if "mma" in device.limits.instructions:
        return device
    emulate(monkeypatch)
    return replace(device, limits=replace(device.limits, instructions=UNITS.instructions))


def right(device: Device, family: Any, problem: PackedProblem, config: Any) -> None:
    assert config.why_not(problem, device.limits) is None
    result = Bench(device, problem).measure(family.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


@pytest.mark.parametrize("form", FORMATS)
def test_keys_are_read_back(form: str) -> None:
    problem = PackedProblem(2, 24, 256, "bf16", form, frozenset({"m"}))
    assert parse_key(problem.key()) == problem == parse_problem(problem.key())
    assert parse_packed(f"2x24x256:{form}:bf16") == replace(problem, free=frozenset())


@pytest.mark.parametrize("text", ["2x24x256", "2x24:q4_0", "2x24x250:q4_0", "2x24x128:int4_256"])
def test_what_is_no_product_with_packed_weights_is_refused(text: str) -> None:
    with pytest.raises(ProblemError, match=r"packed|multiple"):
        parse_packed(text)


def test_every_format_has_a_text() -> None:
    assert set(TEXTS) == set(FORMATS)


@pytest.mark.parametrize("form", [one for one in FORMATS.values() if one.ggml_type is not None])
def test_the_reference_unpacks_as_gguf_does(form: Any) -> None:
    gguf = pytest.importorskip("gguf")
    packed = random_weights(form, 5, 1024, seed=3)
    wanted = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType(form.ggml_type))
    assert np.array_equal(unpacked(form, packed).astype(np.float32), wanted)


def test_the_reference_unpacks_groups_of_four_bits() -> None:
    form = FORMATS["int4_64z"]
    packed = np.arange(64, dtype=np.uint8).reshape(1, 64)
    scales = np.array([[[2.0, 10.0]], [[1.0, 0.0]]])
    weights = unpacked(form, packed, scales)[0]
    assert weights.shape == (128,)
    assert weights[5] == (5 - 8) * 2.0 + 10.0  # byte 5's low half
    assert weights[16 + 5] == (0 - 8) * 2.0 + 10.0  # its high half
    assert weights[64 + 5] == ((32 + 5) % 16 - 8) * 1.0
    assert weights[64 + 16 + 5] == ((32 + 5) // 16 - 8) * 1.0


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("shape", [CPU, GPU])
def test_kernels_unpack_to_the_bit(device: Device, form: str, shape: tuple[int, int, int]) -> None:
    """A weight is a product of few bits, and a sum that is rounded once."""
    problem = PackedProblem(1, 3, 1024, "fp32", form)
    inputs = random_inputs(problem, 5)
    buffers = {role: device.upload(inputs[role]) for role in inputs if role != "x"}
    wanted = unpacked(problem.packing, inputs["w"], inputs.get("scales")).astype(np.float32)
    out = device.upload(np.full_like(wanted, np.nan))
    device.prepare(Plan((unpacking(problem, *shape, "out"),)), {**buffers, "out": out}).run()
    got = device.download(out, wanted)
    if form.endswith("z"):  # scales of 24 bits: a fused multiply-add rounds once, others twice
        assert np.allclose(got, wanted, rtol=1e-6, atol=1e-7)
    else:
        assert np.array_equal(got, wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", range(len(ROWS)))
def test_few_rows_are_right(device: Device, form: str, case: int) -> None:
    problem, config = ROWS[case]
    right(device, packed_rows, replace(problem, format=form), config)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", AS_LANES)
@pytest.mark.parametrize("case", range(len(LANES)))
def test_rows_of_weights_as_lanes_are_right(device: Device, form: str, case: int) -> None:
    problem, config = LANES[case]
    right(device, packed_lanes, replace(problem, format=form), config)


def test_lanes_are_for_blocks_and_a_token_on_processors() -> None:
    assert {*AS_LANES} == {*FORMATS} - {"int8"}
    problem = PackedProblem(1, 576, 1536, "fp32", "q4_1")
    for width, lanes in ((16, 16), (8, 8), (1, 4)):
        limits = Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**34, 2, width)
        first = next(valid_guesses(problem, limits))
        assert (first.family, first.config.lanes) == ("packed_lanes", lanes)
        assert first.config.item_n == (2 if lanes <= 8 else 1)
        # a copy of the weights is kept for each number of rows
        assert next(valid_guesses(replace(problem, m=2), limits)).family == "packed_rows"
        free = replace(problem, free=frozenset({"m"}))
        assert next(valid_guesses(free, limits)).family == "packed_rows"
    assert next(valid_guesses(problem, H200)).family == "packed_rows"
    config = packed_lanes.DEFAULT
    assert "must be one of" in (replace(config, lanes=2).why_not(problem, limits) or "")
    assert "need" in (replace(config, item_n=32).why_not(problem, limits) or "")


@pytest.mark.parametrize(("form", "flips"), [("q4_0", True), ("int4_32z", True), ("q4_k", False)])
def test_vectors_of_few_lanes_need_no_constants_for_places_of_bits(form: str, flips: bool) -> None:
    """Three for each of four places do not fit into 16 registers."""
    problem = PackedProblem(1, 64, 256, format=form)
    for lanes, powers in ((8, 0), (16, 4)):
        pack, product = packed_lanes.plan(problem, packed_lanes.Config(1, lanes)).launches
        text = str(product.text)
        assert len({*re.findall(r"\| (0x\w+)u\)", text)}) == powers
        assert ("convert_float8(as_int8(" in text) == (lanes == 8)
        assert ("0x88888888u" in str(pack.text)) == (flips and lanes == 8)


def test_what_is_made_of_weights_alone_is_not_timed(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch keeps it, or lets another family serve."""
    plan = packed_lanes.plan(PackedProblem(1, 16, 64), packed_lanes.DEFAULT)
    assert [one.of_weights for one in plan.launches] == [True, False]
    ran = []
    run = PreparedPlan.run

    def seen(self: PreparedPlan) -> float:
        ran.append([launch.kernel for _, launch in self.steps])
        return run(self)

    monkeypatch.setattr(PreparedPlan, "run", seen)
    assert Bench(device, PackedProblem(1, 16, 64)).measure(plan).ok
    assert ran[0] == [packed_lanes.PACK, packed_lanes.NAME]
    assert {*map(tuple, ran[1:])} == {(packed_lanes.NAME,)}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", range(len(MMAS)))
def test_few_rows_are_right_on_matrix_units(able: Device, form: str, case: int) -> None:
    problem, config = MMAS[case]
    if form == "q6_k":  # rows of 630 bytes, of which the last must end at a multiple of 16
        problem = replace(problem, n=ceil_div(problem.n, 8) * 8)
        config = replace(config, tile_k=256)
    right(able, packed_mma, replace(problem, format=form), config)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", AS_DIRECT)
@pytest.mark.parametrize("case", range(len(DIRECT)))
def test_weights_go_straight_to_registers(able: Device, form: str, case: int) -> None:
    problem, config = DIRECT[case]
    right(able, packed_mma, replace(problem, format=form), config)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", range(len(BULK)))
def test_bulk_copies_bring_tiles(able: Device, form: str, case: int) -> None:
    problem, config = BULK[case]
    if form == "q6_k":  # rows begin between multiples of 16 bytes, and the last must end at one
        problem = replace(problem, n=ceil_div(problem.n, 8) * 8)
    if "tma" not in able.limits.instructions:
        pytest.skip("matrix units, but no unit of tensor copies")
    right(able, packed_mma, replace(problem, format=form), config)


def test_rows_of_x_that_are_not_aligned_are_read(able: Device) -> None:
    problem = PackedProblem(2, 16, 512, "bf16", "q4_1")
    inputs = random_inputs(problem, 5)
    x = encode(inputs["x"], "bf16")
    apart = np.full((2, 515), 0x7FC0, np.uint16)  # NaNs
    apart[:, 1:513] = x
    buffers = {"x": able.upload(apart), "w": able.upload(inputs["w"])}
    wanted = reference(problem, {**inputs, "x": decode(x, "bf16").astype(np.float64)})
    out = np.zeros((2, 16), np.uint16)
    plan = packed_mma.plan(problem, packed_mma.DEFAULT)
    buffers["y"] = able.upload(out)
    able.prepare(plan, buffers, {"x": 1}, {"ld_x": 515}).run()
    got = decode(able.download(buffers["y"], out), "bf16")
    assert np.allclose(got, wanted, rtol=0.01, atol=0.01 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("problem", "config", "reason"),
    [
        (PackedProblem(1, 8, 512, format="q4_k"), (1, 1, 128, 1, 2, 1), "no multiple of 256"),
        (PackedProblem(1, 9, 256, format="q6_k"), (1, 1, 256, 1, 2, 1), "9 rows of 210 B"),
        (PackedProblem(1, 8, 768, format="q6_k"), (1, 1, 512, 1, 2, 1), "a tile of 512 weights"),
        (PackedProblem(32, 8, 512, format="q6_k"), (4, 2, 256, 1, 2, 1), "numbers; at most"),
        (replace(TOKEN, n=64, free=frozenset({"m"})), (1, 1, 256, 1, 2, 1, 0, 2), "as many sums"),
        (PackedProblem(1, 64, 512), (1, 1, 256, 2, 2, 1, 0, 2), "none of 512 weights"),
        (PackedProblem(1, 8, 512, format="q8_0"), (1, 1, 256, 1, 1, 1), "no eight neighbouring"),
        (PackedProblem(1, 8, 512), (1, 1, 256, 1, 2, 1, 0, 1, 1), "2 tiles a warp"),
        (PackedProblem(1, 8, 768), (1, 1, 256, 3, 2, 1, 0, 1, 2), "does not divide warps=3"),
        (PackedProblem(1, 8, 640), (1, 1, 256, 3, 2, 1, 0, 1, 3), "no multiple of tile_k=256"),
    ],
)
def test_what_matrix_units_cannot_do_is_refused(
    problem: PackedProblem, config: tuple[int, ...], reason: str
) -> None:
    assert reason in (packed_mma.Config(*config).why_not(problem, UNITS) or "")
    assert "mma" in (packed_mma.DEFAULT.why_not(problem, H200) or "")


@pytest.mark.parametrize(
    ("problem", "is_split", "most_warps"),
    [
        (PackedProblem(4, 544, 10240, "bf16", "q8_0"), True, 8),
        (PackedProblem(4, 896, 5888, "fp32", "q4_k"), True, 8),
        (PackedProblem(4, 896, 5888, "fp32", "q4_k", frozenset({"m"})), False, 16),
        (PackedProblem(1, 7736, 6144, "fp32", "q4_0"), True, 12),
        (PackedProblem(1, 7736, 3840, "fp32", "q4_0"), False, 16),
        (PackedProblem(6, 976, 2816, "bf16", "q4_k"), False, 16),
        (PackedProblem(8, 14336, 4096, "bf16", "q4_0"), False, 16),
    ],
)
def test_work_groups_share_k_where_outputs_are_few(
    problem: PackedProblem, is_split: bool, most_warps: int
) -> None:
    limits = replace(UNITS, local_bytes=227 * KIB, compute_units=132)
    first = next(valid_configs(packed_mma, problem, limits))
    assert (first.split_k > 1) == is_split
    assert first.warps <= most_warps
    plan = packed_mma.plan(problem, first)
    assert (plan.counters > 0, plan.workspaces != ()) == (is_split, is_split)


@pytest.mark.parametrize(
    ("form", "instructions", "bulk"),
    [
        ("q8_0", {"mma", "tma"}, 16),
        ("int8", {"mma", "tma"}, 16),
        ("q6_k", {"mma", "tma"}, 8),
        ("q4_0", {"mma", "tma"}, 0),
        ("q8_0", {"mma"}, 0),
    ],
)
def test_warps_share_bulk_copies_of_bytes(form: str, instructions: set[str], bulk: int) -> None:
    limits = replace(
        UNITS, local_bytes=227 * KIB, compute_units=132, instructions=frozenset(instructions)
    )
    first = next(valid_configs(packed_mma, PackedProblem(1, 14336, 4096, "bf16", form), limits))
    assert first.bulk == bulk


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMATS)
def test_many_rows_are_right(device: Device, form: str) -> None:
    dtype = "bf16" if form.startswith("int") else "fp32"
    problem = PackedProblem(45, 40, 512, dtype, form)
    config = next(valid_configs(packed_gemm, problem, device.limits))
    right(device, packed_gemm, problem, config)


@pytest.mark.parametrize("name", ["packed_rows", "packed_lanes", "packed_mma", "packed_gemm"])
def test_every_parameter_changes_the_plan(name: str) -> None:
    rows = 1 if name == "packed_lanes" else 12
    problem, limits = PackedProblem(rows, 8192, 1024, "bf16", "q4_0"), UNITS
    space = space_of(name, problem, limits)
    family = FAMILIES[name]
    for field in fields(family.Config):
        if field.name in ("loop_n", "ahead"):  # of processors
            continue
        values = {getattr(space.config(row), field.name) for row in range(len(space))}
        assert len(values) > 1, field.name
    digests = {family.plan(problem, space.config(row)).digest() for row in range(0, len(space), 97)}
    assert len(digests) == len(range(0, len(space), 97))


def test_a_work_item_of_a_processor_reads_rows_one_after_the_other() -> None:
    limits = Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**34, 16, 16)
    problem = PackedProblem(1, 1000, 576, "fp32", "q8_0")
    first = packed_rows.guesses(problem, limits)[0]
    assert first.why_not(problem, limits) is None
    assert (first.item_n, first.loop_n) == (3, 1000 // (8 * 16) // 3)
    turns = {
        space.config(row).loop_n
        for space in [space_of("packed_rows", problem, limits)]
        for row in range(len(space))
    }
    assert turns == {1, 4, 16, 64}
    digests = {packed_rows.plan(problem, replace(first, loop_n=each)).digest() for each in turns}
    assert len(digests) == len(turns)
    shared = replace(first, local_n=2, loop_n=4)
    assert "groups of one, not 1 x 2" in (shared.why_not(problem, limits) or "")


def test_a_processor_asks_for_weights_ahead_of_the_few_rows_that_wait_for_them() -> None:
    limits = Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**34, 16, 16)
    few, many = (PackedProblem(m, 1000, 1024, "fp32", "q8_0") for m in (1, 8))
    first = packed_rows.guesses(few, limits)[0]
    assert first.ahead == packed_rows.AHEAD
    assert packed_rows.guesses(many, limits)[0].ahead == 0
    # a turn of four blocks has 136 bytes: three lines of the cache
    source = packed_rows.plan(few, replace(first, unroll=8)).launches[0].source
    asked = [source.count(f" + {first.ahead + line}, 3)") for line in range(0, 256, 64)]
    assert asked == [3, 3, 3, 0]
    assert "ASK_FOR" not in packed_rows.plan(few, replace(first, ahead=0)).launches[0].source
    space = space_of("packed_rows", few, limits)
    assert {space.config(row).ahead for row in range(len(space))} == {0, 1024, 4096, 8192}


@pytest.mark.parametrize(
    ("m", "family"), [(1, "packed_rows"), (8, "packed_rows"), (512, "packed_gemm")]
)
def test_the_rows_choose_the_family(m: int, family: str) -> None:
    problem = PackedProblem(m, 4096, 4096, "bf16", "int4_128z")
    assert next(valid_guesses(problem, H200)).family == family
    with_units = "packed_mma" if m <= packed_mma.MOST_ROWS else family
    assert next(valid_guesses(problem, UNITS)).family == with_units


def test_an_excerpt_is_a_part_of_the_whole() -> None:
    problem = PackedProblem(600, 900, 8192, "fp32", "int4_32z")
    part = excerpt(problem, 1)
    assert isinstance(part.problem, PackedProblem)
    assert part.problem.n < problem.n
    inputs = random_inputs(problem, 1)
    inputs["x"] = inputs["x"][:2]  # rows are independent, too
    cut = {role: part.of(role, array) for role, array in inputs.items()}
    whole = reference(replace(problem, m=2), inputs)
    assert np.allclose(reference(replace(part.problem, m=2), cut), part.of("y", whole))
