"""What a run leaves out is a sample's rest; programs that come from elsewhere tell their errors."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import replace
from math import ceil
from typing import Any
from uuid import uuid4

import pytest

from oclgen.families.gemm import gemm_pairs
from oclgen.sample import PROBLEMS
from tests import sampled_builds, samples

pytest_plugins = ("pytester",)

CASES = """
import pytest
from types import SimpleNamespace

devices = pytest.mark.parametrize(
    "device",
    [pytest.param(SimpleNamespace(index=n), marks=pytest.mark.device) for n in range(2)],
)

@devices
@pytest.mark.parametrize("n", range(400))
def test_cheap(device, n): pass

@devices
@pytest.mark.sampled(10)
@pytest.mark.parametrize("n", range(400))
def test_costly(device, n): pass

@devices
@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", range(400))
def test_all(device, n): pass

@devices
@pytest.mark.on_each_device(4)
@pytest.mark.parametrize("n", range(8))
def test_each_device(device, n): pass

@pytest.mark.sampled(10**6)
@pytest.mark.parametrize("n", range(3))
def test_at_least_once(n): pass

def test_plain(): pass
"""


def test_a_sample_holds_every_test_on_one_device_and_few_cases_of_costly_ones(
    pytester: pytest.Pytester,
) -> None:
    items = pytester.getitems(CASES)
    out = {item.nodeid for item in samples.left_out(items)}
    kept: Counter[tuple[str, int]] = Counter()
    for item in items:
        assert isinstance(item, pytest.Function)
        if item.nodeid not in out:
            kept[item.originalname, samples.device_of(item)] += 1
    of_the_folder = [kept.pop((name, 1), 0) for name in ("test_cheap", "test_costly", "test_all")]
    assert sum(of_the_folder) == ceil((400 + 400 + 400) / samples.OTHER_DEVICES)
    assert min(of_the_folder) > 0
    assert kept == {
        ("test_cheap", 0): samples.MANY + ceil((400 - samples.MANY) / samples.OF_MANY),
        ("test_costly", 0): 40,
        ("test_all", 0): 400,
        ("test_each_device", 0): samples.MANY + ceil((8 - samples.MANY) / samples.OF_MANY),
        ("test_each_device", 1): 2,
        ("test_at_least_once", 0): 1,
        ("test_plain", 0): 1,
    }


@pytest.mark.parametrize("asked", [(), ("-k", "7"), ("-m", "device")], ids=" ".join)
def test_what_is_not_made_is_not_in_the_sample(
    pytester: pytest.Pytester, asked: tuple[str, ...]
) -> None:
    """Of cases that the command asks for, the sample is one of these: then all are made."""
    pytester.makepyfile(CASES)

    def made_and_kept(*plugins: object) -> tuple[int, set[str]]:
        run = pytester.inline_run("--collect-only", *asked, plugins=plugins)
        items = run.getcalls("pytest_collection_finish")[0].session.items
        out = samples.left_out(items)
        return len(items), {item.nodeid for item in items if item not in out}

    count, kept = made_and_kept()
    fewer, same = made_and_kept(samples.Thinning())
    assert same == kept
    assert fewer == count if asked else fewer < count / 2


def test_assembly_of_wide_vectors_is_built_as_users_build_it_where_it_must_be() -> None:
    """PoCL 7.1 ended the process: "Do not know how to expand the result of this operator!"."""
    problem = next(one for one in PROBLEMS if gemm_pairs.serves(one))
    texts = [one.source for one in gemm_pairs.plan(problem, gemm_pairs.DEFAULT).launches]
    asked = ["vdpbf16ps %2" in text for text in texts]
    assert any(asked)
    pocl, other = "Portable Computing Language", "Intel(R) OpenCL"
    assert [sampled_builds.needs_optimiser(pocl, text) for text in texts] == asked
    assert not any(sampled_builds.needs_optimiser(other, text) for text in texts)


def test_what_emulates_an_instruction_is_not_built_as_users_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oclgen.attention_problem import AttentionProblem
    from oclgen.families import FAMILIES
    from oclgen.families.gemm import gemm_fragments
    from oclgen.packed_problem import PackedProblem
    from oclgen.problem import GemmProblem
    from tests.oclgen import (
        attention_emulated,
        fragments_emulated,
        mma_emulated,
        packed_emulated,
    )

    monkeypatch.setattr(samples, "THOROUGH", False)
    monkeypatch.setattr(sampled_builds, "EVERY", 1)
    gemm, units = GemmProblem(64, 64, 64, "bf16"), replace(gemm_fragments.DEFAULT, unit="dpas16")
    cases: dict[str, tuple[Any, Any]] = {
        "gemm_mma": (gemm, FAMILIES["gemm_mma"].DEFAULT),
        "gemm_fragments": (gemm, units),
        "attention_mma": (
            AttentionProblem(1, 2, 1, 16, 16, 16, 16, "bf16"), FAMILIES["attention_mma"].DEFAULT
        ),
        "packed_mma": (PackedProblem(1, 8, 512, "bf16", "q4_0"), FAMILIES["packed_mma"].DEFAULT),
    }  # fmt: skip

    def built_as_users_do() -> set[str]:
        plans = {name: FAMILIES[name].plan(*case) for name, case in cases.items()}
        return {
            name
            for name, plan in plans.items()
            if all(sampled_builds.is_sampled(launch.source) for launch in plan.launches)
        }

    assert built_as_users_do() == cases.keys()
    for emulated in (attention_emulated, fragments_emulated, mma_emulated, packed_emulated):
        emulated.emulate(monkeypatch)
    assert built_as_users_do() == set()
    with sampled_builds.as_users_build():
        assert built_as_users_do() == cases.keys()


def test_a_profile_of_a_gpu_over_a_processor_is_sampled_too(device: Any) -> None:
    source = "__kernel void k(__global int *x) { x[0] = 1; }  // a text that is in no sample"
    shown = copy(device.programs)
    shown.info = replace(shown.info, kind="gpu")
    assert not sampled_builds.is_sampled(source) or samples.THOROUGH
    assert shown.options(source) == device.programs.options(source)


def test_what_is_wrong_with_a_program_is_told(device: Any) -> None:
    from oclgen.opencl.device import BuildError

    with pytest.raises(BuildError, match="no_such_function"):
        device.build("__kernel void k(__global int *x) { x[0] = no_such_function(1); }")


def test_devices_that_show_other_limits_build_in_the_same_processes(device: Any) -> None:
    shown = [replace(device, limits=replace(device.limits, local_bytes=n)) for n in (1 << 14, 1)]
    for one in shown:
        one.build(f"__kernel void unmet_{uuid4().hex}(__global float *x) {{ x[0] = 1; }}")
    first, second = (one.ahead._pool for one in shown)
    assert first is not None
    assert second is first
