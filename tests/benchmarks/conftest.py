"""Lets the tests, and the processes that they start, import the benchmarks as scripts do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
