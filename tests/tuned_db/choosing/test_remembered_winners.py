"""What a chooser read of the database is kept until a process writes, and needs no toolkit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from oclgen.problem import GemmProblem
from tests.tuned_db.opened_store import opened
from tests.tuned_db.tuned_samples import INFO, SQUARE, record
from tuned_db import DatabaseError, Store, open_store, read_records
from tuned_db.choosing import remembered_winners
from tuned_db.choosing.raced import RACED
from tuned_db.choosing.remembered_winners import RememberedWinners
from tuned_db.records.exchange import read_checked

OTHER = GemmProblem(128, 64, 64)
CHOICE = """
import sys
from tests.tuned_db.tuned_samples import INFO, LIMITS, SQUARE
from tuned_db import Chooser
from tuned_db.choosing.remembered_winners import RememberedWinners
choice = Chooser(RememberedWinners(INFO), INFO, LIMITS).choose(SQUARE)
print(choice.rung, *(name for name in sys.modules if name in ("alembic", "pydantic", "sqlalchemy")))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "tuned.sqlite"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_was_read_is_recalled_until_a_process_writes() -> None:
    with opened() as store:
        store.merge([record()], "a friend")
        store.note_check(INFO, "0123456789abcdef", "it is wrong")
        known = store.relatives(INFO)
    read = RememberedWinners(INFO)
    assert read.relatives(INFO) == known
    again = RememberedWinners(INFO)
    assert again.relatives(INFO) == read.relatives(INFO)
    assert [one.origin for one in again.relatives(INFO)] == ["a friend"]
    assert again.checks(INFO) == {"0123456789abcdef": "it is wrong"}
    assert "store" not in vars(again), "nothing was asked of the database"
    with opened() as store:
        store.merge([record(OTHER)])
    assert {one.problem for one in again.relatives(INFO)} == {record().problem, OTHER.key()}
    assert len(RememberedWinners(INFO).relatives(INFO)) == 2


def test_where_there_is_no_database_none_is_made_to_read_it(tmp_path: Path) -> None:
    read = RememberedWinners(INFO)
    assert read.relatives(INFO) == read.unsettled(INFO) == read.runners_up(INFO, SQUARE) == []
    assert read.checks(INFO) == {}
    nothing = read.mark()
    assert nothing is not None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("tuned")]
    open_store().merge([record()], "a friend")
    assert [one.origin for one in read.relatives(INFO)] == ["a friend"]
    assert read.mark() not in (nothing, None)


def test_what_the_first_process_reads_is_recalled_by_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reader folds in the log of a process that was killed, which changes the file."""
    with opened():
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"tuned.sqlite{end}", tmp_path / f"killed.sqlite{end}")
    monkeypatch.setenv("OCLGEN_DB", str(tmp_path / "killed.sqlite"))
    RememberedWinners(INFO).relatives(INFO)
    assert not (tmp_path / "killed.sqlite-wal").exists()
    second = RememberedWinners(INFO)
    assert second.mark() is not None
    second.store.database.release()
    third = RememberedWinners(INFO)
    assert third.relatives(INFO) == []
    assert "store" not in vars(third), "nothing was asked of the database"


def test_what_a_process_wrote_is_read_before_it_ends() -> None:
    writing = RememberedWinners(INFO)
    writing.relatives(INFO)
    with opened() as store:
        store.note_race(replace(record(), origin=RACED))
    assert RememberedWinners(INFO).mark() is None
    writing.keep()
    later = RememberedWinners(INFO)
    assert [one.origin for one in later.relatives(INFO)] == [RACED]
    assert "store" not in vars(later), "nothing was asked of the database"


def test_a_database_that_went_away_is_not_made_anew_at_the_end(tmp_path: Path) -> None:
    reading = RememberedWinners(INFO)
    reading.relatives(INFO)
    for path in tmp_path.glob("tuned.sqlite*"):
        path.unlink()
    reading.keep()
    assert not (tmp_path / "tuned.sqlite").exists()


def test_a_log_of_sqlite_may_go_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, log = tmp_path / "a.sqlite", tmp_path / "a.sqlite-wal"
    file.write_text("12")
    log.write_text("123")
    stat = Path.stat

    def late(path: Path, **given: bool) -> os.stat_result:
        found = stat(path, **given)
        log.unlink(missing_ok=True)  # right after it was looked at
        return found

    monkeypatch.setattr(Path, "stat", late)
    assert [size for size, _ in remembered_winners._state(file)] == [2]


def test_a_database_that_fails_once_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    open_store().merge([record()])
    read = RememberedWinners(INFO)
    assert len(read.relatives(INFO)) == 1
    open_store().merge([record(OTHER)])

    def fails(*_: object) -> None:
        raise DatabaseError("it is locked")

    with monkeypatch.context() as locked, pytest.raises(DatabaseError):
        locked.setattr(Store, "relatives", fails)
        read.relatives(INFO)
    assert len(read.relatives(INFO)) == 2


def test_another_device_is_asked_of_the_database() -> None:
    other = replace(INFO, name="Another GPU")
    open_store().merge([record(), record(OTHER, device=other)])
    recalled = RememberedWinners(INFO)
    assert recalled.relatives(other) == recalled.store.relatives(other)


def test_a_damaged_copy_is_read_anew(tmp_path: Path) -> None:
    open_store().merge([record()])
    known = RememberedWinners(INFO).relatives(INFO)
    (kept,) = (tmp_path / "cache").rglob("winners/*.json")
    for text in ("", "[3, [], 1]", "{", "[]", "7"):
        kept.write_text(text)
        assert RememberedWinners(INFO).relatives(INFO) == known


def test_a_choice_from_what_is_known_loads_no_toolkit() -> None:
    open_store().merge([record()])

    def output() -> str:
        done = subprocess.run(
            [sys.executable, "-c", CHOICE], capture_output=True, text=True, env=os.environ
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "sqlalchemy" in output()  # it reads what was never read
    assert output().split() == ["exact"]


@pytest.mark.parametrize(
    "name", [one.name for one in resources.files("tuned_db").joinpath("shipped").iterdir()]
)
def test_shipped_records_keep_the_schema_which_is_not_asked_when_they_are_read(name: str) -> None:
    path = resources.files("tuned_db").joinpath("shipped", name)
    with path.open("rb") as checked, path.open("rb") as plain:
        assert read_records(name, checked) == read_checked(plain) != []


def test_what_was_raced_is_read_when_a_process_ends() -> None:
    code = """
import sys
from dataclasses import replace
from tests.tuned_db.opened_store import opened
from tests.tuned_db.tuned_samples import INFO, SQUARE, record
from tuned_db import open_store
from tuned_db.choosing.remembered_winners import RememberedWinners
reader = RememberedWinners(INFO)
reader.relatives(INFO)
store = open_store()
store.note_race(replace(record(), origin="raced"))
store.database.release()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    later = RememberedWinners(INFO)
    assert later.mark() is not None
    assert [one.origin for one in later.relatives(INFO)] == [RACED]
    assert "store" not in vars(later), "nothing was asked of the database"
