"""A user in a terminal sees in one line how many programs are built while a step waits."""

from __future__ import annotations

import io
import sys

import pytest

pytest.importorskip("torch")

from ocl_backend.runtime import pending


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pending, "time", made)
    return made


def wait(progress: pending._Progress, clock: Clock, done: int) -> str:
    """Wait 0.6 seconds for one of five programs; return the line that its end clears."""
    with progress:
        clock.now += 0.6
        progress.tell(done, 5)
        return progress._shown


def test_short_waits_one_after_the_other_are_shown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    progress = pending._Progress()
    assert [wait(progress, clock, done) for done in (1, 2)] == ["", "building kernels: 2 of 5"]
    assert terminal.getvalue().endswith("2 of 5\r                        \r")
    clock.now += 10.0
    assert wait(progress, clock, 3) == ""  # another step


def test_nothing_is_shown_in_a_file(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    progress = pending._Progress()
    assert [wait(progress, clock, done) for done in (1, 2, 3)] == [""] * 3
    assert not file.getvalue()
