"""What an older database holds is all there after the upgrade, and in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tests.tuned_db.tuned_samples import FAMILY, INFO, SQUARE, variant
from tuned_db import Store, open_store
from tuned_db.database.schema import VERSION_TABLE
from tuned_db.records import digests
from tuned_db.records.digests import digest_of


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'old.sqlite'}"
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def old(url: str) -> Iterator[sa.Connection]:
    """A connection to a database of schema 0003 that knows one device; kept when it ends."""
    from tuned_db.database.opening import with_driver

    engine = sa.create_engine(with_driver(sa.make_url(url)))
    with engine.begin() as connection:
        alembic = Config()
        folder = resources.files("tuned_db.database").joinpath("migrations")
        alembic.set_main_option("script_location", str(folder))
        alembic.attributes.update(connection=connection, version_table=VERSION_TABLE)
        command.upgrade(alembic, "0003")
        insert(connection, "oclgen_devices", id=1, **asdict(INFO))
        yield connection
    engine.dispose()


FIRST = 1000
"""Above the keys that a server gives to what is inserted after the upgrade."""


def insert(connection: sa.Connection, table: str, **values: Any) -> None:
    target = sa.table(table, *map(sa.column, values))
    connection.execute(sa.insert(target).values(**values))


def add_tuning(connection: sa.Connection, key: int, winner: int, **changes: Any) -> None:
    values = {"generator": "3", "problem": SQUARE.key(), "trials": 9} | changes
    insert(
        connection,
        "oclgen_tunings",
        id=FIRST + key,
        device_id=1,
        winner_id=FIRST + winner,
        **values,
    )


def add(connection: sa.Connection, key: int, item_m: int, ms: float, **changes: Any) -> None:
    values = {
        "tuning_id": FIRST + 1, "family": FAMILY, "config": variant(item_m=item_m).to_json(),
        "samples": json.dumps([ms]), "ms": ms, "spread": 0.0, "error": 0.0, "invalidity": "none",
        "reason": "", "created": "2026-01-01T00:00:00Z", "version": "0.1.0", "origin": "",
        "seed": 5, "cache": "warm",
    } | changes  # fmt: skip
    insert(connection, "oclgen_measurements", id=FIRST + key, **values)


def opened(old: sa.Connection, url: str) -> Store:
    old.commit()
    return open_store(url)


def won(store: Store) -> dict[str, tuple[float, int]]:
    return {one.cache: (one.ms, one.trials) for one in store.all_winners()}


def test_cold_times_get_tunings_of_their_own(old: sa.Connection, url: str) -> None:
    add_tuning(old, 1, winner=5)
    add(old, 1, item_m=1, ms=2.0, cache="cold")
    add(old, 2, item_m=2, ms=4.0, cache="cold")
    add(old, 3, item_m=3, ms=3.0)
    add(old, 4, item_m=4, ms=1.0, seed=None)  # of before seeds were kept
    add(old, 5, item_m=1, ms=2.1, seed=None)  # what a duel kept of a cold variant
    store = opened(old, url)
    assert won(store) == {"warm": (1.0, 2), "cold": (2.1, 2)}
    assert len(store.history()) == 5
    assert sorted(store.of(INFO, "cold").measured(SQUARE).values()) == [2.0, 4.0]


def test_a_tuning_of_cold_times_alone_leaves_no_empty_one(old: sa.Connection, url: str) -> None:
    add_tuning(old, 1, winner=1)
    add(old, 1, item_m=1, ms=2.0, cache="cold")
    store = opened(old, url)
    assert won(store) == {"cold": (2.0, 1)}
    with store.database.reading() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM oclgen_tunings")).scalar() == 1


def test_claims_are_counted_apart_and_give_way(old: sa.Connection, url: str) -> None:
    add_tuning(old, 1, winner=3, trials=2**31 - 1)
    add(old, 1, item_m=1, ms=2.0)
    add(old, 2, item_m=1, ms=2.5)
    add(old, 3, item_m=2, ms=0.1, origin="import")
    store = opened(old, url)
    assert store.of(INFO).trials(SQUARE) == 1
    assert [(one.ms, one.verified) for one in store.all_winners()] == [(2.0, True)]


def test_winners_of_todays_texts_get_their_digest(old: sa.Connection, url: str) -> None:
    add_tuning(old, 1, winner=1)
    add(old, 1, item_m=1, ms=2.0)
    add_tuning(old, 2, winner=2, generator="2")
    add(old, 2, item_m=1, ms=1.0, tuning_id=FIRST + 2)
    found = {one.generator: one.digest for one in opened(old, url).all_winners()}
    assert found == {"3": digest_of(SQUARE, variant(item_m=1)), "2": None}
    assert found["3"] is not None


def test_winners_of_a_family_whose_texts_changed_get_no_digest(
    old: sa.Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Today's would say that they were measured with today's kernels, which they may not be."""
    monkeypatch.setattr(digests, "CHANGED", frozenset({FAMILY}))
    add_tuning(old, 1, winner=1)
    add(old, 1, item_m=1, ms=2.0)
    store = opened(old, url)
    assert [one.digest for one in store.all_winners()] == [None]
    assert store.of(INFO).trials(SQUARE) == 0


def test_the_winner_of_a_duel_stands(old: sa.Connection, url: str) -> None:
    add_tuning(old, 1, winner=2)
    add(old, 1, item_m=1, ms=1.0)
    add(old, 2, item_m=2, ms=1.1)
    store = opened(old, url)
    store.of(INFO).record(SQUARE, variant(item_m=3), _failure())
    assert won(store) == {"warm": (1.1, 10)}
    with store.database.reading() as connection:
        asked = sa.text("SELECT id FROM oclgen_measurements WHERE promoted")
        assert connection.execute(asked).scalars().all() == [FIRST + 2]


@pytest.mark.parametrize(("origin", "kept"), [("", (1000.0, 100.0)), ("import", None)])
def test_a_peak_that_may_have_come_with_a_claim_becomes_one(
    old: sa.Connection, url: str, origin: str, kept: tuple[float, float] | None
) -> None:
    old.execute(sa.text("UPDATE oclgen_devices SET peak_gflops = 1000, peak_gbytes = 100"))
    add_tuning(old, 1, winner=1)
    add(old, 1, item_m=1, ms=2.0, origin=origin)
    store = opened(old, url)
    assert store.of(INFO).peak() == kept
    assert [one.peak for one in store.all_winners()] == [(1000.0, 100.0)]


def _failure() -> Any:
    from oclgen.measurement import Measurement

    return Measurement(invalidity="compile", reason="no")
