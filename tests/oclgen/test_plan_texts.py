"""The texts of generated kernels change on purpose only, and a digest names a text everywhere."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from oclgen.families.gemm import gemm_staged
from oclgen.plan import Launch, Plan, Scalar, buffer
from oclgen.problem import GemmProblem
from oclgen.variant import Variant
from tests.oclgen import plan_texts

PLAN = Plan((Launch("text", "name", (8,), (4,), (*buffer("x"), Scalar(3))),), (("w", 16),), 2)


def test_texts_are_those_that_are_known() -> None:
    found, known = plan_texts.digests(), plan_texts.load(plan_texts.KNOWN)
    lines = plan_texts.differences(found, known)
    to_do = [
        "run `python -m tests.oclgen.plan_texts --write tests/oclgen/plan_texts.json`",
        *plan_texts.to_note(found, known),
    ]
    assert not lines, f"{len(lines)} texts changed: {lines[:20]}; if on purpose {'; '.join(to_do)}"


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


def test_a_changed_text_is_to_be_noted_where_records_without_digest_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {("p", "toy", "1"): "a", ("p", "gone", "1"): "b", ("p", "same", "1"): "c"}
    plan_texts.write(known, path := tmp_path / "digests.json")
    changed = {("p", "toy", "1"): "x", ("p", "new", "1"): "d", ("p", "same", "1"): "c"}
    monkeypatch.setattr(plan_texts, "digests", lambda: changed)
    note = "add to CHANGED in tuned_db/records/digests.py: toy"
    assert plan_texts.main(["--against", str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["3 plans, 3 changed", note]
    monkeypatch.setattr(plan_texts, "CHANGED", frozenset({"toy"}))
    assert plan_texts.main(["--against", str(path)]) == 1
    assert note not in capsys.readouterr().out


def test_a_record_is_stamped_anew_only_where_it_was_exact(tmp_path: Path) -> None:
    problem = GemmProblem(64, 64, 64)
    variant = Variant(gemm_staged.NAME, gemm_staged.DEFAULT)
    plan, digests = variant.plan(problem), ["1" * 16, "2" * 16]
    config = hashlib.sha256(variant.to_json().encode()).hexdigest()[:8]
    known = {(problem.key(), variant.family, config): digests[0]}
    values = {"problem": problem.key(), "family": variant.family, "config": variant.values()}
    path = tmp_path / "device.jsonl"
    lines = (json.dumps(values | {"digest": one}, separators=(",", ":")) for one in digests)
    path.write_text("\n".join(lines) + "\n")
    (said,) = plan_texts.restamp(known, tmp_path)
    assert said.endswith(f"{digests[0]} -> {plan.digest()}")
    stamped = [json.loads(line)["digest"] for line in path.read_text().splitlines()]
    assert stamped == [plan.digest(), digests[1]]
