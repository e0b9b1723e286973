"""Tokens that let people write to a database that is served; only their hashes are kept.

`tuned_db.service` asks for them, over HTTP.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from sqlalchemy import delete, insert, select

from tuned_db.database import Database, DatabaseError
from tuned_db.models import TokenRow
from tuned_db.rows import now

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PREFIX = "oclgen_"
"""Lets people, and programs that look for leaked secrets, see what a token is for."""


class TokenError(DatabaseError):
    """A name that no token can have, has already, or has not; the message says which."""


def add_token(database: Database, name: str) -> str:
    """Return a new token that writes under `name`; it is shown once and cannot be read back.

    Raises:
        TokenError: the name has another form, or has a token already.
    """
    if not _NAME.fullmatch(name):
        raise TokenError(f"{name[:80]!r} is no name for a token; it must look like {_NAME.pattern}")
    token = _PREFIX + secrets.token_urlsafe(32)
    with database.writing() as connection:
        if connection.execute(select(TokenRow.id).filter_by(name=name)).scalar() is not None:
            raise TokenError(f"{name} has a token already; revoke it first to replace it")
        values = {"name": name, "digest": _digest(token), "created": now()}
        connection.execute(insert(TokenRow).values(**values))
    return token


def revoke_token(database: Database, name: str) -> None:
    """Take away what `name` may write from now on; what was written stays.

    Raises:
        TokenError: no token has this name.
    """
    with database.writing() as connection:
        removed = connection.execute(delete(TokenRow).filter_by(name=name)).rowcount
    if not removed:
        raise TokenError(f"{name[:80]!r} has no token; `oclgen db token list` shows who has")


def list_tokens(database: Database) -> list[tuple[str, str]]:
    """Return name and time of making of every token, sorted by name."""
    with database.reading() as connection:
        found = connection.execute(select(TokenRow.name, TokenRow.created).order_by(TokenRow.name))
        return [(name, created) for name, created in found]


def holder_of(database: Database, token: str) -> str | None:
    """Return the name under which `token` writes, None if it is no token (any more)."""
    with database.reading() as connection:
        # a hash is looked up, not a secret: how long that takes tells nothing about the token
        asked = select(TokenRow.name).filter_by(digest=_digest(token))
        found: str | None = connection.execute(asked).scalar()
    return found


def _digest(token: str) -> str:
    # 256 random bits need no salt and no slow hash: there is no dictionary to try
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
