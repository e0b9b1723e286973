"""Opens a database: finds it, brings its schema up to date, and turns its errors into sentences.

`tuned_db.storage.store` reads and writes it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from json import JSONDecodeError
from math import inf
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from tuned_db.database import place
from tuned_db.database.errors import DatabaseError
from tuned_db.database.schema import SchemaError, is_current, migrate, read_revision

BUSY_MS = 30_000
"""How long a SQLite writer waits for the others before it gives up."""


PAUSE_S = 0.05
"""Between two transactions of many on SQLite."""
KEPT_OPEN = 16
"""Connections to a server that wait for their next use: opening one costs it a process."""
MOST_CONNECTIONS = 50
"""At once, beyond those that are kept open."""
IDLE_S = 1.0
"""A connection to a server that lay unused for longer is tried before its next use: a firewall may
have dropped it. To ask each time costs as much as a short statement."""


MAKING = (
    "check --db and $OCLGEN_DB, or make one: oclgen tune, db import, db pull, db merge and "
    "db token add --create do"
)
"""The advice if there is no database."""


@dataclass(frozen=True)
class Database:
    """An opened database of the newest schema; `name` is for messages and holds no password."""

    engine: Engine
    name: str
    _turn: AbstractContextManager[object] = field(default_factory=Lock, repr=False, compare=False)
    _watching: AbstractContextManager[object] = field(
        default_factory=Lock, repr=False, compare=False
    )
    _watcher: list[Any] = field(default_factory=list, repr=False, compare=False)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that reads; of a file, all statements see one moment.

        Raises:
            DatabaseError: the database is damaged or out of reach.
        """
        with translated(self.name), self.engine.connect() as connection:
            if not self._is_file:  # there each statement sees its own, and BEGIN only costs time
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection inside a transaction that writes: all of it is kept, or nothing.

        Raises:
            DatabaseError: the database is read-only, full, locked or damaged.
        """
        # SQLite lets one write at a time: threads wait here, where waiting costs nothing
        turn = self._turn if self._is_file else nullcontext()
        with translated(self.name), turn, _writing(self.engine) as connection:
            yield connection

    def state(self) -> str:
        """Return a text that is another one after any process has written.

        Raises:
            DatabaseError: the database is out of reach.
        """
        if not self._is_file:
            with self.reading() as connection:
                return str(connection.exec_driver_sql("SELECT pg_current_snapshot()").scalar())
        with translated(self.name), self._watching:
            if not self._watcher:  # the number tells of what other connections wrote
                self._watcher.append(self.engine.raw_connection())
            return str(self._watcher[0].cursor().execute("PRAGMA data_version").fetchone()[0])

    def release(self) -> None:
        """Close what no thread uses; a later call opens it again.

        The last process to close a SQLite database folds its log into the file.
        """
        self.engine.dispose()

    def let_others_write(self) -> None:
        """Pause between two transactions of many: other processes poll for SQLite's lock."""
        if self._is_file:
            time.sleep(PAUSE_S)

    @property
    def _is_file(self) -> bool:
        return self.engine.dialect.name == "sqlite"


