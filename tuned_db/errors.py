"""What a database fails with; it loads nothing, so that a choice can expect it."""

from __future__ import annotations


class DatabaseError(RuntimeError):
    """A database that cannot be opened, read or written; the message is one sentence for people."""
