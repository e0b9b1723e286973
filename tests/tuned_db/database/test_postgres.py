"""What only a server of databases can do wrong; the store's tests run on it as well."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import DatabaseError, Record, open_store
from tuned_db.database import opening, schema
from tuned_db.database.opening import KEPT_OPEN
from tuned_db.storage.arrivals import raise_peaks
from tuned_db.storage.upkeep import absorb


def test_a_server_of_a_newer_version_is_refused(postgres: str) -> None:
    open_store(postgres)
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE oclgen_schema SET version_num = '9999'")
    with pytest.raises(DatabaseError, match="has schema 9999, newer than"):
        open_store(postgres)


def test_an_older_server_is_upgraded_and_keeps_its_rows(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = schema.MIGRATIONS.joinpath("versions", "0001_devices_tunings_measurements.py")
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(schema.MIGRATIONS.joinpath("env.py").read_text())
    (folder / "versions" / first.name).write_text(first.read_text())
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", folder)
        open_store(postgres)
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "INSERT INTO oclgen_devices VALUES (1, 'n', 'v', 'gpu', 'a', 'r', '3', '1', 8);"
            "INSERT INTO oclgen_tunings VALUES (1, 1, '1', 'gemm:8x8x8:fp32:nn:b1:-:-:none', 3, 1);"
            "INSERT INTO oclgen_measurements VALUES "
            "(1, 1, 'gemm_register', '{}', '[1.0]', 1.0, 0, 0, 'none', '', "
            "'2026-01-02T03:04:05Z', '0')"
        )
    assert [(one.ms, one.verified) for one in open_store(postgres).all_winners()] == [(1.0, True)]


def test_the_migrations_make_the_tables_of_the_models(postgres: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from tuned_db.database.models import Base

    with open_store(postgres).database.reading() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_writers_that_meet_in_any_order_lose_nothing(postgres: str) -> None:
    """Each merges the same tunings in an order of its own: none may wait for another for ever."""
    store = open_store(postgres)

    def work(number: int) -> None:
        records = [
            record(GemmProblem(size, 8, 8), samples=(10.0 - number,), trials=number,
                   device=replace(INFO, name=f"GPU {size % 3}"))
            for size in range(1, 13)
        ]  # fmt: skip
        Random(number).shuffle(records)
        store.merge(records, origin=f"push by {number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert [one.ms for one in store.all_winners()] == [3.0] * 12
    assert len(store.history()) == 8 * 12
    assert {one.trials for one in store.all_winners()} == {7}


STARTER = """
import sys
from tuned_db import open_store
print(len(open_store(sys.argv[1]).all_winners()))
"""


def test_many_who_make_the_tables_at_once(postgres: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, postgres],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    assert [one.communicate(timeout=60) for one in started] == [("0\n", "")] * 3


def test_a_connection_that_is_cut_is_made_again(postgres: str) -> None:
    store = open_store(postgres)
    store.of(INFO).record(SQUARE, variant(), timed(1.0))
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert [one.ms for one in store.all_winners()] == [1.0]


def test_only_a_connection_that_lay_unused_is_tried_before_its_use(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres)
    dialect = store.database.engine.dialect
    tried: list[object] = []
    do_ping = dialect.do_ping

    def ping(connection: Any) -> bool:
        tried.append(connection)
        return do_ping(connection)

    monkeypatch.setattr(dialect, "do_ping", ping)
    for _ in range(2):
        assert store.all_winners() == []
    assert not tried
    monkeypatch.setattr(opening, "IDLE_S", -1.0)
    assert store.all_winners() == []
    assert len(tried) == 1


def test_many_records_are_few_parameters(postgres: str) -> None:
    """A driver takes a statement of thousands apart, and a server parses it, in 0.1 s."""
    store = open_store(postgres)
    sent: list[int] = []

    @event.listens_for(store.database.engine, "before_cursor_execute")
    def count(_: object, __: object, ___: str, given: Any, *____: object) -> None:
        rows = given if isinstance(given, list) else [given]
        sent.append(max(map(len, rows)))

    some = [record(GemmProblem(size, 8, 8), samples=(1.0 * size,)) for size in range(1, 101)]
    assert store.merge(some).improved == 100
    assert max(sent) < 30
    assert store.merge(some).improved == 0
    assert [(one.problem, one.samples) for one in sorted(store.all_winners(), key=time_of)] == [
        (one.problem, one.samples) for one in some
    ]


def time_of(one: Record) -> float:
    """Sort records by their time."""
    return one.ms


def test_a_server_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(DatabaseError) as caught:
        open_store("postgresql://user:secret@127.0.0.1:1/x")
    assert "refused" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_moves_into_a_server_whole(postgres: str, tmp_path: Path) -> None:
    file, server = open_store(tmp_path / "one.sqlite"), open_store(postgres)
    file.of(INFO).note_peak(1000.0, 100.0)
    for size in (1, 2, 3):
        file.of(INFO).record(GemmProblem(size, 8, 8), variant(), timed(1.0 / size))
    came = absorb(server, file, trusted=True)
    assert (came.new, came.improved, came.known) == (3, 3, 0)
    assert server.all_winners() == file.all_winners()
    assert {(one.verified, one.peak) for one in server.all_winners()} == {(True, (1000.0, 100.0))}
    assert absorb(server, file, trusted=True).known == 3


def test_a_record_that_raises_no_peak_leaves_the_row_of_its_device_to_others(postgres: str) -> None:
    store = open_store(postgres)
    known = record(peak=(100.0, 10.0), peaks={"bf16": 200.0})
    store.merge([known])
    with store.database.writing() as connection:
        raise_peaks(connection, [known, record(peak=(99.0, 10.0))], claimed=True)
        with psycopg.connect(postgres) as other:
            other.execute("SELECT id FROM oclgen_devices FOR UPDATE NOWAIT")
    store.merge([record(GemmProblem(8, 8, 8), peak=(101.0, 9.0), peaks={"fp16": 150.0})])
    (best,) = {(one.peak, tuple((one.peaks or {}).items())) for one in store.all_winners()}
    assert best == ((101.0, 10.0), (("bf16", 200.0), ("fp16", 150.0)))


def test_connections_are_kept_for_the_next_who_need_them(postgres: str) -> None:
    """Each costs the server a process."""
    store = open_store(postgres)
    with ExitStack() as many:
        for _ in range(KEPT_OPEN):
            many.enter_context(store.database.reading())
    pool = store.database.engine.pool
    assert isinstance(pool, QueuePool)
    assert pool.checkedin() == KEPT_OPEN


def test_after_reading_a_connection_writes_in_transactions(postgres: str) -> None:
    """A read commits each statement by itself; a write on the same connection does not."""
    store = open_store(postgres)
    assert store.all_winners() == []
    with pytest.raises(ZeroDivisionError), store.database.writing() as connection:
        raise_peaks(connection, [record(peak=(100.0, 10.0))], claimed=True)
        raise ZeroDivisionError
    store.merge([record()])
    assert [one.peak for one in store.all_winners()] == [None]
