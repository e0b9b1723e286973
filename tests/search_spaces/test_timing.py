"""What is left of a tuning's time, by clocks that only the tests move."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from search_spaces import timing
from search_spaces.timing import ENDING_S, RECENT, Durations, last_moment, process_began


def test_the_last_trials_tell_how_long_the_next_one_takes() -> None:
    took = Durations()
    assert took.expected == 0
    took.note(100)  # it started processes
    assert took.expected == 0
    took.note(2)
    took.note(4)
    assert took.expected == 3
    for _ in range(RECENT):
        took.note(9)
    assert took.expected == 9


@pytest.mark.parametrize(
    ("elapsed", "spent", "kept"),
    [
        (2, 2, ENDING_S),
        (2, 4, ENDING_S),  # threads of several cores
        (8, 2, 4 * ENDING_S),  # three of four parts of the time the cores had other work
        (99, 1, 0.5),  # half of what is left
        (120, 1, 0),
    ],
)
def test_the_end_of_a_command_takes_as_long_as_its_beginning_tells(
    elapsed: float, spent: float, kept: float
) -> None:
    ends = last_moment(1000, 100, lambda: 1000 + elapsed, lambda: spent)
    assert ends == pytest.approx(1100 - kept)


def test_a_process_knows_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(timing, "STAT", stat)
    clocks = {"monotonic": lambda: 500.0, "clock_gettime": lambda _: 50.0, "CLOCK_BOOTTIME": 7}
    monkeypatch.setattr(timing, "time", SimpleNamespace(**clocks))
    assert process_began() == 500
    ticks = 30 * os.sysconf("SC_CLK_TCK")
    stat.write_text(f"7 (a (name) here) S {' '.join('0' * 18)} {ticks} 0 0\n")
    assert process_began() == 480
    stat.write_text("7")
    assert process_began() == 500
