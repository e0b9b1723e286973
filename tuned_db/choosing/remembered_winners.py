"""What a chooser read from the user's database, kept until a process writes to that database.

A process that only uses winners then needs neither SQLAlchemy, which takes a third of a second to
import, nor a check of the schema. A database on a server is always read.

Choices that later processes find again are named by the content that was read, not by the file:
SQLite also changes the file when its log is folded in, although no record comes or goes.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import platformdirs

from oclgen.files import write_atomically
from oclgen.limits import DeviceInfo
from oclgen.problem import Problem
from tuned_db.choosing.raced import RACED
from tuned_db.database.errors import DatabaseError
from tuned_db.database.place import chosen, file_of
from tuned_db.records.exchange import SCHEMA
from tuned_db.records.record import Record

if TYPE_CHECKING:
    from tuned_db.storage.store import Store

State = list[list[int]]
"""Size in bytes and time in ns of a database's file, and of SQLite's log beside it."""
READS = 3
"""Times that a database is read until it is the same file after the reading as before: a first
reader makes the file, and the last one to close it folds SQLite's log in."""


class RememberedWinners:
    """The winners of one device as a `Store` tells them, which is opened when it must be.

    Args:
        info: the device.

    Raises:
        DatabaseError: the database has changed and cannot be opened.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self._where, self._file = chosen(), file_of()
        digest = hashlib.sha256(repr((self._where, astuple(info))).encode()).hexdigest()[:16]
        self._kept = platformdirs.user_cache_path("oclgen") / "winners" / f"{digest}.json"
        self._state, self._values = self._recall()
        _readers.add(self)

    @cached_property
    def store(self) -> Store:
        """The database itself.

        Raises:
            DatabaseError: it cannot be opened.
        """
        from tuned_db.storage.store import open_store

        return open_store(self._where)

    def relatives(self, info: DeviceInfo) -> list[Record]:
        """Return the winners of devices of one architecture and kind, `info` itself among them."""
        if (values := self._of(info)) is None:
            return self.store.relatives(info)
        return [Record.of_checked(one, origin) for origin, one in values["winners"]]

    def checks(self, info: DeviceInfo) -> Mapping[str, str]:
        """Return what quick checks of plans on `info` said, by digest; "" where one may serve."""
        values = self._of(info)
        return self.store.checks(info) if values is None else dict(values["checks"])

    def runners_up(self, info: DeviceInfo, problem: Problem) -> list[Record]:
        """Return the best measurements of `problem` on `info` that are no winners."""
        return self.store.runners_up(info, problem) if self._is_there() else []

    def unsettled(self, info: DeviceInfo) -> list[Record]:
        """Return the claims about `info` whose variant was not measured here."""
        return self.store.unsettled(info) if self._is_there() else []

    def note_check(self, info: DeviceInfo, digest: str, reason: str) -> None:
        """Keep what a quick check of a plan on a device said, as `Store.note_check`.

        Args:
            info: the device.
            digest: of the plan.
            reason: why it is not to serve; "": it may.
        """
        self.store.note_check(info, digest, reason)

    def mark(self) -> str | None:
        """Return a digest of the winners and checks that were read, None where none were kept.

        Winners of races are left out: each speaks for its own problem alone.
        """
        return None if self._values is None else self._values["mark"]

    def keep(self) -> None:
        """Read what this process itself has written, at its end: the next one need not."""
        now = _state(self._file) if self._file else []
        is_read = self._values is not None and "tuned_db.storage.store" in sys.modules
        if is_read and now and now != self._state:
            with suppress(DatabaseError):
                self._of(self._info)

    def _is_there(self) -> bool:
        """Say whether there is a database: one on a server is, a file may not be made yet."""
        return self._file is None or bool(_state(self._file))

    def _of(self, info: DeviceInfo) -> dict[str, Any] | None:
        """Return what is known of a device, read anew where it was written; None: ask the store.

        What is read is kept; where that fails, each process reads it.
        """
        if self._file is None or info != self._info:
            return None
        if self._values is None or self._state != _state(self._file):
            self._state, self._values = self._recall()
        if self._values is None:
            for _ in range(READS):
                state = _state(self._file)  # before it is read: what comes then is read again
                values = _read(self.store, info)
                self.store.database.release()
                if state == _state(self._file):
                    break
            self._state, self._values = state, values
            with suppress(OSError):
                write_atomically(self._kept, json.dumps([SCHEMA, self._state, self._values]))
        return self._values

    def _recall(self) -> tuple[State, dict[str, Any] | None]:
        """Return the database's state, and what was kept of it as it is, None if nothing was.

        A file that is not there has no winners, and is not made to learn that: a first process
        would wait for SQLAlchemy and for all migrations.
        """
        state = _state(self._file) if self._file else []
        if self._file and not state:
            return state, _as_values([], {})
        with suppress(OSError, ValueError, TypeError):  # it is not there, or is damaged
            schema, known, values = json.loads(self._kept.read_text(encoding="utf-8"))
            if state and (schema, known) == (SCHEMA, state) and "mark" in values:
                return state, values
        return state, None


_readers: WeakSet[RememberedWinners] = WeakSet()


@atexit.register
def _keep_all() -> None:
    """Store what this process wrote, so that the next one need not read the database."""
    for reader in [*_readers]:
        reader.keep()


def _read(store: Store, info: DeviceInfo) -> dict[str, Any]:
    """Return what a store tells of a device, as JSON has it, and the digest that `mark` returns."""
    winners = [[one.origin, json.loads(one.to_line())] for one in store.relatives(info)]
    return _as_values(winners, dict(store.checks(info)))


def _as_values(winners: list[list[Any]], checks: dict[str, str]) -> dict[str, Any]:
    """Return what was read as `_read` has it."""
    lasting = [one for one in winners if one[0] != RACED]
    mark = hashlib.sha256(json.dumps([SCHEMA, lasting, checks]).encode()).hexdigest()
    return {"winners": winners, "checks": checks, "mark": mark}


def _state(file: Path) -> State:
    """Return what differs once a process has written, empty where there is no database."""
    found = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        with suppress(OSError):  # SQLite's log comes and goes with its users
            state = path.stat()
            if state.st_size:  # one that is empty says as much as none
                found.append([state.st_size, state.st_mtime_ns])
    return found
