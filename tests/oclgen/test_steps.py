"""Steps of a self-test: a process that dies or hangs costs the item that it had begun."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from oclgen.measuring.steps import THE_STEP, Finding, Talk, run, serve

STEP = "a step"


def work(talk: Talk) -> None:
    """Do as the question says, item by item."""
    for item in talk.question["items"]:
        if not talk.begins(item):
            continue
        if item == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if item == "hang":
            time.sleep(600)
        if item == "raise":
            raise ValueError("as asked")
        talk.tell("fact", [item])
        talk.find(item, "ok", "well")


def found(
    monkeypatch: pytest.MonkeyPatch, items: list[str], seconds: float = 60.0, patience: float = 30.0
) -> tuple[list[Finding], list[str]]:
    """What a step with these items finds and tells."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    told: list[str] = []
    findings = run(
        STEP, "tests.oclgen.test_steps", {"items": items}, seconds, patience, 60.0,
        lambda _, value: told.extend(value),
    )  # fmt: skip
    return list(findings), told


def test_a_crash_is_a_finding_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    findings, told = found(monkeypatch, ["first", "crash", "last"])
    assert findings == [
        (STEP, "first", "ok", "well"),
        (STEP, "crash", "fail", "it ended the process (SIGSEGV)"),
        (STEP, "last", "ok", "well"),
    ]
    assert told == ["first", "last"]


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    findings, _ = found(monkeypatch, ["hang", "last"], patience=1.0)
    assert findings == [
        (STEP, "hang", "fail", "it did not answer within 1 s"),
        (STEP, "last", "ok", "well"),
    ]


def test_the_end_of_the_time_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    findings, _ = found(monkeypatch, ["hang"], seconds=2.0)
    assert [(one.what, one.verdict) for one in findings] in (
        [("hang", "skipped")],
        [(THE_STEP, "skipped")],  # on a machine that takes as long to start Python
    )


def test_what_an_item_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    findings, told = found(monkeypatch, ["first", "raise", "last"])
    assert findings[1] == (STEP, "raise", "fail", "ValueError: as asked")
    assert told == ["first", "last"]


if __name__ == "__main__":
    serve(work)
