"""The errors of a database. Importing them loads nothing else, so that a choice can catch them."""

from __future__ import annotations


class DatabaseError(RuntimeError):
    """A database that cannot be opened, read or written; the message is one sentence for people."""
