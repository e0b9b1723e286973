"""A variant is one value: read in one place, bounded, refused with numbers, planned in bounds."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oclgen.families import FAMILIES, families_for
from oclgen.keys import parse_problem
from oclgen.limits import Limits, broken, first_broken
from oclgen.opencl import probe
from oclgen.parameters import ConfigError, Range, parameters
from oclgen.plan import Frame, Launch, LazyText, Needs, Outline, Plan, Spread, buffer
from oclgen.problem import GemmProblem, Problem
from oclgen.variant import Variant
from tests.oclgen import plan_texts

PRODUCT = GemmProblem(64, 64, 64)
CPU, GPU = plan_texts.DEVICES
SMALL = replace(CPU, max_alloc_bytes=2**28, global_bytes=2**29)
MOST_TEXT = 4 << 20
"""Characters of the longest text that a config in range may have."""
HOSTILE: tuple[Any, ...] = (
    -1, -2, -(2**31), 2**31, 2**63, 10**400, True, 1.0, float("nan"), "1", None, [], {},
)  # fmt: skip
FOREIGN = (
    ("gemm_columns", {"item_m": -2147483647}),
    ("gemm_register", {"item_m": -2, "loop_m": -2}),
    ("gemm_register", {"split_k": 0}),
    ("gemm_register", {"unroll_k": 2**30}),
    ("winograd_blocked", {"tile_rows": -2}),
    ("conv_register", {"vecs": 2**20}),
    ("depthwise", {"patch_w": 2**30}),
    ("gemm_dot", {"item_m": 2**30}),
)
"""Configs that took a process's memory, or its life, or wrote nothing."""


def default(family: str) -> Variant:
    return Variant(family, FAMILIES[family].DEFAULT)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_variant_is_read_back_from_its_text_and_its_values(family: str) -> None:
    variant = default(family)
    assert Variant.from_text(variant.to_text()) == variant
    assert Variant.from_values(family, json.loads(variant.to_json())) == variant
    assert hash(Variant.from_text(variant.to_text())) == hash(variant)


def test_a_text_from_before_a_parameter_came_means_its_default() -> None:
    text = default("gemm_async").to_text()
    older = text.replace(",local_k=1,order=m,groups=0", "")
    assert older != text
    assert Variant.from_text(older) == default("gemm_async")


def test_a_nested_variant_keeps_the_text_that_records_have() -> None:
    config = FAMILIES["winograd_staged"].DEFAULT
    assert re.match(r"gemm_staged:tile_m=\d+,tile_n=\d+,tile_k=8,local_m=8,", config.gemm)
    assert Variant.from_text(config.gemm).to_text() == config.gemm
    wrong = {**default("winograd_staged").values(), "gemm": config.gemm.replace("=8", "=-8")}
    with pytest.raises(ConfigError, match=r"gemm.*tile_k=-8: it must be 1 to 1024"):
        Variant.from_values("winograd_staged", wrong)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gemm_magic:a=1", "unknown; known are .*gemm_mma"),
        ("gemm_dot", "missing"),
        ("gemm_dot:item_m=1,item_m=2", "twice"),
        ("gemm_dot:" + "1" * 5000, "characters"),
        ("winograd_staged:gemm=(gemm_dot:a=1", "not closed"),
        (default("gemm_dot").to_text().replace("item_m=2", "item_m=x"), "item_m='x'"),
    ],
)
def test_what_is_no_text_of_a_variant_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Variant.from_text(text)


