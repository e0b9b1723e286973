"""What a user sees: one line as long as programs are built, and a table in a notebook."""

from __future__ import annotations

import io
import sys

import pytest

pytest.importorskip("torch")

from ocl_backend.dispatch.explanation import ExplainRow, Explanation
from ocl_backend.runtime import pending


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    __module__ = "ipykernel.iostream"


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


@pytest.mark.parametrize("seen", [Terminal, Notebook])
def test_short_waits_one_after_the_other_are_shown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, seen: type[io.StringIO]
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := seen())
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


def test_an_explanation_is_a_table_in_a_notebook() -> None:
    row = ExplainRow(2, "mm<int>", "gemm:1x2x3", "exact", 0.25, None, "gemm_register", "{}")
    html = Explanation(None, (row,))._repr_html_()
    assert html.startswith("<table><tr><th>calls</th><th>operator</th>")
    assert "<tr><td>2</td><td>mm&lt;int&gt;</td><td>gemm:1x2x3</td>" in html
    assert html.count("<tr>") == 2 and "<td>0.25</td><td>-</td>" in html
