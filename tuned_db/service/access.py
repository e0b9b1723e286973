"""Tokens in requests, and what they may do."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from fastapi import HTTPException, Request

from tuned_db.store import Store
from tuned_db.tokens import Token, holder_of


def require(store: Store, request: Request, role: str) -> Token:
    """Return the token of a request, which may do what `role` may.

    Args:
        store: whose tokens count.
        request: has it as `Authorization: Bearer TOKEN`; where it only reads, also as the password
            of `Basic`, which a browser asks its user for.
        role: one of `tuned_db.tokens.ROLES`.

    Raises:
        HTTPException: 401 without a token that is known, 403 where its role is a lesser one.
    """
    token = holder_of(store.database, _secret(request, role))
    if token is None:
        scheme = "Basic" if role == "reader" else "Bearer"
        raise HTTPException(
            401, "this needs a token: Authorization: Bearer ...", {"WWW-Authenticate": scheme}
        )
    request.state.token = token.name  # for the log
    if not token.may(role):
        raise HTTPException(403, f"{token.name} is a {token.role}; this needs a {role}")
    return token


def readers_only(store: Store) -> Callable[..., Any]:
    """Return what refuses a request without a token."""

    def check(request: Request) -> None:
        require(store, request, "reader")

    return check


def _secret(request: Request, role: str) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    if scheme.lower() == "basic" and role == "reader":  # a form elsewhere cannot make it write
        try:
            return b64decode(secret).decode().partition(":")[2]
        except ValueError:  # no base64, no text, or not even ASCII
            return ""
    return ""
