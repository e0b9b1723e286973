"""The texts of generated kernels change on purpose only, and a digest names a text everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oclgen.plan import Launch, Plan, Scalar, buffer
from tests.oclgen import plan_texts

PLAN = Plan((Launch("text", "name", (8,), (4,), (*buffer("x"), Scalar(3))),), (("w", 16),), 2)


def test_texts_are_those_that_are_known() -> None:
    lines = plan_texts.differences(plan_texts.digests(), plan_texts.load(plan_texts.KNOWN))
    assert not lines, (
        f"{len(lines)} texts changed: {lines[:20]}; if on purpose run "
        "`python -m tests.oclgen.plan_texts --write tests/oclgen/plan_texts.json`"
    )


def test_a_digest_is_the_same_in_every_process() -> None:
    assert PLAN.digest() == "79663b33669f0b14"


@pytest.mark.parametrize(
    "changed",
    [
        replace(PLAN, counters=3),
        replace(PLAN, workspaces=(("w", 17),)),
        replace(PLAN, launches=(replace(PLAN.launches[0], global_size=(16,)),)),
        replace(PLAN, launches=(replace(PLAN.launches[0], local_size=(2,)),)),
        replace(PLAN, launches=(replace(PLAN.launches[0], local_bytes=4),)),
        replace(PLAN, launches=(replace(PLAN.launches[0], kernel="other"),)),
        replace(PLAN, launches=(replace(PLAN.launches[0], args=buffer("x")),)),
        replace(PLAN, launches=PLAN.launches * 2),
    ],
)
def test_a_digest_covers_what_a_device_is_given(changed: Plan) -> None:
    assert changed.digest() != PLAN.digest()


def test_what_differs_is_new_or_gone_is_listed(tmp_path: Path) -> None:
    known = {("p", "f", "1"): "a", ("p", "f", "2"): "b", ("p", "g", "3"): "c"}
    plan_texts.write(known, path := tmp_path / "digests.json")
    assert plan_texts.load(path) == known
    found = {("p", "f", "1"): "a", ("p", "f", "2"): "x", ("q", "f", "4"): "d"}
    assert plan_texts.differences(found, plan_texts.load(path)) == [
        "differs: p f 2", "new: q f 4", "gone: p g 3",
    ]  # fmt: skip