def test_variants_are_sorted_by_their_text() -> None:
    variants = [default(family) for family in reversed([*FAMILIES])]
    assert [one.family for one in sorted(variants)] == sorted(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_integer_has_bounds_and_no_other_value_is_read(family: str) -> None:
    variant = default(family)
    for parameter in parameters(FAMILIES[family].Config):
        if parameter.type is not int:
            continue
        assert isinstance(parameter.bound, Range)
        low, high = parameter.bound
        for value in (*HOSTILE, low - 1, high + 1):
            with pytest.raises(ConfigError, match=parameter.name):
                Variant.from_values(family, {**variant.values(), parameter.name: value})
        for value in (low, high):
            Variant.from_values(family, {**variant.values(), parameter.name: value})


@pytest.mark.parametrize(("family", "change"), FOREIGN)
def test_foreign_configs_are_neither_read_nor_planned(family: str, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="it must be 1 to"):
        Variant.from_values(family, {**default(family).values(), **change})
    made = replace(FAMILIES[family].DEFAULT, **change)
    served = next(p for p in plan_texts.PROBLEMS if FAMILIES[family].serves(p))
    assert "it must be 1 to" in (Variant(family, made).why_not(served, CPU) or "")


@pytest.mark.parametrize(
    ("problem", "family"),
    [
        (PRODUCT, "gemm_register"),
        (parse_problem("2,64,16,16,512,1,1,1,0"), "conv_as_gemm_register"),
    ],
    ids=["product", "convolution"],
)
def test_a_loop_that_would_be_too_long_is_refused_by_its_config(
    problem: Problem, family: str
) -> None:
    """Written out, the largest of these loops has a text of more than `MOST_TEXT` characters."""
    long = {**default(family).values(), "item_m": 1, "item_n": 512, "vec_n": 1, "unroll_k": 32}
    reason = Variant.from_values(family, long).why_not(problem, CPU)
    assert reason == (
        "unroll_k=32 item_m=1 item_n=512 vec_n=1 writes out 16384 multiply-adds; at most 4096 are"
    )
    fits = Variant.from_values(family, {**long, "unroll_k": 8})
    assert fits.why_not(problem, CPU) is None
    assert sum(len(launch.source) for launch in fits.plan(problem).launches) <= MOST_TEXT


def test_a_rule_that_raises_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    def divide(*_: Any) -> str:
        return str(1 // 0)

    variant = default("gemm_dot")
    monkeypatch.setattr(type(variant.config), "conflict", divide)
    reason = variant.why_not(replace(PRODUCT, trans_b=True), GPU)
    assert reason == "its rule raised ZeroDivisionError: integer division or modulo by zero"


def test_a_problem_that_the_family_does_not_compute_is_no_error() -> None:
    assert "does not compute gemm:" in (default("conv_gemm").why_not(PRODUCT, GPU) or "")


def served() -> st.SearchStrategy[tuple[Problem, str, Limits]]:
    pairs = [(p, family.NAME) for p in plan_texts.PROBLEMS for family in families_for(p)]
    return st.tuples(st.sampled_from(pairs), st.sampled_from((SMALL, GPU))).map(
        lambda drawn: (*drawn[0], drawn[1])
    )


def near(parameter: Any, value: Any) -> st.SearchStrategy[Any]:
    """Return a parameter's default, both ends of its range, and powers of two between."""
    if parameter.type is bool:
        return st.booleans()
    if parameter.type is str:
        return st.sampled_from((value, value, "m", "n", "mma", "wgmma", "", "x" * 100))
    low, high = parameter.bound
    powers = [1 << bit for bit in range(31) if low <= 1 << bit <= high]
    return st.sampled_from((value, value, value, low, high, *powers))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(asked=served(), data=st.data())
def test_a_config_in_range_is_refused_or_planned_within_bounds(
    asked: tuple[Problem, str, Limits], data: st.DataObject
) -> None:
    problem, family, limits = asked
    values = default(family).values()
    for parameter in parameters(FAMILIES[family].Config):
        values[parameter.name] = data.draw(near(parameter, values[parameter.name]))
    try:
        variant = Variant.from_values(family, values)
    except ConfigError:
        return
    if variant.why_not(problem, limits) is not None:
        return
    plan = variant.plan(problem)
    assert first_broken(plan, limits) is None
    assert all(0 < size <= limits.max_alloc_bytes for _, size in plan.workspaces)
    assert sum(len(launch.source) for launch in plan.launches) <= MOST_TEXT


def test_what_configs_say_they_need_is_what_their_plans_need() -> None:
    """Of launches whose sizes no parameter changes, a config may be silent."""
    for problem, variant in plan_texts.corpus().values():
        plan, needs = variant.plan(problem), variant.config.needs(problem)
        assert needs.workspaces == plan.workspaces, (problem.key(), variant.to_text())
        silent = {frame.kernel for frame in plan.needs.frames} - {f.kernel for f in needs.frames}
        of_kernels = [frame for frame in plan.needs.frames if frame.kernel not in silent]
        assert set(of_kernels) == set(needs.frames), (problem.key(), variant.to_text())


def test_outlines_have_the_sizes_of_plans() -> None:
    """A candidate is predicted by its outline, and launched by its plan."""
    families = set()
    for problem, variant in plan_texts.corpus().values():
        plan, outline = variant.plan(problem), variant.outline(problem)
        spreads = [one if isinstance(one, Spread) else one.spread for one in outline.launches]
        assert spreads == [one.spread for one in plan.launches], (problem.key(), variant.to_text())
        assert (outline.workspaces, outline.counters) == (plan.workspaces, plan.counters)
        families |= {variant.family} if isinstance(outline, Outline) else set()
    assert {"conv_mma", "conv_gemm", "conv_async", "gemm_staged", "conv_as_gemm_mma"} <= families


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            Frame("k", (8, 16)),
            "k has a work-group of 8 x 16 = 128 work-items; the device allows 64",
        ),
        (Frame("k", (1, 8)), "k has 8 work-items in dimension 1"),
        (Frame("k", (8,), 2048), "k needs 2048 B of local memory; the device has 1024 B"),
    ],
)
def test_broken_limits_are_named_with_numbers(frame: Frame, words: str) -> None:
    limits = Limits(max_work_items=(64, 4, 4), local_bytes=1024)
    assert broken(Needs((Frame("first", (1,)), frame)), limits) is not None
    assert words in (broken(Needs((Frame("first", (1,)), frame)), limits) or "")


def test_workspaces_and_arguments_have_limits_too() -> None:
    limits = Limits(max_alloc_bytes=1000, global_bytes=2000, max_argument_bytes=32)
    launch = Launch("", "k", (1,), (1,), buffer("a") * 2)
    assert first_broken(Plan((launch,), (("w", 1000),)), limits) is None
    assert "workspace w needs 1001 B" in str(first_broken(Plan((launch,), (("w", 1001),)), limits))
    two = (("v", 600), ("w", 600))
    assert "need 1200 B of the device's 2000 B" in str(first_broken(Plan((launch,), two), limits))
    long = replace(launch, args=buffer("a") * 3)
    assert "k has 48 B of arguments; the device allows 32 B" in str(
        first_broken(Plan((long,)), limits)
    )


def test_a_text_is_rendered_once_when_it_is_read() -> None:
    rendered: list[int] = []

    def render() -> str:
        rendered.append(1)
        return "text"

    launch = Launch(LazyText(render), "k", (1,), (1,), ())
    renamed = replace(launch, kernel="other")
    assert not rendered
    assert launch.source == renamed.source == "text"
    assert rendered == [1]
    assert launch == replace(launch, text="text")
    assert pickle.loads(pickle.dumps(launch)) == launch


def test_families_declare_instructions_that_they_ask_for() -> None:
    for family in FAMILIES.values():
        assert {field.name for field in fields(family.TRAITS)} >= {"for_cpus", "instructions"}
        if limits := family.TRAITS.instructions:
            assert limits <= {*probe.ANSWERS}
