"""Databases of either kind for the tests that ask for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuned_db import Record, Store, open_store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return open_store(tmp_path / "tuned.sqlite")
    return open_store(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Replace the records that come with the package by a list that a test may fill."""
    records: list[Record] = []
    monkeypatch.setattr("tuned_db.choosing.chooser.shipped_records", lambda: tuple(records))
    return records


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that expects the same time of everything: records come first, nearest ones first."""
    monkeypatch.setattr(
        "tuned_db.choosing.chooser.predict", lambda _, variants, __: [1.0] * len(variants)
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Store:
    """The database that a service serves."""
    return open_store(tmp_path / "served.sqlite")
