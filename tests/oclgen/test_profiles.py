"""Every family on devices that are not here: it plans within their limits and asks for no more."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest

from oclgen import profiles
from oclgen.families import FAMILIES, families_for, valid_configs
from oclgen.limits import KIB, DeviceInfo, Limits, first_broken
from oclgen.measuring.measure import Bench
from oclgen.opencl.device import Device, devices, opened_as
from oclgen.plan import Buffer, Launch, Plan
from oclgen.problem import Problem
from oclgen.profiles import ProfileError
from oclgen.profiles.demands import demands
from oclgen.sample import PROBLEMS as SMALL
from oclgen.variant import Variant
from tests.guessed import valid_guesses
from tests.oclgen.plan_texts import PROBLEMS

REAL = [name for name in profiles.names() if profiles.load(name).device]
INFO = DeviceInfo("Some CPU", "Some", "cpu", "cpu float16", "Some OpenCL", "OpenCL 3.0", "1", 8)
ROOMY = Limits(
    "cpu", 1024 * KIB, 8192, (8192,) * 3, 2**36, 2**36, 8, 16, frozenset({"cl_khr_fp64"}),
    frozenset({"vdpbf16ps"}), 4 * KIB,
)  # fmt: skip
GUESSED = 2
"""Guesses of each family for each problem that are planned, beside its `DEFAULT`."""


def limits_of(name: str) -> Limits:
    return profiles.load(name).limits()


def asked(limits: Limits, problem: Problem) -> set[Variant]:
    """What a device without records may be given: defaults, and each family's first guesses."""
    found = set()
    for family in families_for(problem):
        configs = [*islice(valid_configs(family, problem, limits), GUESSED), family.DEFAULT]
        found |= {
            Variant(family.NAME, config)
            for config in configs
            if config.why_not(problem, limits) is None
        }
    return found


def runs_in_plain_c(name: str) -> bool:
    """Whether a family has a config that asks for no instruction beyond OpenCL C."""
    family, limits = FAMILIES[name], limits_of("gfx90a")
    served = (problem for problem in SMALL if family.serves(problem))
    return any(any(valid_configs(family, problem, limits)) for problem in served)


@pytest.mark.parametrize("name", REAL)
def test_all_that_is_guessed_stays_within_the_limits(name: str) -> None:
    """Sizes, local memory, arguments and workspaces of every launch, which OpenCL 1.2 divides."""
    limits = limits_of(name)
    for problem in PROBLEMS:
        for variant in asked(limits, problem):
            plan = variant.plan(problem)
            what = f"{variant.family} {variant.to_json()} for {problem.key()}"
            assert first_broken(plan, limits) is None, what
            for launch in plan.launches:
                sizes = launch.global_size, launch.local_size
                reason = profiles.why_no_launch(launch.kernel, *sizes, limits)
                assert reason is None, f"{what}: {reason}"


@pytest.mark.parametrize("name", REAL)
def test_every_problem_has_a_variant(name: str) -> None:
    """In channels_last some convolutions have none without matrix units; torch asks for planes."""
    limits = limits_of(name)
    for problem in PROBLEMS:
        if getattr(problem, "layout", "nchw") == "nchw":
            assert next(valid_guesses(problem, limits), None) is not None, problem.key()


@pytest.mark.sampled(40)
@pytest.mark.parametrize("profile", REAL)
@pytest.mark.parametrize("name", [name for name in FAMILIES if runs_in_plain_c(name)])
def test_a_guess_is_right_under_a_profile(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, profile: str
) -> None:
    monkeypatch.setenv(profiles.VARIABLE, profile)
    under = opened_as(device.index, device.handle)
    assert under.limits.kind == "gpu"
    assert under.enforced is under.limits
    for problem in SMALL:
        if FAMILIES[name].serves(problem):
            config = next(valid_configs(FAMILIES[name], problem, under.limits), None)
            if config is not None:
                plan = FAMILIES[name].plan(problem, config)
                result = Bench(under, problem).measure(plan, 0.0)
                assert result.ok, f"{problem.key()} {config}: {result.reason}"
                return
    pytest.fail(f"{name} has no config for any of the small problems")


