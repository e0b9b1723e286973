"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_records_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unvectorised: None
) -> None:
    """Let ours choose from shipped records alone, in the processes that a test starts as well."""
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "empty.sqlite"))
