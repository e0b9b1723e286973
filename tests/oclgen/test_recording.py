"""Recordings of what an application runs: what is written is read back, bad lines say why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from oclgen.problem import ConvProblem, GemmProblem
from oclgen.recording import RecordingError, dump, load

PRODUCT, CONVOLUTION = GemmProblem(8, 9, 10), ConvProblem(1, 8, 8, 8, 8, 3, 3)


def test_what_is_written_is_read_back_and_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    dump(Counter({PRODUCT: 2, CONVOLUTION: 5}), path)
    lines = path.read_text().splitlines()
    assert "conv" in lines[0]  # the most called first
    assert load(lines) == {PRODUCT: 2, CONVOLUTION: 5}
    assert load([*lines, *lines]) == {PRODUCT: 4, CONVOLUTION: 10}


def test_bare_keys_count_as_one_call() -> None:
    assert load([PRODUCT.key(), "", PRODUCT.key() + "\n"]) == {PRODUCT: 2}


@pytest.mark.parametrize(
    "line",
    [
        "gemm:nonsense",
        "{",
        "[1, 2]",
        '{"problem": 3, "calls": 1}',
        '{"calls": 1}',
        f'{{"problem": "{PRODUCT.key()}", "calls": 0}}',
        f'{{"problem": "{PRODUCT.key()}", "calls": true}}',
        f'{{"problem": "{PRODUCT.key()}", "calls": "many"}}',
    ],
)
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(RecordingError, match="line 2 of the recording"):
        load([PRODUCT.key(), line])
