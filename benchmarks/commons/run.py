"""Tries all cases and prints a table: what would be harm, and what was seen.

python -m benchmarks commons [NUMBER...]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import benchmarks.commons.records  # noqa: F401
import benchmarks.commons.service  # noqa: F401
from benchmarks.commons.lab import CASES, Lab


def main(numbers: Sequence[str]) -> int:
    """Print the table of all cases, or of those with these numbers; return how many did harm."""
    harmful = 0
    for number, harm, tried in CASES:
        if numbers and number not in numbers:
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                seen = tried(Lab(Path(folder)))
            except Exception as error:  # a case that ends so has found something
                seen = f"{type(error).__name__}: {error}"
        harmful += bool(seen)
        spent = time.monotonic() - begin
        print(f"{number:>10} | {harm:<70} | {'HARM: ' + seen if seen else 'no'} ({spent:.1f} s)")
    print(f"{harmful} of them did harm")
    return harmful
