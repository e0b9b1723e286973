"""The table that a tuning ends with."""

from __future__ import annotations

from oclgen.problem import GemmProblem
from oclgen_cli.results import table_of
from search_spaces.progress import Best, TuneResult
from tests.tuned_db.tuned_samples import variant


def test_a_rate_is_held_against_the_peak_of_its_dtype() -> None:
    results = [
        TuneResult(GemmProblem(500, 1000, 1000, dtype), "tuned", Best(variant(), 1.0))
        for dtype in ("fp32", "bf16", "fp16")
    ]
    table = table_of(results, {"fp32": 2000.0, "bf16": 20000.0})  # GFLOP/s
    assert list(table.columns[3].cells) == ["50%", "5%", ""]
