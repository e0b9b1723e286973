"""A database that is closed where a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuned_db import Store, open_store


@contextmanager
def opened() -> Iterator[Store]:
    """Open the user's database and close it at the end of the block.

    The garbage collector closes connections at any moment, and the last one folds SQLite's log in.
    """
    store = open_store()
    yield store
    store.database.release()
