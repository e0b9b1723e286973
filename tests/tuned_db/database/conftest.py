"""Databases of these tests are made by the migrations, which are what they test."""

from __future__ import annotations

import pytest

from tuned_db.database import schema


@pytest.fixture(autouse=True)
def _migrates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuned_db.database.opening.migrate", schema.migrate)
