"""Attention as a problem: its key, which keys its queries see, and its families against float64."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.attention_problem import ATTENTION_DIRECTIONS
from oclgen.families import FAMILIES, valid_configs
from oclgen.families.attention import (
    attention_lanes,
    attention_mma,
    attention_parts,
    attention_register,
    attention_rows,
    attention_split,
)
from oclgen.keys import parse_attention, parse_key
from oclgen.limits import KIB, Limits
from oclgen.measuring.attention_reference import philox, seen
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device
from oclgen.problem import AttentionProblem, ProblemError
from search_spaces.space import SPACES
from tests.guessed import valid_guesses
from tests.oclgen.attention_cases import (
    AMXES,
    BASE,
    FEW,
    FOLDED,
    HALF,
    IN_LOCAL_MEMORY,
    LANES,
    MMAS,
    MMAS_THAT_DROP,
    REGISTERS,
    ROWS,
    SHARED_ROWS,
    SPLITS,
    WGMMAS,
    XEON,
    in_all_directions,
)
from tests.oclgen.attention_emulated import emulate
from tests.oclgen.cp_async_in_c import in_plain_c
from tuned_db.choosing.nearest import kind_of

GPU = Limits(
    "gpu", 47 * KIB, 1024, (1024, 1024, 64), 2**34, 2**37, 132, 1,
    instructions=frozenset({"cp_async", "mma", "wgmma"}),
)  # fmt: skip


@pytest.fixture
def able(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device, with instructions in OpenCL C where it has none."""
    if device.limits.instructions >= GPU.instructions:
        return device
    emulate(monkeypatch)
    return replace(device, limits=replace(device.limits, instructions=GPU.instructions))


def right(device: Device, family: Any, problem: AttentionProblem, config: Any) -> None:
    assert config.why_not(problem, device.limits) is None
    result = Bench(device, problem).measure(family.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 4, 9])
def test_pairs_are_those_that_are_seen(causal: bool, window: int) -> None:
    for queries in (1, 4, 7):
        for keys in (7, 9):
            problem = AttentionProblem(1, 1, 1, queries, keys, 8, 8, causal=causal, window=window)
            assert problem.pairs == np.count_nonzero(seen(problem))


def test_a_key_and_a_short_form_are_read_back() -> None:
    for problem, _ in (*REGISTERS, *MMAS, *MMAS_THAT_DROP, *SPLITS, *ROWS, *LANES, *FOLDED, *AMXES):
        for one in in_all_directions(problem):
            assert parse_key(one.key()) == one
            assert parse_attention(one.key()) == one
    short = parse_attention("8,16,1024,2048,64,4,32:bf16:bwd_kv:causal:w256:mask")
    assert short == AttentionProblem(
        8, 16, 4, 1024, 2048, 64, 32, "bf16", "bwd_kv", causal=True, window=256, mask=True
    )
    assert parse_attention("1,2,3,5,8") == AttentionProblem(1, 2, 2, 3, 5, 8, 8)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8,16,2048,64", "4 numbers, not 5 to 7"),
        ("8,16,20,20,64:fp8", "'fp8'"),
        ("8,6,20,20,64,4,64", "heads=6 must be a multiple of kv_heads=4"),
        ("1,1,20,5,64:w3", "query 19 sees none of 5 keys"),
    ],
)
def test_what_cannot_be_says_why(text: str, why: str) -> None:
    with pytest.raises(ProblemError, match=why):
        parse_attention(text)