def test_no_text_asks_for_more_than_any_profile_has() -> None:
    """fp64, arithmetic in half, 64-bit atomics, sub-groups, assembly: families' texts, guessed."""
    least = replace(limits_of("apple_m1"), extensions=frozenset())
    texts = {
        launch.source
        for problem in PROBLEMS[::3]
        for variant in asked(least, problem)
        for launch in variant.plan(problem).launches
    }
    assert len(texts) > 100
    for text in texts:
        assert profiles.why_no_program(text, least) is None, text[:400]


@pytest.mark.parametrize(
    ("text", "extension"),
    [
        ("double x = 1;", "cl_khr_fp64"),
        ("y = convert_double2(x);", "cl_khr_fp64"),
        ("half x = a[0];", "cl_khr_fp16"),
        ("typedef half elem_t; __local elem_t tile[64];", "cl_khr_fp16"),
        ("atom_cmpxchg(p, 0L, 1L);", "cl_khr_int64_base_atomics"),
        ("atom_min(p, 1L);", "cl_khr_int64_extended_atomics"),
        ("x = sub_group_reduce_add(y);", "cl_khr_subgroups"),
        ("x = intel_sub_group_block_read(p);", "cl_intel_subgroups"),
        ('__asm__("nop;");', "inline assembly"),
        ("x = work_group_reduce_add(y);", "OpenCL C 2.0"),
    ],
)
def test_what_a_text_asks_for_is_seen(text: str, extension: str) -> None:
    body = f"__kernel void k(__global float *a) {{ {text} }}"
    assert [demand.extension for demand in demands(body)] == [extension]
    reason = profiles.why_no_program(body, Limits())
    assert reason is not None
    assert extension in reason
    with_it = Limits(extensions=frozenset({extension}))
    assert profiles.why_no_program(body, with_it) is None


@pytest.mark.parametrize(
    "text",
    [
        "typedef half elem_t; __kernel void k(__global const elem_t *restrict a) {}",
        "__kernel void k(__global half *a) { float x = vload_half(0, (const __global half *)a); }",
        "/* double buffering, in half the time */ __kernel void k(__global uchar *a) { a[0] = 1; }",
        "// sub_group_barrier and double\n__kernel void k(__global int *a) { atomic_inc(a); }",
    ],
)
def test_plain_opencl_c_asks_for_nothing(text: str) -> None:
    assert demands(text) == ()


