"""The steps of a self-test: what each finds on the devices here, and what it keeps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from oclgen import sample
from oclgen.families import FAMILIES
from oclgen.families.gemm import gemm_register
from oclgen.limits import Limits
from oclgen.opencl.device import Device
from oclgen.problem import GemmProblem
from oclgen.sample import Case, cases
from oclgen.variant import Variant
from search_spaces import selftest
from tuned_db import open_store
from tuned_db.files.measured import of_store

pytestmark = pytest.mark.usefixtures("unvectorised")

SQUARE = GemmProblem(24, 16, 8)


class Heard:
    """Takes the place of a step's end of the pipe: it keeps what is said."""

    def __init__(self, device: Device, where: Path, seconds: float = 120.0) -> None:
        self.question = {"index": device.index, "store": str(where)}
        self.ends = time.monotonic() + seconds
        self.begun: list[str] = []
        self.findings: list[tuple[str, str, str]] = []
        self.facts: dict[str, Any] = {}

    def begins(self, what: str) -> bool:
        self.begun.append(what)
        return True

    def find(self, *finding: str) -> None:
        self.findings.append(finding)  # type: ignore[arg-type]

    def tell(self, name: str, value: Any) -> None:
        self.facts[name] = value


def test_every_family_has_a_case_and_all_first_cases_come_first() -> None:
    found = cases(Limits())
    count = len(FAMILIES)
    assert {one.family for one in found[:count]} == set(FAMILIES)
    assert len(found) > count
    for one in found:
        assert (one.variant is None) == bool(one.reason), one
        assert one.variant is None or one.variant.why_not(one.problem, Limits()) is None


def test_a_device_says_who_it_is(device: Device, tmp_path: Path) -> None:
    heard: Any = Heard(device, tmp_path / "check.sqlite")
    selftest._device(heard)
    assert heard.facts["limits"] == device.limits.to_json()
    assert heard.facts["device"]["name"] == device.name
    assert [one[:2] for one in heard.findings] == [("device", "ok"), ("instructions", "ok")]


def test_a_family_that_is_wrong_is_a_line_and_a_failure_that_is_kept(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Variant(gemm_register.NAME, gemm_register.DEFAULT)
    bad = Variant("no_such_family", gemm_register.DEFAULT)
    asked = [
        Case("gemm_mma", SQUARE, None, "no such unit"),
        Case(bad.family, SQUARE, bad),
        Case(good.family, SQUARE, good),
    ]
    monkeypatch.setattr(sample, "cases", lambda _: asked)
    heard: Any = Heard(device, tmp_path / "check.sqlite")
    selftest._families(heard)
    assert [one[1] for one in heard.findings] == ["skipped", "fail", "ok"], heard.findings
    assert "no_such_family" in heard.findings[1][2]
    (kept,) = of_store(open_store(tmp_path / "check.sqlite"))
    assert [row["invalidity"] for row in kept.rows] == ["none", "runtime"]
    assert kept.limits is not None
    assert Limits.from_json(kept.limits) == device.limits


def test_what_is_tuned_is_kept(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "TRIALS", 2)
    monkeypatch.setattr("search_spaces.workloads.default_problems", lambda _: [SQUARE])
    heard: Any = Heard(device, tmp_path / "check.sqlite")
    selftest._tuning(heard)
    assert [one[:2] for one in heard.findings] == [(SQUARE.key(), "ok")]
    (winner,) = open_store(tmp_path / "check.sqlite").all_winners()
    assert winner.problem == SQUARE.key()


def test_without_a_device_the_other_steps_are_not_taken(tmp_path: Path) -> None:
    found = list(selftest.steps(99, str(tmp_path / "check.sqlite"), 60.0, lambda *_: None))
    assert {one.step for one in found} == {"device"}
    assert found[-1].verdict == "fail"
