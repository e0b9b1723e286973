"""Signed contributions: Ed25519 signatures over a file's bytes, and whose keys are trusted.

A signature says that who holds a key has written these very bytes; it says nothing of the times in
them. The cryptography is the library's of this name (extra `sign`). A private key stays in a file
of its owner; a public one is a line of text that others put among their trusted ones.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_config_path
from sqlalchemy import delete, insert, or_, select

from tuned_db.database.errors import DatabaseError
from tuned_db.database.models import KeyRow
from tuned_db.database.opening import Database
from tuned_db.records.exchange import ImportFileError
from tuned_db.storage.rows import now

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND = "ed25519:"
PURPOSE = b"oclgen signature 1\n"
"""Is signed before the bytes, so that no signature made for another purpose fits."""
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
BYTES = {"key": 32, "signature": 64}


class SignatureError(ImportFileError):
    """A key or a signature that is none, does not fit, or is not trusted."""


@dataclass(frozen=True)
class Signature:
    """A signature and the public key that it is checked with, as text."""

    key: str
    signature: str

    def to_json(self) -> str:
        """Return the content of a `.sig` file."""
        values = {"format": "oclgen signature", "schema": 1} | self.__dict__
        return json.dumps(values, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Signature:
        """Return what `to_json` wrote.

        Raises:
            SignatureError: it is no signature of schema 1.
        """
        try:
            values = json.loads(text)
            if values.pop("format") == "oclgen signature" and values.pop("schema") == 1:
                return cls(**{name: str(value) for name, value in values.items()})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise SignatureError("this is no signature of oclgen, schema 1")


def key_file() -> Path:
    """Return where a user's private key lies, if nothing else is said."""
    return user_config_path("oclgen") / "key.pem"


def make_key(path: Path) -> str:
    """Make a private key, which only the user can read, and return its public key.

    Raises:
        SignatureError: there is a key already, or the library is missing.
        OSError: the file cannot be written.
    """
    with _library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    if path.exists():
        raise SignatureError(f"{path} is there already; `oclgen db key show` prints its public key")
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return _public(key)


def public_key(path: Path) -> str:
    """Return the public key of a private key's file, as text.

    Raises:
        SignatureError: there is none, or the library is missing.
    """
    return _public(_private(path))


def sign(content: bytes, path: Path) -> Signature:
    """Sign bytes with the private key in a file.

    Raises:
        SignatureError: there is none, or the library is missing.
    """
    key = _private(path)
    signed = key.sign(PURPOSE + content)
    return Signature(_public(key), base64.b64encode(signed).decode())


def signer(database: Database, content: bytes, signature: Signature) -> str:
    """Return the name of who signed bytes with a key that is trusted here.

    Args:
        database: has the keys that are trusted.
        content: what was signed.
        signature: of it.

    Raises:
        SignatureError: the key is not trusted, the signature does not fit, or the library is
            missing; the message says which.
        DatabaseError: the database fails.
    """
    with _library():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    raw = _bytes("key", signature.key.removeprefix(KIND))
    name = next((name for name, key, _ in trusted(database) if key == signature.key), None)
    if name is None:
        raise SignatureError(
            f"signed with {signature.key[:60]}, which is not trusted here; if it is known whose it "
            f"is: oclgen db key trust NAME {signature.key[:60]}"
        )
    signed = _bytes("signature", signature.signature)
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signed, PURPOSE + content)
    except InvalidSignature:
        raise SignatureError(
            f"the signature is not {name}'s for these bytes: they were changed after signing, or "
            "another file was signed"
        ) from None
    return name


def trust(database: Database, name: str, key: str) -> None:
    """Trust a public key from now on, under a name.

    Args:
        database: keeps it.
        name: the name of the owner of the key.
        key: as `public_key` returns it.

    Raises:
        SignatureError: the key or the name is none.
        DatabaseError: the name or the key is there already.
    """
    if not NAME.fullmatch(name):
        raise SignatureError(f"{name[:60]!r} is no name; letters, digits and ._@- are taken")
    _bytes("key", key.removeprefix(KIND))
    if not key.startswith(KIND):
        raise SignatureError(f"a public key begins with {KIND}")
    with database.writing() as connection:
        known = select(KeyRow.name).where(or_(KeyRow.name == name, KeyRow.key == key))
        if connection.execute(known).first() is not None:
            raise DatabaseError(f"{name} or this key is trusted already")
        connection.execute(insert(KeyRow).values(name=name, key=key, created=now()))


def distrust(database: Database, name: str) -> None:
    """Trust a name's key no more; what came with it stays, see `oclgen db quarantine`.

    Raises:
        DatabaseError: it is not trusted.
    """
    with database.writing() as connection:
        gone = connection.execute(delete(KeyRow).where(KeyRow.name == name))
        if not gone.rowcount:
            raise DatabaseError(f"no key of {name[:64]!r} is trusted")


def trusted(database: Database) -> list[tuple[str, str, str]]:
    """Return name, public key and time of every key that is trusted, by name."""
    asked = select(KeyRow.name, KeyRow.key, KeyRow.created).order_by(KeyRow.name)
    with database.reading() as connection:
        return [(one.name, one.key, one.created) for one in connection.execute(asked)]


def _bytes(what: str, text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise SignatureError(f"{text[:60]!r} is no {what}: {error}") from error
    if len(raw) != BYTES[what]:
        raise SignatureError(f"a {what} has {BYTES[what]} bytes; {text[:60]!r} has {len(raw)}")
    return raw


def _private(path: Path) -> Ed25519PrivateKey:
    with _library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    try:
        key: Any = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        said = f"no private key in {path}: {error}; `oclgen db key make` makes one"
        raise SignatureError(said) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"{path} holds a key of another kind than Ed25519")
    return key


def _public(key: Ed25519PrivateKey) -> str:
    return KIND + base64.b64encode(key.public_key().public_bytes_raw()).decode()


@contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        said = "signatures need the library cryptography: pip install 'oclgen[sign]'"
        raise SignatureError(said) from error
