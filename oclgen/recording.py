"""Which problems an application runs, and how often: JSON lines that a tuning reads.

It knows neither how problems are noticed (`ocl_backend.tunable`) nor how they are tuned.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oclgen.keys import parse_key
from oclgen.problem import Problem, ProblemError


class RecordingError(ValueError):
    """A line is not what `dump` writes; the message says which and what it should be."""


def dump(calls: Counter[Problem], path: Path) -> None:
    """Write one line per problem, the most called first."""
    ranked = sorted(calls.items(), key=lambda one: (-one[1], one[0].key()))
    rows = (json.dumps({"problem": problem.key(), "calls": count}) for problem, count in ranked)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def load(lines: Iterable[str]) -> Counter[Problem]:
    """Read what `dump` wrote; a line that is a bare problem key counts as one call.

    Several recordings may follow each other: calls of the same problem add up.

    Raises:
        RecordingError: a line is neither.
    """
    calls: Counter[Problem] = Counter()
    for number, line in enumerate(lines, 1):
        if line.strip():
            problem, count = _row(line.strip(), number)
            calls[problem] += count
    return calls


def _row(text: str, number: int) -> tuple[Problem, int]:
    try:
        row: Any = json.loads(text) if text.startswith("{") else {"problem": text, "calls": 1}
        problem, count = parse_key(row["problem"]), row["calls"]
    except (json.JSONDecodeError, KeyError, TypeError, ProblemError) as error:
        raise RecordingError(_expected(number, str(error))) from error
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise RecordingError(_expected(number, f"calls is {count!r}, not a positive integer"))
    return problem, count


def _expected(number: int, reason: str) -> str:
    return (
        f'line {number} of the recording: {reason}. A line is {{"problem": KEY, "calls": N}} as '
        "torch.ocl.tunable writes it, or a bare key as torch.ocl.explain prints it."
    )
