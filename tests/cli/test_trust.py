"""The commands by which a maintainer decides what stays and who may send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.cli.command_runs import Run
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import open_store
from tuned_db.database.models import MeasurementRow


@pytest.fixture
def claimed(own_database: Path) -> Path:
    """A database with a measurement made here and a claim of a variant that was not measured."""
    store = open_store(own_database)
    store.merge([record(samples=(1.0,))], origin="push by bob")
    return own_database


def test_a_batch_is_listed_and_undone(run: Run, claimed: Path) -> None:
    (batch,) = json.loads(run("db", "batches", "--json").output)
    assert (batch["origin"], batch["records"]) == ("push by bob", 1)
    assert "1 measurements dropped" in run("db", "undo", str(batch["id"])).output
    assert open_store(claimed).history() == []
    assert "there is no batch 9" in run("db", "undo", "9").stderr


def test_an_origin_is_put_in_quarantine_and_let_out(run: Run, claimed: Path) -> None:
    store = open_store(claimed)
    assert "1 of its claims lost" in run("db", "quarantine", "push by bob", "--reason", "x").output
    assert store.all_winners() == []
    later = record(config=variant(item_m=2).to_json(), samples=(0.5,))
    assert store.merge([later], origin="push by bob").improved == 0
    assert "push by bob" in run("db", "quarantine").output
    run("db", "quarantine", "push by bob", "--release")
    assert [one.ms for one in store.all_winners()] == [0.5]
    run("db", "quarantine", "push by bob")
    store.merge([record(config=variant(item_m=4).to_json(), samples=(0.7,))], origin="push by eve")
    assert [one.ms for one in store.all_winners()] == [0.7]
    run("db", "quarantine", "push by bob", "--release")
    assert [one.ms for one in store.all_winners()] == [0.5]  # a slower claim had taken its place
    assert "not in quarantine" in run("db", "quarantine", "nobody", "--release").stderr


def test_tokens_have_roles(run: Run, claimed: Path) -> None:
    run("db", "token", "add", "job", "--role", "maintainer", "--days", "30", "--daily", "100")
    (token,) = json.loads(run("db", "token", "list", "--json").output)
    assert (token["role"], token["daily"], token["used"]) == ("maintainer", 100, None)
    assert token["expires"] > token["created"]


def test_a_backup_is_a_database(run: Run, claimed: Path, tmp_path: Path) -> None:
    open_store(claimed).of(INFO).record(SQUARE, variant(), timed(1.5))
    copy = tmp_path / "copy.sqlite"
    assert run("db", "backup", str(copy)).exit_code == 0
    assert open_store(copy).history() == open_store(claimed).history()
    assert "is there already" in run("db", "backup", str(copy)).stderr


def test_thinning_counts_first_and_drops_when_told(run: Run, own_database: Path) -> None:
    mine = open_store(own_database).of(INFO)
    for ms in (2.0, 1.0, 3.0, 4.0):
        mine.record(SQUARE, variant(), timed(ms))
    with open_store(own_database).database.writing() as connection:
        connection.execute(update(MeasurementRow).values(created="2020-01-01T00:00:00Z"))
    assert "2 measurements would go" in run("db", "thin", "--days", "30").output
    assert "2 measurements dropped" in run("db", "thin", "--days", "30", "--apply").output
    assert [one.ms for one in open_store(own_database).history()] == [1.0, 4.0]


def test_a_proxy_is_an_address_or_a_network(run: Run, own_database: Path) -> None:
    refused = run("db", "serve", "--proxy", "*")
    assert (refused.exit_code, "an address or a network is needed" in refused.stderr) == (2, True)
