"""What is compiled for other GPUs, how it is reported and, where compilers are, what they say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.targets.cases import PROBLEMS, cases, unasked
from benchmarks.targets.compilers import CompileError, Figures, compiled, instructions, missing
from benchmarks.targets.rows import Result, Row
from benchmarks.targets.table import markdown_of
from benchmarks.targets.target import TARGETS, Target
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_fragments, gemm_int8, gemm_register
from oclgen.opencl import lanes
from oclgen.plan import Launch
from oclgen.problem import GemmProblem

ROOT = Path(__file__).parents[2]
ROW = Row("dg2", "gemm_dot", "key", "default", "text", Figures(128, 0, 64, 16, 8))
MNEMONICS = {"dg2": "dpas.8x8", "pvc": "dpas.8x8", "gfx90a": "v_mfma_f32_16x16x16",
             "gfx1100": "v_wmma_f32_16x16x16", "gfx1201": "v_wmma_f32_16x16x16"}  # fmt: skip
DOTS = {"gfx906": "v_dot4_i32_i8", "gfx90a": "v_dot4c_i32_i8", "gfx1030": "v_dot4c_i32_i8",
        "gfx1100": "v_dot4_i32_iu8", "gfx1201": "v_dot4_i32_iu8", "tgllp": "dp4a", "dg2": "dp4a",
        "pvc": "dp4a"}  # fmt: skip
HANDED = {"intel": r"\bmad .* r\d+\.\d+<0(;0)?>:f", "amd": "v_readlane_b32"}
"""A product whose factor is one lane's register, or what reads one lane's."""
ROWS = {"skl": "oword block read", "tgllp": "oword block read", "dg2": "oword block read",
        "pvc": "load.ugm.d32x64t"}  # fmt: skip
SPILLING = """
__kernel void {name}(__global float16 *x, const int n)
{{
    float16 all[40];
    for (int i = 0; i < n; ++i) {{
        all[i % 40] = x[i * 7];
    }}
    for (int i = 0; i < n; ++i) {{
        x[i] = all[(i + 3) % 40];
    }}
}}
"""


@pytest.mark.parametrize("name", ["gfx1100", "dg2"])
def test_every_family_has_a_case_or_a_reason(name: str) -> None:
    target = TARGETS[name]
    found, left_out = cases(target, seed=1, samples=1), unasked(target)
    assert {case.variant.family for case in found} | set(left_out) == set(FAMILIES)
    assert all(case.variant.why_not(case.problem, target.limits) is None for case in found)
    assert {case.problem for case in found} == set(PROBLEMS)
    assert found == cases(target, seed=1, samples=1)
    of_one = cases(target, seed=1, samples=1, families=("gemm_staged",))
    assert of_one == [case for case in found if case.variant.family == "gemm_staged"]


def test_a_row_is_wrong_if_it_failed_or_needs_scratch_unless_it_was_drawn() -> None:
    assert not ROW.is_wrong
    assert replace(ROW, figures=None, error="refused").is_wrong
    spilled = replace(ROW, figures=Figures(128, 4, 64, 16, 8))
    assert spilled.is_wrong
    assert not replace(spilled, origin="sample").is_wrong
    assert Figures(1, 5, 3, 16, 8).worse(Figures(2, 4, 3, 32, 4)) == Figures(2, 5, 3, 16, 4)


def test_a_file_is_read_back_and_a_target_replaces_its_rows() -> None:
    amd = replace(ROW, target="gfx906")
    result = Result({}, (), {}).having(TARGETS["dg2"], "ocloc 1", (ROW,), {"gemm_mma": "why"})
    both = result.having(TARGETS["gfx906"], "clang 19", (amd, amd), {})
    assert Result.from_json(both.to_json()) == both
    assert [row.target for row in both.rows] == ["gfx906", "gfx906", "dg2"]
    again = both.having(TARGETS["gfx906"], "clang 20", (amd,), {})
    assert [row.target for row in again.rows] == ["gfx906", "dg2"]
    assert again.compilers == {"intel": "ocloc 1", "amd": "clang 20"}
    packed = replace(ROW, family="packed_rows")
    more = both.having(TARGETS["dg2"], "ocloc 1", (packed,), {}, ("packed_rows",))
    assert [row.family for row in more.rows if row.target == "dg2"] == [ROW.family, "packed_rows"]
    assert more.having(TARGETS["dg2"], "ocloc 1", (packed,), {}, ("packed_rows",)) == more


def test_the_page_shows_the_committed_rows() -> None:
    result = Result.from_json((ROOT / "benchmarks/results/targets.json").read_text())
    assert (ROOT / "docs/results_targets.md").read_text() == markdown_of(result)
    assert {row.target for row in result.rows} <= set(TARGETS)


def target_of(name: str) -> Target:
    """Return a target whose compiler is here, or skip."""
    if reason := missing(TARGETS[name].maker):
        pytest.skip(reason)
    return TARGETS[name]


@pytest.mark.parametrize("name", MNEMONICS)
def test_units_are_in_the_assembly_and_nothing_spills(name: str) -> None:
    target = target_of(name)
    problem = GemmProblem(1024, 1024, 1024, "bf16", bias="n", residual=True)
    config = next(
        each
        for each in gemm_fragments.guesses(problem, target.limits)
        if each.why_not(problem, target.limits) is None
    )
    launch = next(
        one
        for one in gemm_fragments.plan(problem, config).launches
        if one.kernel == gemm_fragments.NAME
    )
    assert compiled(launch, target).scratch == 0
    assert instructions(launch, target).count(MNEMONICS[name]) >= config.blocks[0]


@pytest.mark.parametrize("name", DOTS)
def test_four_bytes_are_multiplied_by_one_instruction(name: str) -> None:
    """As often as a work-item's tile has words, and nothing spills."""
    target = target_of(name)
    problem = GemmProblem(1024, 1024, 1024, "int8", trans_b=True)
    config = next(
        each
        for each in gemm_int8.guesses(problem, target.limits)
        if each.why_not(problem, target.limits) is None
    )
    assert config.unit in target.limits.instructions
    (launch,) = gemm_int8.plan(problem, config).launches
    assert compiled(launch, target).scratch == 0
    assert instructions(launch, target).count(DOTS[name]) >= config.item_m * config.item_n