@pytest.mark.parametrize("name", REAL)
def test_a_profile_has_every_figure_with_its_source(name: str) -> None:
    profile = profiles.load(name)
    assert profile.figures.keys() == asdict(Limits()).keys() - profiles.ASKED
    assert profile.sources.keys() == profile.figures.keys()
    assert all(len(source) > 20 for source in profile.sources.values())
    limits = profile.limits()
    # what the specification promises of any device of its full profile
    assert limits.local_bytes >= 32 * KIB
    assert limits.max_argument_bytes >= KIB
    assert limits.max_alloc_bytes >= min(limits.global_bytes // 4, 2**30)
    assert max(limits.max_alloc_bytes, limits.global_bytes) <= 2**limits.address_bits
    assert "cl_khr_byte_addressable_store" in limits.extensions


@pytest.mark.parametrize("name", REAL)
def test_under_a_profile_a_device_has_no_more_than_it_has(name: str) -> None:
    own = limits_of(name)
    small = replace(ROOMY, local_bytes=16 * KIB, max_work_items=(512, 512, 32), global_bytes=2**30)
    for under in (ROOMY, small):
        laid = profiles.load(name).laid_over(under)
        assert (laid.kind, laid.compute_units) == (own.kind, own.compute_units)
        assert laid.local_bytes == min(own.local_bytes, under.local_bytes)
        assert laid.global_bytes == min(own.global_bytes, under.global_bytes)
        assert laid.max_work_items[2] == min(own.max_work_items[2], under.max_work_items[2])
        assert laid.extensions == own.extensions & under.extensions
        assert not laid.instructions


def test_a_profile_without_a_device_keeps_what_it_gives_no_figure_for() -> None:
    narrow = profiles.load("avx2")
    limits = replace(ROOMY, kind="cpu", native_float_width=16)
    assert narrow.laid_over(limits) == replace(
        limits, instructions=frozenset(), native_float_width=8
    )
    shown = replace(limits, instructions=frozenset({"vpdpbusd", "vpmaddubsw"}))
    assert narrow.laid_over(shown).instructions == {"vpmaddubsw"}
    assert narrow.info(INFO).kind == INFO.kind
    assert narrow.info(INFO).compute_units == INFO.compute_units


def test_a_profile_keeps_instructions_that_the_device_underneath_has_shown(
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether it names all of them, one that the device lacks, or none."""
    shown = device.limits.instructions
    for at, named in enumerate((sorted(shown), ["vpmissing"], [])):
        path = tmp_path / f"kept{at}.toml"  # a profile is read once for each path
        given = f'instructions = {{ value = {json.dumps(named)}, source = "s" }}'
        path.write_text(f'[sources]\ns = "a test"\n[limits]\n{given}\n')
        monkeypatch.setenv(profiles.VARIABLE, str(path))
        under = devices.__wrapped__()[device.index]
        assert under.limits.instructions == shown & {*named}
        assert under.enforced is None


def test_the_unknown_device_is_the_device_without_what_was_shown() -> None:
    unknown = profiles.load("unknown")
    assert unknown.laid_over(ROOMY) == replace(ROOMY, instructions=frozenset())
    assert not unknown.has_records


def test_a_profiled_device_is_no_relative_of_a_real_one() -> None:
    """Neither of the device underneath nor of the one it is taken for."""
    seen = {profiles.load(name).info(INFO).architecture for name in profiles.names()}
    assert len(seen) == len(profiles.names())
    assert INFO.architecture not in seen
    taken = profiles.load("apple_m1").info(INFO)
    assert taken.is_profiled
    assert not INFO.is_profiled
    assert "Apple M1" in taken.name
    assert INFO.name in taken.name
    assert (taken.kind, taken.compute_units) == ("gpu", 8)


def test_narrow_addresses_take_fewer_bytes_of_arguments() -> None:
    args = tuple(Buffer(f"x{i}") for i in range(5))
    plan = Plan((Launch("", "k", (1,), (1,), args),))
    tight = Limits(max_argument_bytes=32)
    assert "40 B of arguments" in str(first_broken(plan, tight))
    assert first_broken(plan, replace(tight, address_bits=32)) is None


def test_a_work_group_has_to_divide_the_work_items() -> None:
    limits = limits_of("mali_g52")
    assert profiles.why_no_launch("k", (768,), (384,), limits) is None
    assert "do not divide" in str(profiles.why_no_launch("k", (100,), (64,), limits))
    assert "allows 384" in str(profiles.why_no_launch("k", (512,), (512,), limits))


def test_a_file_of_ones_own_is_a_profile_and_a_wrong_one_says_what_is_wrong(tmp_path: Path) -> None:
    text = (profiles.FOLDER / "mali_g52.toml").read_text()
    good = tmp_path / "mine.toml"
    good.write_text(text.replace("384", "128"))
    assert profiles.load(str(good)).limits().max_work_group == 128
    for wrong, said in (
        (text.replace("local_bytes", "local_memory"), "local_memory is no limit"),
        (text.replace('kind = { value = "gpu", source = "clinfo" }\n', ""), "no figure for kind"),
        (text.replace('source = "clinfo"', 'source = "hearsay"'), "hearsay"),
        ("limits = [", "is no profile"),
    ):
        bad = tmp_path / f"{abs(hash(wrong))}.toml"
        bad.write_text(wrong)
        with pytest.raises(ProfileError, match=said):
            profiles.load(str(bad))
    with pytest.raises(ProfileError, match="adreno_750, apple_m1"):
        profiles.load("voodoo")
