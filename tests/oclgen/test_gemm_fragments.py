"""What `gemm_fragments` says anywhere, and computes on any device with emulated units."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_fragments
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl import fragments, probe
from oclgen.opencl.device import Device, _answers
from oclgen.opencl.fragments import UNITS
from oclgen.problem import ConvProblem, GemmProblem
from search_spaces.space import seeds_of, space_of
from tests.oclgen import fragments_emulated
from tests.oclgen.fragments_emulated import emulate

GPU = Limits("gpu", 64 * KIB, 256, (256,) * 3, 2**32, 2**34, 32, instructions=frozenset({"dpas8"}))
PROBLEM = GemmProblem(200, 320, 400, dtype="bf16")
CHANGES: dict[str, Any] = {
    "unit": "dpas16", "tile_m": 128, "tile_n": 128, "subs_m": 8, "subs_n": 8, "ahead": True,
    "split_k": 2, "group_m": 4,
}  # fmt: skip
TILE = {"dpas8": (4, 4), "dpas16": (4, 2), "wmma": (4, 2), "wmma_gfx12": (2, 4), "mfma": (2, 2),
        "coop_mat16": (4, 2), "coop_mat32": (2, 4), "coop_mat64": (2, 2)}  # fmt: skip
"""Sub-groups that share a tile of 64 x 64."""
CASES: tuple[tuple[GemmProblem, dict[str, Any]], ...] = (
    (GemmProblem(70, 65, 33, "bf16", trans_b=True, bias="n", activation="relu", residual=True), {}),
    (GemmProblem(37, 130, 50, "fp16", trans_a=True, batch=2, bias="m"), {"ahead": True}),
    (GemmProblem(64, 64, 96, "fp16"), {"split_k": 3}),
    (GemmProblem(32, 33, 5, "bf16", residual=True, batch=2, shared_b=True), {"group_m": 1}),
)


def config_of(unit: str, **changes: Any) -> gemm_fragments.Config:
    """Return a config that a work-group of 256 can serve."""
    subs_m, subs_n = TILE[unit]
    return replace(gemm_fragments.DEFAULT, unit=unit, subs_m=subs_m, subs_n=subs_n, **changes)


def served(unit: str, problem: GemmProblem) -> GemmProblem:
    """Return the problem in a dtype that the unit multiplies."""
    dtypes = UNITS[unit].dtypes
    return problem if problem.dtype in dtypes else replace(problem, dtype=dtypes[0])


def test_every_parameter_changes_the_text() -> None:
    default = gemm_fragments.DEFAULT
    assert set(CHANGES) == {field.name for field in fields(default)}
    for name, value in CHANGES.items():
        other = replace(default, **{name: value})
        one, two = (gemm_fragments.plan(PROBLEM, each).launches for each in (default, other))
        assert [launch.source for launch in one] != [launch.source for launch in two], name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": "mma"}, ("mma is unknown", "wmma_gfx12")),
        ({"unit": "mfma"}, ("mfma is no instruction", "dpas8")),
        ({"tile_m": 80}, ("tile_m=80", "32")),
        ({"tile_n": 96}, ("tile_n=96", "64 rows")),
        ({"subs_m": 2}, ("64 sums", "at most 32")),
        ({"split_k": 40}, ("split_k=40", "k=400", "split_k=25")),
        ({"tile_m": 128, "subs_m": 16}, ("512 work-items", "256")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    reason = replace(gemm_fragments.DEFAULT, **changes).why_not(PROBLEM, GPU)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_only_devices_that_showed_a_unit_are_served() -> None:
    assert gemm_fragments.DEFAULT.why_not(PROBLEM, GPU) is None
    assert "none" in (gemm_fragments.DEFAULT.why_not(PROBLEM, Limits()) or "")
    assert not gemm_fragments.serves(GemmProblem(64, 64, 64))
    skinny = gemm_fragments.DEFAULT.why_not(replace(PROBLEM, m=8), GPU) or ""
    assert "8 x 320" in skinny
    assert "gemm_dot" in skinny
    assert len(space_of(gemm_fragments.NAME, PROBLEM, Limits())) == 0
    for unit in UNITS:
        limits = replace(GPU, instructions=frozenset({unit}))
        problem = served(unit, PROBLEM)
        space = space_of(gemm_fragments.NAME, problem, limits)
        seeds = seeds_of(gemm_fragments.NAME, problem, limits)
        assert len(space) >= 8
        assert {each.unit for each in seeds} == {unit}


def test_compilers_are_asked_for_the_units_of_their_maker() -> None:
    assert set(probe.probes([fragments.DPAS])) == {"dpas8", "dpas16"}
    assert set(probe.probes(["cl_amd_media_ops"])) == {
        "wmma", "wmma_gfx12", "mfma", "sdot4", "sudot4", "amd_sub32", "amd_sub64",
    }  # fmt: skip


def test_cooperative_matrices_are_asked_for_where_they_are_announced() -> None:
    names = {name for name, unit in UNITS.items() if unit.is_cooperative}
    assert set(probe.probes([fragments.COOPERATIVE])) == names
    for extensions in ([fragments.DPAS], ["cl_amd_media_ops"], ["cl_nv_pragma_unroll"], []):
        assert not names & set(probe.probes(extensions))


def test_texts_of_cooperative_matrices_alone_are_built_as_opencl_c_3(device: Device) -> None:
    texts = {unit: probe.probe(unit).launches[0].source for unit in ("wmma", "coop_mat32")}
    asked = {unit: fragments.STANDARD in device.programs.options(t) for unit, t in texts.items()}
    assert asked == {"wmma": False, "coop_mat32": True}


def test_cooperative_matrices_have_no_bf16() -> None:
    """The draft lists no such type of components."""
    limits = replace(GPU, instructions=frozenset({"coop_mat32"}))
    reason = config_of("coop_mat32").why_not(PROBLEM, limits)
    assert reason == "unit=coop_mat32 multiplies fp16, not bf16"
    assert not gemm_fragments.guesses(PROBLEM, limits)
    assert len(space_of(gemm_fragments.NAME, PROBLEM, limits)) == 0
    half = replace(PROBLEM, dtype="fp16")
    assert config_of("coop_mat32").why_not(half, limits) is None
    both = replace(limits, instructions=frozenset({"coop_mat32", "wmma"}))
    assert {guess.unit for guess in gemm_fragments.guesses(PROBLEM, both)} == {"wmma"}


def test_sums_of_cooperative_matrices_need_local_memory() -> None:
    half, config = replace(PROBLEM, dtype="fp16"), config_of("coop_mat32")
    needs = config.needs(half)
    assert needs.frames[0].local_bytes == 8 * 16 * 16 * 4
    assert gemm_fragments.plan(half, config).launches[-1].local_bytes == 8 * 16 * 16 * 4
    small = replace(GPU, instructions=frozenset(UNITS), local_bytes=8 * 16 * 16 * 4 - 1)
    assert "8192" in (config.why_not(half, small) or "")


def assert_right(device: Device, problem: GemmProblem, config: gemm_fragments.Config) -> None:
    """Compare with float64."""
    limits = replace(GPU, instructions=frozenset(UNITS))
    assert config.why_not(problem, limits) is None
    measurement = Bench(device, problem).measure(gemm_fragments.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("unit", UNITS)
def test_edges_transposes_and_epilogues(
    device: Device, unit: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every unit with two of the cases, in other dtypes than its neighbours."""
    if (number + list(UNITS).index(unit) + device.index) % 2:
        pytest.skip("another unit or device has this case")
    emulate(monkeypatch)
    problem, changes = CASES[number]
    assert_right(device, served(unit, problem), config_of(unit, **changes))


