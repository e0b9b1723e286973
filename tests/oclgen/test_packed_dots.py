"""Products of one row with packed weights by integer dot products: x as digits, and its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from oclgen.families.packed import packed_dots, packed_lanes
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.measuring.reference import random_inputs, reference
from oclgen.opencl.device import Device
from oclgen.opencl.probe import BYTE_DOTS
from oclgen.packed_problem import FORMATS
from oclgen.problem import PackedProblem
from tests.guessed import valid_guesses
from tests.oclgen.oclgrind_cases import dots_of_bytes

TOKEN = PackedProblem(1, 37, 512)
SERVED = [form for form in FORMATS if packed_dots.serves(replace(TOKEN, format=form))]
CASES = (
    (TOKEN, packed_dots.Config(16, 2, 4096)),
    (replace(TOKEN, n=48), packed_dots.Config(8, 3)),
    (replace(TOKEN, dtype="bf16"), packed_dots.Config(16)),
    (replace(TOKEN, dtype="fp16"), packed_dots.DEFAULT),
)


@pytest.fixture
def able(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device, with products of bytes in OpenCL C where it has none."""
    own = packed_dots.dots

    def dots(lanes: int) -> str:
        has = packed_dots.UNITS[lanes] in device.limits.instructions
        return own(lanes) if has else dots_of_bytes(lanes)

    monkeypatch.setattr(packed_dots, "dots", dots)
    return replace(device, limits=replace(device.limits, instructions=frozenset(BYTE_DOTS)))


def product(device: Device, problem: PackedProblem, x: NDArray[np.float32]) -> list[float]:
    """Return y of the problem's random weights by the default."""
    plan = packed_dots.plan(problem, packed_dots.DEFAULT)
    inputs = random_inputs(problem, 5)
    spaces = {role: device.empty(size) for role, size in plan.workspaces}
    out = np.full(problem.n, 7, np.float32)
    y = device.upload(out)
    buffers = {"x": device.upload(x), "w": device.upload(inputs["w"]), "y": y, **spaces}
    device.prepare(plan, buffers).run()
    found: list[float] = device.download(y, out).tolist()
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", SERVED)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_dots_are_right(able: Device, form: str, case: int) -> None:
    problem, config = CASES[case]
    problem = replace(problem, format=form)
    assert config.why_not(problem, able.limits) is None
    result = Bench(able, problem).measure(packed_dots.plan(problem, config), 0.0)
    assert result.ok, f"{problem.key()} {config}: {result.reason}"


def test_a_row_longer_than_what_is_held_is_right(able: Device) -> None:
    problem = PackedProblem(1, 40, 32 * packed_dots.CHUNK + 96, format="q4_1")
    plan = packed_dots.plan(problem, packed_dots.Config(8, 2))
    assert Bench(able, problem).measure(plan, 0.0).ok


@pytest.mark.parametrize("form", ["q4_0", "q4_1"])
@pytest.mark.parametrize("power", [-140, -100, 0, 120])
def test_blocks_of_any_power_are_as_exact(able: Device, form: str, power: int) -> None:
    """Each block has an exponent of its own, and the largest item 22 bits behind its sign."""
    problem = PackedProblem(1, 24, 64, format=form)
    inputs = random_inputs(problem, 5)
    x = (inputs["x"] * 2.0**power).astype(np.float32)
    x[0, 32:] *= np.float32(2.0**-20)
    wanted = reference(problem, {**inputs, "x": x.astype(np.float64)})[0]
    least = 32 * 15 * 2.0**-128  # a power below 2^-105 is taken for 2^-105
    error = np.abs(np.array(product(able, problem, x)) - wanted).max()
    assert error <= 1e-6 * np.abs(wanted).max() + least


def test_zeros_are_exact_and_what_is_no_number_stays_none(able: Device) -> None:
    problem = PackedProblem(1, 24, 64, format="q4_0")
    x = np.zeros((1, 64), np.float32)
    assert product(able, problem, x) == [0.0] * 24
    for bad in (np.inf, -np.inf, np.nan):
        x[0, 40] = bad
        assert np.isnan(product(able, problem, x)).all()


def test_dots_are_for_processors_that_have_them() -> None:
    limits = Limits("cpu", 32 * KIB, 4096, (4096,) * 3, 2**31, 2**34, 2, 16)
    problem = PackedProblem(1, 1536, 576, "fp32", "q4_1")
    assert {*SERVED} == {one for one in packed_lanes_formats() if one not in ("q8_0", "q6_k")}
    for units, family, lanes in (
        ({"vpdpbusd", "vpmaddubsw"}, "packed_dots", 16),
        ({"vpmaddubsw"}, "packed_dots", 8),
        (set(), "packed_lanes", 16),
    ):
        first = next(valid_guesses(problem, replace(limits, instructions=frozenset(units))))
        assert (first.family, first.config.lanes) == (family, lanes)
    assert "vpdpbusd" in (packed_dots.Config(16).why_not(problem, limits) or "")
    assert "must be one of" in (packed_dots.Config(4).why_not(problem, limits) or "")


def packed_lanes_formats() -> set[str]:
    """The formats of which rows can be interleaved."""
    return {form for form in FORMATS if packed_lanes.serves(replace(TOKEN, format=form))}
