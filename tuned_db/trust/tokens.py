"""Tokens that let people use a database that is served; only their hashes are kept.

`tuned_db.service` checks them, over HTTP.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from sqlalchemy import delete, insert, select, update

from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import TokenRow
from tuned_db.database.opening import Database
from tuned_db.storage.batches import sent_since
from tuned_db.storage.rows import now, time_of

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PREFIX = "oclgen_"
"""Lets people, and programs that look for leaked secrets, see what a token is for."""


ROLES = ("reader", "contributor", "maintainer")
"""Each may what those before it may: read where reading is private; send records; take back what
any token sent."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, with the fields of `tuned_db.database.models.TokenRow`."""

    name: str
    role: str
    created: str
    expires: str | None
    used: str | None
    daily: int | None

    def may(self, role: str) -> bool:
        """Say whether it may what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


_TOKENS = select(*(getattr(TokenRow, name) for name in Token.__dataclass_fields__))


class TokenError(DatabaseError):
    """A name that no token can have, has already, or has not; the message says which."""


def add_token(
    database: Database,
    name: str,
    role: str = "contributor",
    days: int | None = None,
    daily: int | None = None,
) -> str:
    """Return a new token for `name`; it is shown once and cannot be read back.

    Args:
        database: that is served.
        name: who or what uses it, such as a person or a job.
        role: one of `ROLES`.
        days: after which it is worth nothing; None: never.
        daily: most records that it may send in 24 hours; None: no bound.

    Raises:
        TokenError: the name or the role has another form, or the name has a token already.
    """
    if not _NAME.fullmatch(name):
        raise TokenError(f"{name[:80]!r} is no name for a token; it must look like {_NAME.pattern}")
    if role not in ROLES:
        raise TokenError(f"{role[:80]!r} is no role; there are {', '.join(ROLES)}")
    token = _PREFIX + secrets.token_urlsafe(32)
    expires = None if days is None else time_of(datetime.now(UTC) + timedelta(days=days))
    with database.writing() as connection:
        if connection.execute(select(TokenRow.id).filter_by(name=name)).scalar() is not None:
            raise TokenError(f"{name} has a token already; revoke it first to replace it")
        values = {"name": name, "digest": _digest(token), "created": now(), "role": role}
        more = {"expires": expires, "daily": daily}
        connection.execute(insert(TokenRow).values(**values, **more))
    return token


def revoke_token(database: Database, name: str) -> None:
    """Take away what `name` may write from now on; what was written stays.

    Raises:
        TokenError: no token has this name.
    """
    with database.writing() as connection:
        removed = connection.execute(delete(TokenRow).filter_by(name=name)).rowcount
    if not removed:
        raise TokenError(f"{name[:80]!r} has no token; `oclgen db token list` shows all names")


def list_tokens(database: Database) -> list[Token]:
    """Return what is known of every token, sorted by name."""
    with database.reading() as connection:
        found = connection.execute(_TOKENS.order_by(TokenRow.name))
        return [Token(*row) for row in found]


def holder_of(database: Database, token: str) -> Token | None:
    """Return what `token` is, None if it is no token (any more); note the minute of its use."""
    with database.reading() as connection:
        # a hash is looked up, not a secret: how long that takes tells nothing about the token
        row = connection.execute(_TOKENS.filter_by(digest=_digest(token))).first()
    found = None if row is None else Token(*row)
    if found is None or (found.expires is not None and found.expires <= now()):
        return None
    if (found.used or "")[:16] != (minute := now())[:16]:
        # a database that is only read, or is written to for long, notes no use
        with suppress(DatabaseError), database.writing() as connection:
            noted = update(TokenRow).where(TokenRow.name == found.name)
            connection.execute(noted.values(used=f"{minute[:16]}:00Z"))
    return found


def left_today(database: Database, token: Token) -> float:
    """Return how many more records a token may send: `daily` less what came in 24 hours."""
    if token.daily is None:
        return inf
    since = time_of(datetime.now(UTC) - timedelta(days=1))
    with database.reading() as connection:
        return token.daily - sent_since(connection, token.name, since)


def _digest(token: str) -> str:
    # 256 random bits need no salt and no slow hash: there is no dictionary to try
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
