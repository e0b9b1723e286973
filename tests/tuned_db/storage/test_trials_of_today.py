"""What was measured counts as a trial as long as its kernels are those generated today."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import sqlalchemy as sa

from oclgen import GENERATOR_VERSION
from oclgen.measurement import Measurement
from oclgen.variant import Variant
from tests.tuned_db.tuned_samples import FAMILY, INFO, LIMITS, SQUARE, timed, variant
from tuned_db import Chooser, Store, open_store
from tuned_db.database.models import MeasurementRow
from tuned_db.records import digests
from tuned_db.storage.upkeep import Prune, prune

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


def test_a_failure_from_before_failures_had_digests_counts_while_its_family_is_unchanged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = sa.update(MeasurementRow).where(MeasurementRow.ms.is_(None))
    with store.database.writing() as connection:
        connection.execute(failure.values(digest=None))
    assert store.of(INFO).measured(SQUARE)[variant(item_m=3)] == inf
    assert store.of(INFO).trials(SQUARE) == 3
    monkeypatch.setattr(digests, "CHANGED", frozenset({FAMILY}))
    assert variant(item_m=3) not in store.of(INFO).measured(SQUARE)
    assert store.of(INFO).trials(SQUARE) == 2


def test_a_winner_of_other_kernels_is_no_rival(store: Store) -> None:
    """Its time is not reached by what is generated today, and hid the best of it."""
    device = store.of(INFO)
    assert device.incumbent(SQUARE) == (variant(item_m=1), 1.0)
    change_kernels(store, variant(item_m=1))
    assert device.incumbent(SQUARE) is None
    assert not device.record(SQUARE, variant(item_m=4), timed(3.0))  # 2 ms was measured before
    assert device.incumbent(SQUARE) == (variant(item_m=2), 2.0)
    assert device.record(SQUARE, variant(item_m=1), timed(1.5))
    assert [one.ms for one in store.all_winners()] == [1.5]
    assert Chooser(store, INFO, LIMITS).choose(SQUARE).source == "exact"


def test_a_measurement_made_side_by_side_with_other_kernels_is_no_rival(store: Store) -> None:
    device = store.of(INFO)
    device.promote(SQUARE, variant(item_m=2), timed(1.9))
    change_kernels(store, variant(item_m=1), variant(item_m=2))
    assert device.record(SQUARE, variant(item_m=4), timed(3.0))
    assert device.incumbent(SQUARE) == (variant(item_m=4), 3.0)


def test_trials_of_another_number_with_the_same_kernels_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number says which version wrote them."""
    device = store.of(INFO)
    monkeypatch.setattr("tuned_db.storage.store.GENERATOR_VERSION", "77")
    assert device.trials(SQUARE) == 3
    assert device.measured(SQUARE)[variant(item_m=1)] == 1.0
    assert device.incumbent(SQUARE) == (variant(item_m=1), 1.0)
    device.record(SQUARE, variant(item_m=4), timed(0.5))
    device.record(SQUARE, variant(item_m=1), timed(1.1))
    assert device.trials(SQUARE) == 4
    assert device.incumbent(SQUARE) == (variant(item_m=4), 0.5)
    assert {one.generator for one in store.all_winners()} == {"77", GENERATOR_VERSION}
