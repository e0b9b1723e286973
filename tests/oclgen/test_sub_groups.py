"""`gemm_register` with lanes that share A, and the probes of sub-groups.

Intel's runtime for processors has the functions of Intel and of Khronos, newer ones of PoCL those
of Khronos: there the texts run as they are. AMD's builtin is a macro in this file.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from typing import Any

import pytest

from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_register
from oclgen.limits import KIB, Limits
from oclgen.measuring.measure import Bench
from oclgen.opencl import fragments, probe, sub_groups
from oclgen.opencl.device import Device, _answers
from oclgen.opencl.sub_groups import SUB_GROUPS
from oclgen.plan import Buffer
from oclgen.problem import ConvProblem, GemmProblem
from search_spaces.space import seeds_of, space_of

GPU = Limits(
    "gpu", 64 * KIB, 1024, (1024,) * 3, 2**32, 2**34, 32, instructions=frozenset(SUB_GROUPS),
    extensions=frozenset({"cl_intel_subgroups"}),
)  # fmt: skip
ODD = GemmProblem(37, 150, 29)
SHARED = gemm_register.Config(
    item_m=8, item_n=4, vec_n=4, local_m=4, local_n=16, unroll_k=8, pack_a=False, pack_b=False,
    loop_m=1, order="n", split_k=1, share="intel_sub16",
)  # fmt: skip
CHANGES: dict[str, Any] = {
    "item_m": 5, "item_n": 8, "vec_n": 2, "local_m": 1, "local_n": 32, "unroll_k": 4, "loop_m": 2,
    "split_k": 2, "share": "khr_sub16",
}  # fmt: skip
CASES: tuple[tuple[GemmProblem, dict[str, Any]], ...] = (
    (ODD, {}),
    (GemmProblem(64, 128, 48), {"unroll_k": 16, "local_m": 2}),
    (replace(ODD, trans_a=True, bias="n", activation="relu", residual=True), {"item_m": 3}),
    (replace(ODD, trans_b=True, batch=2, shared_b=True, bias="m"), {"vec_n": 2, "loop_m": 3}),
    (GemmProblem(65, 130, 70, "bf16", trans_a=True, trans_b=True), {"split_k": 3, "unroll_k": 4}),
    (GemmProblem(33, 64, 24, "fp16", residual=True, batch=2), {"item_m": 16, "unroll_k": 1}),
    (GemmProblem(1, 300, 200), {"item_m": 1, "item_n": 8, "vec_n": 8, "split_k": 2}),
    (replace(ODD, k=3, free=frozenset({"m", "n", "k"})), {"item_n": 2, "vec_n": 1}),
)
AMD_IN_KHRONOS = """
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define __builtin_amdgcn_readlane(x, i) sub_group_shuffle(x, (uint)(i))
#define __builtin_amdgcn_readfirstlane(x) sub_group_shuffle(x, 0u)
"""
KEPT = sub_groups.text


def shown(device: Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip where the device lacks a sub-group of such a size; let AMD's call Khronos's function."""
    needed = {"amd": (sub_groups.SHUFFLE,), "intel": ("cl_intel_subgroups",)}
    anything = (sub_groups.SHUFFLE, "cl_khr_subgroups")
    one = SUB_GROUPS[name]
    if not device.limits.extensions & set(needed.get(one.maker, anything)):
        pytest.skip("the device has no sub-groups")
    if one.maker == "amd":
        attribute = f"__attribute__((intel_reqd_sub_group_size({one.lanes})))"
        emulated = AMD_IN_KHRONOS + KEPT(name).replace(
            "#define SUB_GROUP\n", f"#define SUB_GROUP {attribute}\n"
        )
        monkeypatch.setattr(sub_groups, "text", lambda _: emulated)
    if not _answers(device, probe.probe(name), probe.ANSWERS[name]):
        assert device.info.runtime != "Intel(R) OpenCL", "it runs all of these"
        pytest.skip("the device has sub-groups of another size")


