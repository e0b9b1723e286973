"""Database files that are damaged, foreign, newer, older, read-only or full: one sentence each,
and nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import DatabaseError, open_store
from tuned_db.database import schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with one winner, closed."""
    file = tmp_path / "tuned.sqlite"
    open_store(file).of(INFO).record(SQUARE, variant(), timed(1.0))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file


def refusal(where: Path | str) -> str:
    """The sentence with which opening or reading is refused."""
    with pytest.raises(DatabaseError) as caught:
        open_store(where).all_winners()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(where) in sentence
    return sentence


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"these are my notes, " * 100)
    assert "is no SQLite database; move it away" in refusal(file)
    assert file.read_bytes() == b"these are my notes, " * 100


def test_a_file_whose_pages_are_damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    assert "is damaged; move it away" in refusal(path)
    assert path.read_bytes() == content


def test_a_file_that_was_cut_short(path: Path) -> None:
    content = path.read_bytes()[: 2 * 4096 + 17]
    path.write_bytes(content)
    assert "is damaged; move it away" in refusal(path)
    assert path.read_bytes() == content


def test_bytes_that_flipped_are_a_sentence_at_worst(path: Path, tmp_path: Path) -> None:
    """Whatever a disk does to a file, it is read, or refused with a `DatabaseError`."""
    content, random = path.read_bytes(), Random(0)
    refused = 0
    for number in range(80):
        broken = bytearray(content)
        for _ in range(random.choice((1, 5, 50))):
            broken[random.randrange(len(broken))] = random.randrange(256)
        file = tmp_path / f"broken{number}.sqlite"
        file.write_bytes(broken)
        try:
            store = open_store(file)
            store.all_winners()
            store.of(INFO).measured(SQUARE)
            store.of(INFO).record(SQUARE, variant(), timed(1.0))
        except DatabaseError:
            refused += 1
    assert 0 < refused < 80


def test_a_file_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.commit()
    before = file.read_bytes()
    sentence = refusal(file)
    assert "belongs to something else: it holds the tables alembic_version, bookmarks" in sentence
    assert file.read_bytes() == before


def test_a_file_of_a_newer_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE oclgen_schema SET version_num = '9999'")
        connection.commit()
    assert f"has schema 9999, newer than {schema.revisions()[-1]}" in refusal(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM oclgen_measurements").fetchone() == (1,)


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "empty.sqlite"
    file.touch()
    assert open_store(file).all_winners() == []


NEWEST = schema.revisions()[-1]
NEXT = f"""
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{NEWEST}"


def upgrade() -> None:
    with op.batch_alter_table("oclgen_measurements") as table:
        table.add_column(sa.Column("watts", sa.Float))
"""


def test_an_older_file_is_upgraded_and_keeps_its_rows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(str(schema.MIGRATIONS), folder)
    (folder / "versions" / "9000_watts.py").write_text(NEXT)
    monkeypatch.setattr(schema, "MIGRATIONS", folder)
    winners = open_store(path).all_winners()
    assert [one.ms for one in winners] == [1.0]
    with closing(sqlite3.connect(path)) as connection:
        columns = connection.execute("SELECT watts FROM oclgen_measurements").fetchall()
        assert columns == [(None,)]
        assert connection.execute("SELECT * FROM oclgen_schema").fetchall() == [("9000",)]


def test_a_failed_upgrade_changes_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(str(schema.MIGRATIONS), folder)
    broken = f"{NEXT}    op.execute('INSERT INTO no_such_table VALUES (1)')\n"
    (folder / "versions" / "9000_broken.py").write_text(broken)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", folder)
        assert "no such table" in refusal(path)
    assert len(open_store(path).all_winners()) == 1


def test_the_migrations_make_the_tables_of_the_models(path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine

    from tuned_db.database.models import Base

    with create_engine(f"sqlite:///{path}").connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nonsense://", "SQLAlchemy knows no such kind of database"),
        ("sqlite://user:pw@host/x", "Invalid SQLite URL"),
        ("postgresql+pg8000://user:pw@localhost/x", "needs a driver that is not installed"),
        ("://", "is no database URL"),
    ],
)
def test_wrong_urls(where: str, message: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        open_store(where)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be created" in refusal(tmp_path / "file" / "tuned.sqlite")
    assert "cannot be opened" in refusal(tmp_path)


def test_another_program_that_keeps_the_file_locked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuned_db.database.opening.BUSY_MS", 50)
    store = open_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="was locked by another program"):
            store.of(INFO).record(GemmProblem(1, 1, 1), variant(), timed(1.0))
        assert len(store.all_winners()) == 1