def copy_to(database: Database, path: Path) -> None:
    """Copy a SQLite database whole to a file, as it is at one moment, while others use it.

    Raises:
        DatabaseError: it is no SQLite database, or the file is there or cannot be written.
    """
    if database.engine.dialect.name != "sqlite":
        raise DatabaseError(f"{database.name} is copied by its own tools: pg_dump")
    if path.exists():
        raise DatabaseError(f"{path} is there already; name another file")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with translated(f"copy {path}"), database.engine.connect() as connection:
        source: Any = connection.connection.driver_connection
        target = sqlite3.connect(part)
        try:
            source.backup(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            target.close()
    part.replace(path)


def locate(where: str | os.PathLike[str] | None = None) -> URL:
    """Return the URL of `where` (a URL or a path), else of $OCLGEN_DB, else of the user's file.

    Raises:
        DatabaseError: `where` looks like a URL and is none.
    """
    if (file := place.file_of(where)) is not None:
        return URL.create("sqlite", database=str(file))
    named = place.chosen(where)
    try:
        return make_url(named)
    except ArgumentError as error:
        raise DatabaseError(f"{named!r} is no database URL: {error}") from error


def open_database(url: URL, *, create: bool = True) -> Database:
    """Open the database at `url`, upgraded if need be, read-only if it must be.

    With `create`, it is made if it is not there; else nothing is made, neither file nor tables.

    Raises:
        DatabaseError: it is not there, damaged, something else's, of a newer schema, or out of
            reach.
    """
    name = _name(url)
    with translated(name):
        if url.get_backend_name() == "sqlite":
            if not create and not Path(url.database or "").is_file():
                raise DatabaseError(f"there is no {name}; {MAKING}")
            return Database(_open_sqlite(url, name, create), name)
        engine = _server_engine(with_driver(url), name)
        _bring_up_to_date(engine, name, create)
        return Database(engine, name)


def with_driver(url: URL) -> URL:
    """Return `url` with PostgreSQL's current driver where it names none."""
    plain = url.drivername in ("postgresql", "postgres")
    return url.set(drivername="postgresql+psycopg") if plain else url


def _server_engine(url: URL, name: str) -> Engine:
    try:
        engine = create_engine(
            url,
            pool_size=KEPT_OPEN,
            max_overflow=MOST_CONNECTIONS,
            pool_use_lifo=True,  # those used last know their statements
        )
    except ImportError as error:
        driver = "'oclgen[postgres]'" if "psycopg" in url.drivername else url.get_driver_name()
        raise DatabaseError(
            f"{name} needs a driver that is not installed ({error}): pip install {driver}"
        ) from error
    _try_idle(engine)
    return engine


def _try_idle(engine: Engine) -> None:
    """Replace a connection that ended while it lay unused; a server that ends one says so in it."""

    @event.listens_for(engine, "checkin")
    def note(_: Any, entry: ConnectionPoolEntry) -> None:
        entry.info["since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def try_it(connection: Any, entry: ConnectionPoolEntry, _: Any) -> None:
        idle = time.monotonic() - entry.info.get("since", inf)
        if idle <= IDLE_S and not _has_news(connection):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error  # the pool opens another one


def _has_news(connection: Any) -> bool:
    """Say whether a server sent something that no statement asked for, or may have."""
    if not hasattr(connection, "fileno"):
        return True
    with DefaultSelector() as selector:
        selector.register(connection.fileno(), EVENT_READ)
        return bool(selector.select(0))


def _open_sqlite(url: URL, name: str, create: bool) -> Engine:
    path = Path(url.database) if url.database and url.database != ":memory:" else None
    if path is not None and not path.parent.is_dir():
        _make_folder(path.parent, name)
    engine = _sqlite_engine(url)
    try:
        _bring_up_to_date(engine, name, create)
    except (DBAPIError, sqlite3.Error) as error:
        if path is None or not path.is_file() or not _refuses_writes(error):
            raise
        engine.dispose()
        engine = _read_only(path)
    return engine


def _bring_up_to_date(engine: Engine, name: str, create: bool) -> None:
    with engine.begin() as connection:
        current, empty = is_current(connection), read_revision(connection) is None
    if current:
        return
    if empty and not create:
        raise DatabaseError(f"{name} holds no tables of oclgen; {MAKING}")
    if engine.dialect.name == "sqlite":
        _switch_to_wal(engine)
    with _writing(engine) as connection:
        migrate(connection)


def _switch_to_wal(engine: Engine) -> None:
    """Let readers read while one writes; the file remembers it."""
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        raw.close()


def _read_only(path: Path) -> Engine:
    # immutable: SQLite must not look for the -wal and -shm files that it could not create
    query = {"mode": "ro", "immutable": "1", "uri": "true"}
    engine = _sqlite_engine(URL.create("sqlite", database=f"file:{path}", query=query))
    with engine.begin() as connection:
        if not is_current(connection):
            raise SchemaError("is read-only and of an older schema; make it writable once")
    return engine


def _refuses_writes(error: Exception) -> bool:
    return any(sign in _reason(error) for sign in ("readonly", "unable to open"))


def _make_folder(folder: Path, name: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"{name} cannot be created: {error}") from error


def _sqlite_engine(url: URL) -> Engine:
    overflow = {} if url.database in (None, "", ":memory:") else {"max_overflow": MOST_CONNECTIONS}
    engine = create_engine(url, **overflow)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # a reader that turns writer fails at once where another writes: writers say so before
        write = connection.get_execution_options().get("oclgen_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


@contextmanager
def _writing(engine: Engine) -> Iterator[Connection]:
    with engine.execution_options(oclgen_write=True).begin() as connection:
        yield connection


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what SQLAlchemy and its drivers raise into one sentence about the database `name`.

    Raises:
        DatabaseError: the body raised one of their errors.
    """
    try:
        yield
    except SchemaError as error:
        raise DatabaseError(f"{name} {error}, or choose another with --db.") from error
    except (DBAPIError, sqlite3.Error) as error:
        raise DatabaseError(_sentence(name, _reason(error))) from error
    except (UnicodeDecodeError, JSONDecodeError) as error:  # a damaged text
        raise DatabaseError(_sentence(name, f"malformed text: {error}")) from error
    except NoSuchModuleError as error:
        raise DatabaseError(f"{name}: SQLAlchemy knows no such kind of database.") from error
    except SQLAlchemyError as error:
        raise DatabaseError(f"{name}: {error}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "orig", error)).split())


_SENTENCES = {
    "not a database": "is no SQLite database; move it away, or choose another with --db",
    "malformed": "is damaged; move it away and import an export, or restore a copy",
    "disk is full": "cannot grow, the disk is full; nothing of this step was written",
    "disk I/O error": "cannot be written, the disk refuses; nothing of this step was written",
    "locked": f"was locked by another program for {BUSY_MS // 1000} s; try again",
    "readonly": "is read-only, nothing was written; make it writable, or choose another with --db",
    "unable to open": "cannot be opened; check its path and permissions",
}


def _sentence(name: str, reason: str) -> str:
    for sign, sentence in _SENTENCES.items():
        if sign in reason:
            return f"{name} {sentence}. ({reason})"
    return f"{name}: {reason}"


def _name(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return f"database file {url.database or ':memory:'}"
    return f"database {url.render_as_string(hide_password=True)}"