def test_every_parameter_changes_the_text() -> None:
    refused = {"pack_a", "pack_b", "order", "ahead"}
    assert set(CHANGES) | refused == {field.name for field in fields(SHARED)}
    (before,) = gemm_register.plan(ODD, SHARED).launches
    for name, value in CHANGES.items():
        changed = replace(SHARED, **{name: value})
        assert changed.why_not(ODD, GPU) is None, (name, changed.why_not(ODD, GPU))
        assert gemm_register.plan(ODD, changed).launches[0].source != before.source, name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"share": "warp"}, ("warp is unknown", "khr_sub32")),
        ({"share": "amd_sub64"}, ("amd_sub64 is no instruction", "intel_sub16")),
        ({"pack_b": True}, ("intel_sub16", "pack_b=0")),
        ({"order": "m"}, ("order='n'",)),
        ({"local_n": 8}, ("local_n=8", "16 lanes")),
        ({"unroll_k": 3}, ("unroll_k=3", "16 elements")),
        ({"vec_n": 16, "item_n": 16}, ("vec_n=16", "(1, 2, 4, 8)")),
    ],
)
def test_refusals_name_the_numbers(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    limits = replace(GPU, instructions=frozenset({"intel_sub16"}))
    reason = replace(SHARED, **changes).why_not(ODD, limits)
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_intel_gpus_share_from_the_first_guess_on_and_others_by_the_search() -> None:
    problem = GemmProblem(512, 512, 512)
    for name, limits in product(SUB_GROUPS, (GPU, replace(GPU, extensions=frozenset()))):
        one = replace(limits, instructions=frozenset({name}))
        seeds = seeds_of(gemm_register.NAME, problem, one)
        assert (seeds[0].share == name) == (SUB_GROUPS[name].maker == "intel")
        assert {each.share for each in seeds[1:]} <= {"none", name}
        space = space_of(gemm_register.NAME, GemmProblem(64, 64, 32), one)
        assert {space.config(row).share for row in range(len(space))} == {"none", name}
    first = seeds_of(gemm_register.NAME, problem, GPU)[0]
    assert (first.share, first.item_m * first.item_n) == ("intel_sub8", 64)
    nothing = replace(GPU, instructions=frozenset())
    assert all(each.share == "none" for each in seeds_of(gemm_register.NAME, problem, nothing))
    along_k = replace(problem, trans_b=True)
    assert all(each.share == "none" for each in gemm_register.guesses(along_k, GPU))


def test_compilers_are_asked_for_the_sub_groups_that_extensions_let_expect() -> None:
    asked = {
        "cl_intel_subgroups": {"intel_sub8", "intel_sub16"},
        "cl_khr_subgroups": {"khr_sub8", "khr_sub16", "khr_sub32", "khr_sub64"},
        "cl_khr_subgroup_shuffle": {"khr_sub8", "khr_sub16", "khr_sub32", "khr_sub64"},
        "cl_amd_media_ops": {"amd_sub32", "amd_sub64"},
        fragments.DPAS: set(),
    }
    for extension, names in asked.items():
        assert set(probe.probes([extension])) & set(SUB_GROUPS) == names
        assert not set(probe.probes([extension], "cpu")) & set(SUB_GROUPS)


@pytest.mark.parametrize("name", SUB_GROUPS)
def test_the_probe_tells_which_work_items_are_lanes(
    device: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers for a sub-group, and for none of another size or order."""
    shown(device, name, monkeypatch)
    text, lanes = sub_groups.text(name), SUB_GROUPS[name].lanes
    others = [text.replace("FROM_LANE(x, i) ", "FROM_LANE(x, i) 0.0f * ")]
    others.append(text.replace("#define LANE ", f"#define LANE {lanes - 1} - "))
    if "READ_ROW2(p) (" in text:
        others.append(text.replace(f"(p)[{lanes} + lane]", f"(p)[{lanes + 1} + lane]"))
    for other in others:
        assert other != text
        monkeypatch.setattr(sub_groups, "text", lambda _, other=other: other)
        assert not _answers(device, probe.probe(name), probe.ANSWERS[name])


def config_of(name: str, **changes: Any) -> gemm_register.Config:
    """Return a config for a sub-group of any size."""
    lanes, values = SUB_GROUPS[name].lanes, {"local_m": 2, "unroll_k": 8, **changes}
    values["unroll_k"] = min(values["unroll_k"], lanes)
    return replace(SHARED, **values, local_n=2 * lanes, share=name)


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("name", SUB_GROUPS)
def test_edges_transposes_and_epilogues(
    device: Device, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sub-group with half of the cases, and all cases with some."""
    if (number + list(SUB_GROUPS).index(name)) % 2:
        pytest.skip("another sub-group has this case")
    shown(device, name, monkeypatch)
    problem, changes = CASES[number]
    config = config_of(name, **changes)
    limits = replace(device.limits, instructions=frozenset({name}))
    assert config.why_not(problem, limits) is None
    measurement = Bench(device, problem).measure(gemm_register.plan(problem, config), 0.0)
    assert measurement.ok, f"{problem.key()} {config}: {measurement.reason}"


def test_broadcasts_serve_where_there_are_no_shuffles(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next((each for each in ("khr_sub16", "khr_sub8") if _runs(device, each)), None)
    if name is None:
        pytest.skip("the device has no such sub-groups")
    kept = sub_groups.text(name)
    broadcasts = kept.replace(f"#ifdef {sub_groups.SHUFFLE}", f"#if 0 // {sub_groups.SHUFFLE}")
    broadcasts = broadcasts.replace("#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n", "")
    monkeypatch.setattr(sub_groups, "text", lambda _: broadcasts)
    assert _runs(device, name)
    plan = gemm_register.plan(ODD, config_of(name))
    assert Bench(device, ODD).measure(plan, 0.0).ok


def _runs(device: Device, name: str) -> bool:
    return _answers(device, probe.probe(name), probe.ANSWERS[name])


def test_a_1x1_convolution(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(device, "intel_sub8", monkeypatch)
    problem = ConvProblem(2, 24, 9, 6, 40, 1, 1, bias=True)
    family = FAMILIES["conv_as_gemm_register"]
    shared = config_of("intel_sub8")
    config = family.Config(
        **{field.name: getattr(shared, field.name) for field in fields(family.Config)}
    )
    measurement = Bench(device, problem).measure(family.plan(problem, config), 0.0)
    assert measurement.ok, measurement.reason


def test_texts_of_khronos_alone_are_built_as_opencl_c_3(device: Device) -> None:
    for name, one in SUB_GROUPS.items():
        options = device.programs.options(probe.probe(name).launches[0].source)
        assert (fragments.STANDARD in options) == (one.maker == "khr")


def test_a_sub_group_needs_no_local_memory() -> None:
    plan = gemm_register.plan(ODD, SHARED)
    assert [launch.local_bytes for launch in plan.launches] == [0]
    assert "__local" not in plan.launches[0].source
    assert {arg.role for arg in plan.launches[0].args if isinstance(arg, Buffer)} == {"a", "b", "c"}
