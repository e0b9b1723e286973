"""Signed contributions: a key per contributor, wrong signatures refused, and what they agree on."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import FAMILY, INFO, SQUARE, record, timed, variant
from tuned_db import DatabaseError, Store, open_store, write_records
from tuned_db.choosing.raced import RACED
from tuned_db.database.models import KeyRow
from tuned_db.trust.consensus import agreements
from tuned_db.trust.signatures import (
    Signature,
    SignatureError,
    distrust,
    make_key,
    public_key,
    sign,
    signer,
    trust,
    trusted,
)

CONTENT = b"some bytes\n"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    make_key(path := tmp_path / "keys" / "key.pem")
    return path


def test_a_private_key_is_its_users_alone_and_is_made_once(private: Path) -> None:
    assert private.stat().st_mode & 0o077 == 0
    assert public_key(private).startswith("ed25519:")
    with pytest.raises(SignatureError, match="is there already"):
        make_key(private)
    with pytest.raises(SignatureError, match="no private key in"):
        sign(CONTENT, private.with_name("other.pem"))


def test_a_trusted_signature_says_who_signed(private: Path, store: Store) -> None:
    signature = Signature.from_json(sign(CONTENT, private).to_json())
    with pytest.raises(SignatureError, match="which is not trusted here"):
        signer(store.database, CONTENT, signature)
    trust(store.database, "alice", signature.key)
    assert signer(store.database, CONTENT, signature) == "alice"
    with pytest.raises(SignatureError, match="not alice's for these bytes"):
        signer(store.database, CONTENT + b" ", signature)
    distrust(store.database, "alice")
    assert trusted(store.database) == []
    with pytest.raises(SignatureError, match="not trusted"):
        signer(store.database, CONTENT, signature)
    with pytest.raises(DatabaseError, match="no key of 'alice'"):
        distrust(store.database, "alice")


def test_a_signature_of_another_key_does_not_pass_as_alices(
    private: Path, store: Store, tmp_path: Path
) -> None:
    trust(store.database, "alice", public_key(private))
    make_key(other := tmp_path / "mallory.pem")
    forged = replace(sign(CONTENT, other), key=public_key(private))
    with pytest.raises(SignatureError, match="not alice's"):
        signer(store.database, CONTENT, forged)
    with pytest.raises(DatabaseError, match="trusted already"):
        trust(store.database, "bob", public_key(private))
    with pytest.raises(DatabaseError, match="trusted already"):
        trust(store.database, "alice", public_key(other))


def test_a_database_that_fails_is_told_as_that(private: Path, shelf: Store) -> None:
    with shelf.database.writing() as connection:
        connection.exec_driver_sql(f"DROP TABLE {KeyRow.__tablename__}")
    with pytest.raises(DatabaseError, match="no such table"):
        trust(shelf.database, "alice", public_key(private))


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("a b", "ed25519:" + "A" * 43 + "=", "is no name"),
        ("alice", "A" * 43 + "=", "begins with ed25519:"),
        ("alice", "ed25519:AAAA", "has 32 bytes"),
        ("alice", "ed25519:!", "is no key"),
    ],
)
def test_what_is_no_key_is_refused(tmp_path: Path, name: str, key: str, said: str) -> None:
    with pytest.raises(SignatureError, match=said):
        trust(open_store(tmp_path / "keys.sqlite").database, name, key)
    with pytest.raises(SignatureError, match="no signature of oclgen"):
        Signature.from_json('{"format": "oclgen signature", "schema": 2}')


def test_a_service_takes_signed_files_by_their_signature(private: Path, shelf: Store) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from tests.tuned_db.service.service_runs import serving
    from tuned_db.service.client import ServiceError

    stream = io.BytesIO()
    write_records([record()], stream)
    content = stream.getvalue()
    with serving(shelf) as served, served.client() as client:
        with pytest.raises(ServiceError, match=r"403: .*not trusted here"):
            client.contribute(content, "records", sign(content, private))
        trust(shelf.database, "alice", public_key(private))
        with pytest.raises(ServiceError, match=r"403: .*not alice's for these bytes"):
            client.contribute(content, "records", sign(content + b"\n", private))
        assert shelf.all_winners() == []
        assert client.contribute(content, "records", sign(content, private)).improved == 1
    assert [one.origin for one in shelf.all_winners()] == ["signed by alice"]


def test_contributors_who_agree_are_counted_over_drivers(store: Store) -> None:
    other_driver = replace(INFO, driver_version="2")
    fast, slow = variant(item_m=1), variant(item_m=2)
    store.of(INFO).record(SQUARE, fast, timed(1.0))
    for origin, best, ms in (("alice", fast, 2.0), ("bob", slow, 0.5), ("carol", fast, 1.5)):
        one = record(config=best.to_json(), samples=(ms,), device=other_driver)
        store.merge([one], origin=f"signed by {origin}")
    store.merge([record(GemmProblem(8, 8, 8))], origin="signed by alice")
    store.merge([record(config=slow.to_json(), samples=(0.1,))], origin=RACED)
    (found,) = agreements(store)
    assert (found.device, found.problem) == (INFO.name, SQUARE.key())
    assert (found.contributors, found.agree, found.family) == (4, 3, FAMILY)
    assert (found.config, found.ms, found.spread) == (fast.to_json(), 1.5, 2.0)
    assert len(agreements(store, least=1)) == 2
