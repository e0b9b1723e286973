"""What a choice asks for once, as each costs the host time while an operator waits."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest

from oclgen.families import preferred
from oclgen.family import outlined
from oclgen.limits import Limits
from oclgen.predictor.model import predict
from oclgen.problem import ConvProblem, GemmProblem, Problem
from oclgen.variant import Variant
from tuned_db.choosing.option import guesses

GPU = Limits("gpu", 48_000, 1024, (1024, 1024, 64), 1 << 34, 1 << 36, 132, 1)
CPU = Limits("cpu", 32_000, 4096, (4096,) * 3, 1 << 31, 1 << 34, 16, 16)
PRODUCT = GemmProblem(64, 80, 96, trans_b=True)
PROBLEMS = [PRODUCT, ConvProblem(2, 8, 10, 10, 16, 1, 1, layout="nhwc")]


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.op)
def test_a_family_is_asked_for_its_guesses_once(
    problem: Problem, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    serving = preferred(problem, limits)
    for family in serving:

        def counted(*given: Any, ask: Any = family.guesses, name: str = family.NAME) -> Any:
            asked[name] += 1
            return ask(*given)

        monkeypatch.setattr(family, "guesses", counted)
    assert list(guesses(problem, limits))
    assert asked == Counter(family.NAME for family in serving)


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_candidate_is_outlined_once(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = list(guesses(PRODUCT, limits))
    asked: Counter[Variant] = Counter()
    outline = Variant.outline

    def counted(variant: Variant, problem: Problem) -> Any:
        asked[variant] += 1
        return outline(variant, problem)

    monkeypatch.setattr(Variant, "outline", counted)
    assert predict(PRODUCT, candidates, limits) is not None
    assert asked == Counter(candidates)


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_said_what_it_needs_is_predicted_without_a_plan(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlined.cache_clear()
    found = [one for one in guesses(PRODUCT, limits) if one.config.outline(PRODUCT)]
    assert found
    made = outlined.cache_info().misses
    monkeypatch.setattr(Variant, "plan", None)
    assert inf not in (predict(PRODUCT, found, limits) or [inf])
    assert outlined.cache_info().misses == made
