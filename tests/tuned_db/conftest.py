"""Databases of either kind for the tests that ask for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuned_db import Store, open_store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return open_store(tmp_path / "tuned.sqlite")
    return open_store(request.getfixturevalue("postgres"))
