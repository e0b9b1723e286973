"""What was measured counts as a trial as long as its kernels are those generated today."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import sqlalchemy as sa

from oclgen.measurement import Measurement
from oclgen.variant import Variant
from tests.tuned_db.tuned_samples import INFO, SQUARE, timed, variant
from tuned_db import Store, open_store
from tuned_db.models import MeasurementRow
from tuned_db.upkeep import Prune, prune

FAILED = Measurement(invalidity="compile", reason="no")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "tuned.sqlite")
    device = store.of(INFO)
    device.record(SQUARE, variant(item_m=1), timed(1.0))
    device.record(SQUARE, variant(item_m=2), timed(2.0))
    device.record(SQUARE, variant(item_m=3), FAILED)
    return store


def change_kernels(store: Store, *changed: Variant) -> None:
    """Let what was measured of `changed` have been measured on other kernels."""
    texts = [one.to_json() for one in changed]
    statement = sa.update(MeasurementRow).where(MeasurementRow.config.in_(texts))
    with store.database.writing() as connection:
        connection.execute(statement.values(digest="0" * 16))


def test_a_variant_whose_kernels_changed_is_tried_again(store: Store) -> None:
    device = store.of(INFO)
    assert device.trials(SQUARE) == 3
    change_kernels(store, variant(item_m=1), variant(item_m=3))
    assert device.measured(SQUARE) == {variant(item_m=2): 2.0}
    assert device.trials(SQUARE) == 1
    device.record(SQUARE, variant(item_m=3), FAILED)
    assert device.measured(SQUARE) == {variant(item_m=2): 2.0, variant(item_m=3): inf}
    assert device.trials(SQUARE) == 2
    device.record(SQUARE, variant(item_m=1), timed(3.0))
    assert device.measured(SQUARE)[variant(item_m=1)] == 3.0
    assert device.trials(SQUARE) == 3


def test_what_was_pruned_counts_while_the_kernels_of_the_rest_are_those_of_today(
    store: Store,
) -> None:
    prune(store, Prune(history=True))
    assert store.of(INFO).trials(SQUARE) == 3
    change_kernels(store, variant(item_m=1))
    assert store.of(INFO).trials(SQUARE) == 0


def test_a_failure_from_before_failures_had_digests_counts(store: Store) -> None:
    failure = sa.update(MeasurementRow).where(MeasurementRow.ms.is_(None))
    with store.database.writing() as connection:
        connection.execute(failure.values(digest=None))
    assert store.of(INFO).measured(SQUARE)[variant(item_m=3)] == inf
    assert store.of(INFO).trials(SQUARE) == 3