def test_a_merge_that_fails_half_way_changes_nothing(path: Path) -> None:
    store = open_store(path)

    def failing() -> Iterator[object]:
        yield record(GemmProblem(9, 9, 9))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.merge(failing())  # type: ignore[arg-type]
    assert [one.problem for one in store.all_winners()] == [SQUARE.key()]


def as_nobody(program: str, path: Path) -> str:
    """Run `program` without root's power to write everywhere; return what it printed."""
    root = str(Path(__file__).parents[3])
    drop = "import os\nif os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    code = f"import sys; sys.path.insert(0, {root!r})\n{HEAD}{drop}path = sys.argv[1]\n{program}"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


HEAD = """
from tests.tuned_db.tuned_samples import INFO, SQUARE, timed, variant
from tuned_db import DatabaseError, open_store
# import now what is imported late: the user `nobody` may lack access to root's Python
open_store("sqlite://").of(INFO).record(SQUARE, variant(), timed(1.0))
"""

READ_AND_WRITE = """
store = open_store(path)
print([one.ms for one in store.all_winners()])
try:
    store.of(INFO).record(SQUARE, variant(item_m=9), timed(0.1))
except DatabaseError as error:
    print(error)
"""


@pytest.fixture
def shared(path: Path) -> Iterator[Path]:
    """A copy of the database that all users can read and none can write."""
    folder = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp")
    folder = folder / f"oclgen-test-{os.getpid()}"
    folder.mkdir()
    file = folder / "tuned.sqlite"
    shutil.copy(path, file)
    file.chmod(0o444)
    folder.chmod(0o555)
    yield file
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("folder_mode", [0o555, 0o777], ids=["read-only folder", "writable folder"])
def test_a_read_only_file_still_serves(shared: Path, folder_mode: int) -> None:
    shared.parent.chmod(folder_mode)
    before = shared.read_bytes()
    winners, sentence = as_nobody(READ_AND_WRITE, shared).splitlines()
    assert winners == "[1.0]"
    assert f"{shared} is read-only, nothing was written; make it writable" in sentence
    assert shared.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_folder_without_permission(shared: Path) -> None:
    program = """
try:
    open_store(path + ".new")
except DatabaseError as error:
    print(error)
"""
    assert "cannot be opened; check its path and permissions" in as_nobody(program, shared)


@pytest.mark.skipif(os.name != "posix", reason="file size limits are POSIX's")
def test_a_disk_that_takes_no_more(path: Path) -> None:
    """A limit on file sizes stands for a full disk: writes fail, SQLite rolls back."""
    program = f"""
import resource, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.tuned_db.tuned_samples import INFO, timed, variant
from oclgen.problem import GemmProblem
from tuned_db import DatabaseError, open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
device = open_store(sys.argv[1]).of(INFO)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
kept = 0
try:
    for size in range(1, 1000):
        device.record(GemmProblem(size, 1, 1), variant(), timed(*[0.123] * 50))
        kept += 1
except DatabaseError as error:
    print(kept, error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60
    )
    kept, sentence = ran.stdout.split(" ", 1)
    assert "nothing of this step was written" in sentence, ran.stderr
    assert 0 < int(kept) == len(open_store(path).all_winners()) - 1