@pytest.mark.parametrize(("unit", "dtype"), [("wmma", "bf16"), ("coop_mat32", "fp16")])
def test_a_1x1_convolution_in_channels_last(
    device: Device, unit: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    problem = ConvProblem(2, 24, 5, 6, 40, 1, 1, dtype=dtype, layout="nhwc", bias=True)
    family = FAMILIES["conv_as_gemm_fragments"]
    assert family.serves(problem)
    config = family.Config(
        **{field.name: getattr(config_of(unit), field.name) for field in fields(family.Config)}
    )
    measurement = Bench(device, problem).measure(family.plan(problem, config), 0.0)
    assert measurement.ok, measurement.reason


@pytest.mark.parametrize("unit", UNITS)
def test_the_probe_tells_how_lanes_hold_fragments(
    device: Device, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers for the unit, and for none that holds rows of C, or steps of k, elsewhere."""
    emulate(monkeypatch)
    assert _answers(device, probe.probe(unit), probe.ANSWERS[unit])
    honest = UNITS[unit]
    assert np.all(probe.ANSWERS[unit] == len(honest.dtypes) * honest.sums)
    if honest.is_cooperative:
        return
    wrong = replace(honest, row_of_lane=f"{honest.row_of_lane} + 1")
    if honest.first:
        wrong = replace(honest, first=honest.first.replace("lane % 16", "(15 - lane % 16)"))
    monkeypatch.setitem(UNITS, unit, wrong)
    assert not _answers(device, probe.probe(unit), probe.ANSWERS[unit])


@pytest.mark.parametrize(
    ("honest", "wrong"),
    [
        ("p[e % 16 * stride + e / 16]", "p[e / 16 * stride + e % 16]"),
        ("p[row * stride + (lane + 5) % 16]", "p[row * stride + (lane + 6) % 16]"),
        ("#define get_max_sub_group_size() 32", "#define get_max_sub_group_size() 16"),
    ],
)
def test_the_probe_finds_matrices_that_are_loaded_stored_or_shared_otherwise(
    device: Device, honest: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated = fragments_emulated.text("coop_mat32", "fp16")
    assert emulated.count(honest) == 1
    monkeypatch.setattr(fragments, "text", lambda *_: emulated.replace(honest, wrong))
    assert not _answers(device, probe.probe("coop_mat32"), probe.ANSWERS["coop_mat32"])
