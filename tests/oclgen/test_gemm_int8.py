"""Products of int8: what `gemm_int8` says anywhere, and that its sums are exact on any device."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES, families_for
from oclgen.families.gemm import gemm_int8
from oclgen.keys import parse_key, parse_problem
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench, compare, decode, encode
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl import byte_dots, probe
from oclgen.opencl.byte_dots import INSTRUCTIONS
from oclgen.opencl.device import Device, _answers
from oclgen.plan import Launch, Plan, buffer
from oclgen.predictor.model import has_model
from oclgen.problem import ConvProblem, GemmProblem, ProblemError
from search_spaces.space import seeds_of, space_of
from tests.oclgen.dots_emulated import emulate

GPU = Limits("gpu", 64 * KIB, 256, (256,) * 3, 2**32, 2**34, 32, instructions=frozenset({"dp4a"}))
PROBLEM = GemmProblem(70, 50, 90, "int8", trans_b=True)
CHANGES: dict[str, Any] = {
    "unit": "sdot4", "item_m": 4, "item_n": 4, "local_m": 4, "local_n": 4, "vec_k": 8, "tile_k": 0,
}  # fmt: skip
SHAPES = ((1, 1, 1), (1, 37, 64), (29, 1, 7), (33, 17, 70), (64, 48, 32))
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"tile_k": 0},
    {"vec_k": 16, "tile_k": 32, "item_m": 3, "local_n": 4},
    {"vec_k": 16, "tile_k": 0, "local_m": 1, "local_n": 1, "item_n": 5},
    {"unit": "pairs", "vec_k": 16, "tile_k": 0, "item_m": 3},
    {"unit": "pairs", "tile_k": 16, "item_n": 4},
    {"vec_k": 8, "tile_k": 64, "local_m": 1, "local_n": 1, "item_m": 8, "item_n": 1},
)


def config_of(**changes: Any) -> gemm_int8.Config:
    """Return the default with changes."""
    return replace(gemm_int8.DEFAULT, **changes)


def test_every_parameter_changes_the_text() -> None:
    assert set(CHANGES) == {field.name for field in fields(gemm_int8.DEFAULT)}
    (default,) = gemm_int8.plan(PROBLEM, gemm_int8.DEFAULT).launches
    for name, value in CHANGES.items():
        (other,) = gemm_int8.plan(PROBLEM, config_of(**{name: value})).launches
        assert other.source != default.source, name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": "dpas8"}, ("unit=dpas8 is unknown", "plain", "dp4a")),
        ({"unit": "sdot4"}, ("sdot4 is no instruction", "dp4a")),
        ({"vec_k": 2}, ("vec_k=2", "4, 8, 16")),
        ({"vec_k": 16, "tile_k": 24}, ("tile_k=24", "vec_k=16")),
        ({"item_m": 16, "item_n": 16}, ("1024 sums", "at most 512")),
        ({"local_m": 64}, ("512 work-items", "256")),
        ({"item_m": 64, "item_n": 1, "tile_k": 256}, ("133120 B of local memory", "65536 B")),
        ({"tile_k": 2048}, ("tile_k=2048", "0 to 1024")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = config_of(**changes).why_not(PROBLEM, GPU)
    assert reason is not None
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize("trans_a", [False, True])
def test_one_family_serves_integers(trans_a: bool) -> None:
    problem = replace(PROBLEM, trans_a=trans_a, trans_b=not trans_a)
    assert [family.NAME for family in families_for(problem)] == [gemm_int8.NAME]
    for name, family in FAMILIES.items():
        assert family.serves(problem) == (name == gemm_int8.NAME)
    assert not gemm_int8.serves(GemmProblem(8, 8, 8))
    assert not any(has_model(problem, limits) for limits in (GPU, replace(GPU, kind="cpu")))


def test_a_problem_of_integers_is_its_sums_alone() -> None:
    assert PROBLEM.key() == "gemm:70x50x90:int8:nt:b1:-:-:none"
    assert parse_key(PROBLEM.key()) == parse_problem("70x50x90:int8:nt") == PROBLEM
    assert PROBLEM.bytes == 70 * 90 + 50 * 90 + 4 * 70 * 50
    terms: tuple[dict[str, Any], ...] = ({"bias": "n"}, {"activation": "relu"}, {"residual": True})
    for term in terms:
        with pytest.raises(ProblemError, match="int32 sums"):
            replace(PROBLEM, **term)
    with pytest.raises(ProblemError, match="'int8' is unknown"):
        ConvProblem(1, 8, 8, 8, 8, 3, 3, dtype="int8")


def test_what_a_device_showed_is_used() -> None:
    for unit in INSTRUCTIONS:
        limits = replace(GPU, instructions=frozenset({unit}))
        assert {each.unit for each in seeds_of(gemm_int8.NAME, PROBLEM, limits)} == {unit, "plain"}
        assert len(space_of(gemm_int8.NAME, PROBLEM, limits)) > 100
    cpu = replace(GPU, kind="cpu", instructions=frozenset({"khr_dot"}))
    intels = replace(cpu, extensions=frozenset({"cl_intel_subgroups"}))
    for limits, units in ((Limits(), {"plain"}), (cpu, {"plain"}), (intels, {"pairs", "plain"})):
        seeds = seeds_of(gemm_int8.NAME, PROBLEM, limits)
        assert {each.unit for each in seeds} == units
        assert len(seeds) > 1


def test_few_results_are_cut_into_tiles_for_every_unit_of_a_gpu() -> None:
    problem = GemmProblem(64, 64, 512, "int8")
    first = next(iter(gemm_int8.guesses(problem, GPU)))
    assert first.unit == "dp4a"
    assert 64 * 64 // (first.tile_m * first.tile_n) >= 8


def assert_exact(device: Device, problem: GemmProblem, config: gemm_int8.Config) -> None:
    """Compare with the sums of a wider type."""
    limits = replace(device.limits, instructions=frozenset(INSTRUCTIONS))
    assert config.why_not(problem, limits) is None
    measurement = Bench(device, problem).measure(gemm_int8.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"
    assert measurement.error == 0


@pytest.mark.parametrize("number", range(len(CONFIGS)))
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_exact_wherever_operands_lie(
    device: Device, shape: tuple[int, int, int], number: int
) -> None:
    for trans_a in (False, True):
        for trans_b in (False, True):
            problem = GemmProblem(*shape, "int8", trans_a, trans_b)
            assert_exact(device, problem, config_of(**CONFIGS[number]))


def test_batches_and_shared_operands(device: Device) -> None:
    for shared_a, shared_b in ((False, False), (True, False), (False, True)):
        problem = replace(PROBLEM, batch=3, shared_a=shared_a, shared_b=shared_b)
        assert_exact(device, problem, config_of(vec_k=8))


@pytest.mark.parametrize("trans_b", [False, True])
def test_any_valid_config_and_every_guess_is_exact(device: Device, trans_b: bool) -> None:
    problem = replace(PROBLEM, trans_b=trans_b)
    space = space_of(gemm_int8.NAME, problem, device.limits)
    rows = Random(problem.key()).sample(range(len(space)), 3)
    seeds = seeds_of(gemm_int8.NAME, problem, device.limits)
    for config in [*seeds, *map(space.config, rows)]:
        assert_exact(device, problem, config)


@pytest.mark.parametrize("unit", INSTRUCTIONS)
def test_instructions_around_edges(
    device: Device, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    for number, changes in enumerate(CONFIGS):
        problem = GemmProblem(33, 17, 70, "int8", number % 2 == 1, number % 3 == 0)
        assert_exact(device, problem, config_of(**changes | {"unit": unit}))


def test_the_instruction_of_khronos_is_exact(device: Device) -> None:
    """By the device's own compiler: Intel's runtime for processors has it, too."""
    if byte_dots.KHR not in device.limits.extensions:
        pytest.skip(f"the device has no {byte_dots.KHR}")
    if not _answers(device, probe.probe("khr_dot"), probe.ANSWERS["khr_dot"]):
        pytest.skip("its compiler knows no dot_4x8packed_ss_int")
    for changes in CONFIGS[:3]:
        assert_exact(device, replace(PROBLEM, trans_b=False), config_of(unit="khr_dot", **changes))


@pytest.mark.parametrize("unit", INSTRUCTIONS)
def test_the_probe_tells_signed_bytes_from_others(
    device: Device, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    assert _answers(device, probe.probe(unit), probe.ANSWERS[unit])
    right = byte_dots.INSTRUCTIONS[unit]
    for honest, wrong in (("as_char4(y)", "as_uchar4(y)"), ("products.s3", "products.s2")):
        assert honest in right
        monkeypatch.setitem(byte_dots.INSTRUCTIONS, unit, right.replace(honest, wrong))
        assert not _answers(device, probe.probe(unit), probe.ANSWERS[unit])


def test_devices_are_asked_for_their_makers_instructions() -> None:
    assert set(probe.probes([byte_dots.KHR])) == {"khr_dot"}
    assert not probe.probes([byte_dots.KHR], "cpu")
    assert set(probe.probes([byte_dots.INTEL_GPUS])) == {"dp4a_intel"}
    assert "dp4a" in probe.probes(["cl_nv_device_attribute_query"])
    assert not set(probe.probes(["cl_intel_subgroups"])) & set(INSTRUCTIONS)


def test_the_largest_products_are_exact(device: Device) -> None:
    """The least byte by itself: pairs of products are beyond 16 bits, and sums beyond 24."""
    problem = GemmProblem(5, 6, 65_535, "int8", trans_b=True)
    for config in (config_of(), *gemm_int8.guesses(problem, device.limits)):
        if config.why_not(problem, device.limits):
            continue
        buffers = {
            role: device.upload(np.full(problem.buffers[role], -128, np.int8)) for role in "ab"
        }
        buffers["c"] = device.upload(np.zeros((1, 5, 6), np.int32))
        device.prepare(gemm_int8.plan(problem, config), buffers).run()
        got = device.download(buffers["c"], np.zeros((1, 5, 6), np.int32))
        assert np.all(got == 65_535 * 128 * 128)


def test_the_reference_is_exact_and_inputs_have_every_byte() -> None:
    problem = GemmProblem(60, 30, 90, "int8", trans_a=True)
    inputs = random_inputs(problem, 1)
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int8)}
    assert set(np.unique(inputs["a"])) == set(range(-128, 128))
    wide = {role: array[0].astype(np.int64) for role, array in inputs.items()}
    assert np.array_equal(reference(problem, inputs)[0], wide["a"].T @ wide["b"])
    assert np.array_equal(decode(encode(inputs["a"], "int8"), "int8"), inputs["a"])


def test_a_sum_that_is_off_by_one_or_not_written_is_wrong(device: Device) -> None:
    assert compare(np.array([7, 10**6]), np.array([7.0, 10**6]), 0.0) == (0.0, "")
    assert compare(np.array([7, 10**6 + 1]), np.array([7.0, 10**6]), 0.0)[1]
    text = "__kernel void lazy(__global int *c, const long offset) { c[offset] = -1; }"
    launch = Launch(text, "lazy", (1,), (1,), buffer("c"))
    measurement = Bench(device, GemmProblem(2, 1, 3, "int8")).measure(Plan((launch,)), 0.0)
    assert measurement.invalidity == "correctness"
    assert measurement.reason == "1 of 2 elements of c are not written"
