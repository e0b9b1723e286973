"""Tokens in requests, and what they may do."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from fastapi import HTTPException, Request

from tuned_db.storage.store import Store
from tuned_db.trust.signatures import Signature, SignatureError, signer
from tuned_db.trust.tokens import Token, holder_of


def require(store: Store, request: Request, role: str) -> Token:
    """Return the token of a request, which may do what `role` may.

    Args:
        store: whose tokens count.
        request: has it as `Authorization: Bearer TOKEN`; where it only reads, also as the password
            of `Basic`, which a browser asks its user for.
        role: one of `tuned_db.trust.tokens.ROLES`.

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


def origin_of(store: Store, request: Request, body: bytes, token: str) -> str:
    """Return how an upload comes: as its signature says, else as its token does.

    Args:
        store: whose trusted keys count.
        request: its headers may carry a public key and a signature (`tuned_db.trust.signatures`).
        body: what was signed.
        token: name of the token that was shown.

    Raises:
        HTTPException: 403: the signature does not fit, or its key is not trusted.
    """
    key, signed = (request.headers.get(name, "") for name in ("oclgen-key", "oclgen-signature"))
    if not (key or signed):
        return f"push by {token}"[:100]
    try:
        return f"signed by {signer(store.database, body, Signature(key, signed))}"
    except SignatureError as error:
        raise HTTPException(403, str(error)) from error