@pytest.mark.parametrize("name", [*ROWS, "gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_lanes_hand_operands_round_without_local_memory(name: str) -> None:
    """By Intel's regions of a register, or an instruction for each element; rows by block reads."""
    target = target_of(name)
    share, problem = gemm_register.sharing(target.limits)[0], GemmProblem(1024, 1024, 1024)
    config = gemm_register.guesses(problem, target.limits)[0]
    if target.maker == "amd":
        assert config.share == gemm_register.ALONE
        config = replace(config, item_n=8, vec_n=8, unroll_k=8, share=share)
    assert (config.share, config.why_not(problem, target.limits)) == (share, None)
    (launch,) = gemm_register.plan(problem, replace(config, split_k=1)).launches
    figures, assembly = compiled(launch, target), instructions(launch, target)
    assert (figures.scratch, figures.local) == (0, 0)
    handed = len(re.findall(HANDED[target.maker], assembly))
    elements = config.item_m * config.unroll_k
    assert handed >= elements * (config.item_n if target.maker == "intel" else 1)
    if name in ROWS:
        assert figures.lanes == config.lanes
        assert assembly.count(ROWS[name]) >= config.unroll_k


def test_programs_get_the_lanes_of_a_target() -> None:
    """Ponte Vecchio's compiler takes 32 lanes where nothing is said."""
    target = target_of("pvc")
    config = gemm_register.DEFAULT
    (launch,) = gemm_register.plan(GemmProblem(64, 64, 64), config).launches
    taken = [compiled(launch, replace(target, lanes=count)).lanes for count in (0, 16)]
    assert taken == [32, 16]
    assert lanes.options(launch.source, target.lanes)


def test_no_default_and_no_guess_needs_scratch() -> None:
    """Nor does a compiler refuse one; drawn variants may be refused."""
    result = Result.from_json((ROOT / "benchmarks/results/targets.json").read_text())
    assert [row for row in result.rows if row.is_wrong and row.origin != "sample"] == []


@pytest.mark.parametrize("name", ["gfx1100", "dg2"])
def test_what_spills_or_is_refused_is_told(name: str) -> None:
    target = target_of(name)
    launch = Launch(SPILLING.format(name="spills"), "spills", (64,), (64,), ())
    assert compiled(launch, target).scratch > 0
    with pytest.raises(CompileError, match="error"):
        compiled(replace(launch, text="__kernel void spills() { nonsense; }"), target)