def test_random_numbers_are_those_of_philox() -> None:
    """The known answer for zeros of Salmon et al., Random123."""
    numbers = [int(number[0]) for number in philox(0, np.zeros(1, np.uint64))]
    assert numbers == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("case", range(len(REGISTERS)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.sampled(3)
def test_register_tiles_are_right(device: Device, case: int, direction: Any) -> None:
    problem, config = REGISTERS[case]
    right(device, attention_register, replace(problem, direction=direction), config)


@pytest.mark.parametrize("case", range(len(LANES)))
@pytest.mark.parametrize("direction", ATTENTION_DIRECTIONS)
def test_rows_in_lanes_are_right(device: Device, case: int, direction: Any) -> None:
    problem, config = LANES[case]
    right(device, attention_lanes, replace(problem, direction=direction), config)


@pytest.mark.parametrize("case", range(len(FOLDED)))
def test_items_side_by_side_in_lanes_are_right(device: Device, case: int) -> None:
    problem, config = FOLDED[case]
    right(device, attention_lanes, problem, config)


@pytest.mark.parametrize("case", range(len(MMAS)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.sampled(3)
def test_matrix_units_are_right(able: Device, case: int, direction: Any) -> None:
    problem, config = MMAS[case]
    right(able, attention_mma, replace(problem, direction=direction), config)


@pytest.mark.parametrize("case", range(len(MMAS_THAT_DROP)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.sampled(4)
def test_matrix_units_drop_right(able: Device, case: int, direction: Any) -> None:
    problem, config = MMAS_THAT_DROP[case]
    right(able, attention_mma, replace(problem, direction=direction), config)


def zeros_of(device: Device, family: Any, problem: AttentionProblem, config: Any) -> Any:
    """Return where out is 0 with the unit matrix as v: at the probabilities that are dropped."""
    bench = Bench(device, problem)
    unit = np.broadcast_to(np.eye(problem.keys, dtype=np.float32), problem.buffers["v"])
    like = {role: np.zeros(problem.buffers[role], np.float32) for role in problem.outputs}
    outs = {role: device.upload(array) for role, array in like.items()}
    given = {**bench.buffers, **outs, "v": device.upload(np.ascontiguousarray(unit))}
    device.prepare(family.plan(problem, config), given).run()
    return device.download(outs["out"], like["out"]) == 0.0


def test_families_drop_the_same_probabilities(able: Device) -> None:
    problem = AttentionProblem(2, 2, 1, 37, 40, 16, 40, dropout=True)
    theirs = zeros_of(able, attention_register, problem, attention_register.DEFAULT)
    assert np.mean(theirs) == pytest.approx(0.25, abs=0.03)
    others = (
        (attention_mma, attention_mma.Config(2, 1, 16, 2, keep=True)),
        (attention_mma, attention_mma.Config(1, 2, 32, 1, keep=False)),
        (attention_lanes, attention_lanes.Config(8, vectors=2, sums=4, tile=12)),
    )
    for family, config in others:
        assert np.array_equal(zeros_of(able, family, problem, config), theirs)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
def test_dropout_changes_no_first_guess(dtype: str, direction: Any) -> None:
    problem = AttentionProblem(8, 12, 12, 512, 512, 64, 64, dtype, direction, causal=True)
    first = next(valid_guesses(problem, GPU))
    assert first.family == "attention_mma"
    assert next(valid_guesses(replace(problem, dropout=True), GPU)) == first


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
def test_no_guess_of_wide_units_is_refused(dim: int, direction: Any) -> None:
    problem = AttentionProblem(8, 12, 12, 512, 512, dim, dim, "bf16", direction, causal=True)
    limits = replace(GPU, local_bytes=227 * KIB)
    guesses = [one for one in attention_mma.guesses(problem, limits) if one.unit == "wgmma"]
    assert guesses
    assert [one.why_not(problem, limits) for one in guesses] == [None] * len(guesses)


@pytest.mark.parametrize("case", range(len(SHARED_ROWS)))
@pytest.mark.parametrize("direction", ["bwd_q", "bwd_kv"])
@pytest.mark.sampled(2)
def test_warps_that_share_rows_are_right(able: Device, case: int, direction: Any) -> None:
    problem, config = SHARED_ROWS[case]
    right(able, attention_mma, replace(problem, direction=direction), config)


@pytest.mark.parametrize("case", range(len(WGMMAS)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.sampled(2)
def test_wide_matrix_units_are_right(able: Device, case: int, direction: Any) -> None:
    problem, config = WGMMAS[case]
    right(able, attention_mma, replace(problem, direction=direction), config)


@pytest.mark.parametrize("case", range(len(IN_LOCAL_MEMORY)))
@pytest.mark.parametrize("direction", ["fwd", "bwd_q", "bwd_kv"])
@pytest.mark.sampled(2)
def test_wide_matrix_units_read_own_tiles_from_local_memory(
    able: Device, case: int, direction: Any
) -> None:
    problem, config = IN_LOCAL_MEMORY[case]
    if direction == "fwd":
        config = replace(config, stages=2)
    right(able, attention_mma, replace(problem, direction=direction), config)


@pytest.mark.parametrize(
    ("scale", "queries", "keep"), [(-0.5, 71, True), (0.0, 72, True), (-0.5, 73, False)]
)
def test_a_scale_that_is_not_above_zero_is_right(
    able: Device, monkeypatch: pytest.MonkeyPatch, scale: float, queries: int, keep: bool
) -> None:
    """The kernel finds the largest score of a row before it scales them.

    References are remembered by problem, so each scale has queries that no other test has.
    """
    monkeypatch.setattr(AttentionProblem, "scale", scale)
    problem = replace(HALF, queries=queries, head_dim=64, causal=True)
    config = attention_mma.Config(4, 1, 32, stages=2, keep=keep, unit="wgmma")
    right(able, attention_mma, problem, config)


@pytest.mark.parametrize("case", range(len(SPLITS)))
def test_slices_of_the_keys_are_right(device: Device, case: int) -> None:
    problem, config = SPLITS[case]
    right(device, attention_split, problem, config)


@pytest.mark.parametrize("case", range(len(SPLITS)))
def test_slices_that_the_last_work_group_joins_are_right(device: Device, case: int) -> None:
    """The measurement also finds that the counters are zero again."""
    problem, config = SPLITS[case]
    config = replace(config, counted=True)
    if config.is_alone(problem):
        assert "joins nothing" in str(config.why_not(problem, GPU))
        return
    assert config.why_not(problem, GPU) is None
    plan = attention_split.plan(problem, config)
    assert len(plan.launches) == 1
    result = Bench(device, problem).measure(in_plain_c(plan), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


def test_a_winner_has_the_slices_that_another_problem_wants() -> None:
    won = attention_split.Config(work_items=256, slice=128, rows=1)
    long = AttentionProblem(1, 32, 4, 1, 4096, 64, 64, "bf16")
    large = replace(GPU, local_bytes=227 * KIB)
    assert won.with_best_split(long, large) == replace(won, slice=32, rows=8, counted=True)
    plain = replace(large, instructions=frozenset())
    assert won.with_best_split(long, plain) == replace(won, slice=32, rows=8)
    assert won.with_best_split(replace(long, keys=20), large) == replace(won, slice=32, rows=8)
    assert won.with_best_split(long, GPU) == won  # rows for which its local memory has no room


@pytest.mark.parametrize("case", range(len(ROWS)))
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_few_rows_on_processors_are_right(device: Device, case: int, direction: Any) -> None:
    problem, config = ROWS[case]
    if direction == "bwd":
        config = replace(config, ahead=0)  # gradients ask for nothing ahead
    right(device, attention_rows, replace(problem, direction=direction), config)


@pytest.mark.parametrize(("scale", "queries"), [(-0.5, 74), (0.0, 75)])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_any_scale_of_rows_in_lanes_is_right(
    device: Device, monkeypatch: pytest.MonkeyPatch, scale: float, queries: int, direction: Any
) -> None:
    monkeypatch.setattr(AttentionProblem, "scale", scale)
    problem = replace(BASE, queries=queries, direction=direction)
    right(device, attention_lanes, problem, replace(attention_lanes.DEFAULT, blocks=2))


POWERS = """
kernel void powers(global const float *x, global float *y)
{
    const int i = get_global_id(0);
    vstore8(power_of_two(vload8(i, x)), i, y);
}
"""


def test_powers_are_exact_and_end_at_zero(device: Device) -> None:
    at = np.random.default_rng(0).uniform(-126.0, 127.0, 4096).astype(np.float32)
    ends = np.array([0.0, -0.0, -128.0, -200.0, -np.inf, np.nan, -1e-30, 1.0], np.float32)
    x = np.concatenate([ends, at])
    like = np.zeros_like(x)
    given, found = device.upload(x), device.upload(like)
    kernel = device.build(attention_parts.power_of_two(8) + POWERS).powers
    kernel(device.queue, (x.size // 8,), None, given, found)
    y = device.download(found, like).astype(np.float64)
    assert list(y[:2]) == [1.0, 1.0]
    assert list(y[2:5]) == [0.0, 0.0, 0.0]
    assert np.isnan(y[5])
    want = np.exp2(at.astype(np.float64))
    assert np.all(np.abs(y[8:] - want) <= want * 3e-7)


def test_what_rows_cannot_do_is_refused() -> None:
    config = attention_rows.Config(rows=1, vec=16)
    assert "no whole vectors of 16" in str(config.why_not(FEW, GPU))
    backward = replace(FEW, direction="bwd")
    assert "ahead=9" in str(replace(attention_rows.DEFAULT, ahead=9).why_not(backward, GPU))
    assert "drops no probabilities" in str(
        attention_rows.DEFAULT.why_not(replace(FEW, dropout=True), GPU)
    )
    assert not attention_rows.serves(replace(FEW, queries=9))  # of two heads: 18 rows


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("attention_register", BASE), ("attention_mma", HALF),
        ("attention_split", FEW), ("attention_rows", FEW), ("attention_lanes", BASE),
        ("attention_amx", HALF), ("attention_amx_grad", replace(HALF, direction="bwd")),
    ],
)  # fmt: skip
def test_every_parameter_changes_the_text(name: str, problem: AttentionProblem) -> None:
    family = FAMILIES[name]
    limits = XEON if name.startswith("attention_amx") else GPU
    values = SPACES[name](problem, limits)
    bases = list(valid_configs(family, problem, limits))
    for field in fields(family.Config):
        choices = (*values.get(field.name, ()), 1, 2, 8, True)
        pairs = [
            (base, changed)
            for base in bases
            for changed in (replace(base, **{field.name: value}) for value in choices)
            if changed != base and changed.why_not(problem, limits) is None
        ]
        assert pairs, field.name
        for pair in pairs[:3]:
            texts = {family.plan(problem, one).launches[-1].source for one in pair}
            assert len(texts) == 2, field.name


@pytest.mark.parametrize("name", [name for name in FAMILIES if name.startswith("attention")])
def test_free_sizes_are_in_no_text(name: str) -> None:
    problem = {
        "attention_mma": HALF, "attention_split": FEW, "attention_rows": FEW, "attention_amx": HALF,
        "attention_amx_grad": replace(HALF, direction="bwd"),
    }.get(name, BASE)  # fmt: skip
    problem = replace(problem, free=frozenset({"batch", "queries", "keys"}))
    family = FAMILIES[name]
    other = replace(problem, batch=3, queries=problem.queries - 2, keys=101)
    assert (
        family.DEFAULT.why_not(problem, XEON if name.startswith("attention_amx") else GPU) is None
    )
    texts = [
        [launch.source for launch in family.plan(one, family.DEFAULT).launches]
        for one in (problem, other)
    ]
    assert texts[0] == texts[1]


def test_a_work_item_that_keeps_few_numbers_has_few_registers() -> None:
    config = attention_mma.Config(4, 1, 64, stages=2, keep=False, unit="wgmma")
    narrow, wide = (replace(HALF, head_dim=dim, value_dim=dim) for dim in (64, 128))
    assert attention_mma.most_registers(narrow, config) == 128
    assert attention_mma.most_registers(replace(narrow, mask=True), config) == 0
    assert attention_mma.most_registers(wide, config) == 0


@pytest.mark.parametrize(
    ("batch", "queries", "dtype", "is_guessed"),
    [(1, 1, "bf16", True), (8, 4, "bf16", True), (8, 9, "bf16", False), (1, 9, "bf16", True),
     (8, 9, "fp32", True)],
)  # fmt: skip
def test_many_rows_of_few_queries_are_left_to_matrix_units(
    batch: int, queries: int, dtype: Any, is_guessed: bool
) -> None:
    problem = AttentionProblem(batch, 16, 16, queries, 2048, 64, 64, dtype)
    assert bool(attention_split.guesses(problem, GPU)) == is_guessed


@pytest.mark.parametrize(("dtype", "is_alike"), [("bf16", False), ("fp32", True)])
def test_a_record_of_one_query_serves_nine_in_fp32_alone(dtype: Any, is_alike: bool) -> None:
    one, nine = (replace(FEW, queries=queries, dtype=dtype) for queries in (1, 9))
    assert (kind_of(one) == kind_of(nine)) == is_alike


def test_no_family_reads_more_than_there_is_of_rows_that_are_no_chunks() -> None:
    odd = replace(HALF, head_dim=20)
    assert "no whole chunks" in str(attention_mma.DEFAULT.why_not(odd, GPU))
    assert attention_register.DEFAULT.why_not(odd, GPU) is None
    assert "no whole chunks" in str(attention_split.DEFAULT.why_not(replace(FEW, head_dim=22), GPU))
