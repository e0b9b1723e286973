"""A service for many people: roles, quotas, batches that can be undone, pages that are kept."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from tests.tuned_db.tuned_samples import FAMILY, INFO, SQUARE, record, timed, variant

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx
import uvicorn
from fastapi.testclient import TestClient
from uvicorn.server import ServerState

from tests.tuned_db.service.service_runs import GENEROUS, bearer, body, many, serving
from tuned_db import Store
from tuned_db.database import opening
from tuned_db.database.models import TokenRow
from tuned_db.service import connections
from tuned_db.service.app import create_app
from tuned_db.service.guard import RequestLimits, client_of
from tuned_db.storage.batches import NoBatchError, list_batches
from tuned_db.trust.tokens import TokenError, add_token, list_tokens
from tuned_db.trust.withdrawn import undo


@pytest.fixture
def web(shelf: Store) -> TestClient:
    return TestClient(create_app(shelf, GENEROUS))


def with_token(store: Store, role: str, **more: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {add_token(store.database, role, role, **more)}"}


def test_roles_allow_what_lesser_ones_may(web: TestClient, shelf: Store) -> None:
    tokens = {role: with_token(shelf, role) for role in ("reader", "contributor", "maintainer")}
    sent = [
        web.post("/api/v1/records", content=body(record(samples=(n,))), headers=tokens[role])
        for n, role in enumerate(tokens, start=1)
    ]
    assert [one.status_code for one in sent] == [403, 200, 200]
    assert "reader is a reader; this needs a contributor" in sent[0].json()["detail"]
    listed = [web.get("/api/v1/batches", headers=tokens[role]).status_code for role in tokens]
    assert listed == [403, 403, 200]
    # what a maintainer was told is not kept for others
    again = [
        web.get("/api/v1/batches", headers=who).status_code for who in (tokens["maintainer"], {})
    ]
    assert again == [200, 401]
    used = {one.name: one.used is not None for one in list_tokens(shelf.database)}
    assert used == dict.fromkeys(tokens, True)
    with pytest.raises(TokenError, match="no role; there are reader"):
        add_token(shelf.database, "x", "king")


def test_a_token_ends_on_its_day(web: TestClient, shelf: Store) -> None:
    headers = with_token(shelf, "contributor", days=1)
    assert web.post("/api/v1/records", content=body(record()), headers=headers).status_code == 200
    with shelf.database.writing() as connection:
        connection.execute(update(TokenRow).values(expires="2026-01-01T00:00:00Z"))
    assert web.post("/api/v1/records", content=body(record()), headers=headers).status_code == 401


def test_a_quota_bounds_what_a_token_sends_a_day(web: TestClient, shelf: Store) -> None:
    headers = with_token(shelf, "contributor", daily=3)
    codes = [
        web.post("/api/v1/records", content=body(*records), headers=headers).status_code
        for records in (many(2), many(2), many(4), many(3), [record()], many(3))
    ]
    assert codes == [200, 200, 403, 200, 403, 200]  # what is known already does not count


def test_a_batch_is_listed_and_undone(web: TestClient, shelf: Store) -> None:
    shelf.of(INFO).record(SQUARE, variant(item_m=1), timed(3.0))
    for ms in (1.0, 2.0):
        claim = record(config=variant(item_m=2).to_json(), samples=(ms,))
        web.post("/api/v1/records", content=body(claim, *many(2)), headers=bearer(shelf, f"c{ms}"))
    headers = with_token(shelf, "maintainer")
    last, first = web.get("/api/v1/batches", headers=headers).json()
    assert (first["token"], first["records"], last["records"]) == ("c1.0", 3, 1)
    assert first["address"] == "testclient"
    assert first["arrived"].endswith("Z")
    undone = web.delete(f"/api/v1/batches/{first['id']}", headers=headers)
    assert undone.json() == {"dropped": 3}
    assert [one.ms for one in shelf.history()] == [2.0, 3.0]
    assert web.delete("/api/v1/batches/99", headers=headers).status_code == 404
    with pytest.raises(NoBatchError, match="there is no batch 99"):
        undo(shelf, 99)


def test_many_records_come_in_transactions_of_bounded_size(
    shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuned_db.storage.store.CHUNK", 10)
    monkeypatch.setattr(opening, "PAUSE_S", 0.0)
    done: list[int] = []
    merge = shelf.merge(many(25), report=done.append)
    assert (merge.improved, merge.kept, done) == (25, 0, [10, 20, 25])
    assert [one.records for one in list_batches(shelf.database)] == [25]
    assert shelf.merge(many(25)).kept == 25


def test_reading_can_be_private(shelf: Store) -> None:
    web = TestClient(create_app(shelf, GENEROUS, private=True))
    token = add_token(shelf.database, "reader", "reader")
    paths = ("/", "/api/v1/records", "/api/v1/winners")
    assert {web.get(path).status_code for path in paths} == {401}
    assert web.get("/").headers["www-authenticate"] == "Basic"
    assert {web.get(path, auth=("", token)).status_code for path in paths} == {200}
    assert web.get("/", headers={b"Authorization": b"Basic \xe9"}).status_code == 401
    assert web.get("/healthz").status_code == 200
    assert web.get("/metrics").status_code == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert "oclgen_tunings 0" in web.get("/metrics", headers=bearer).text
    opened = TestClient(create_app(shelf, GENEROUS, private=True, open_metrics=True))
    assert [opened.get(path).status_code for path in ("/metrics", "/")] == [200, 401]


def test_pages_are_kept_until_somebody_writes(web: TestClient, shelf: Store) -> None:
    shelf.merge([record()])
    first = web.get("/devices/1")
    tag = first.headers["etag"]
    again = web.get("/devices/1", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    shelf.merge(many(3))
    changed = web.get("/devices/1", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.text == first.text) == (200, False)
    assert changed.headers["content-encoding"] == "gzip"
    assert web.get("/devices/7").status_code == 404


def test_a_costly_request_counts_as_many(shelf: Store) -> None:
    web = TestClient(
        create_app(shelf, RequestLimits(reads_per_s=1.0, burst_s=50.0, request_s=1e-9))
    )
    assert [web.get("/").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("testclient", "testclient"),
    ],
)
def test_clients_are_told_apart_by_what_one_customer_has(address: str, client: str) -> None:
    assert client_of({"type": "http", "client": (address, 1)}) == client


def test_half_headers_are_closed(shelf: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.2)
    monkeypatch.setattr(uvicorn, "Config", partial(uvicorn.Config, http=connections.protocol(9)))
    with serving(shelf) as served:
        with connected(served.url) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            assert is_closed(slow)
        monkeypatch.setattr(connections, "HEADERS_S", 60.0)
        assert httpx.get(served.url).status_code == 200


def test_the_connections_of_an_address_are_counted(
    shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn, "Config", partial(uvicorn.Config, http=connections.protocol(2)))
    with serving(shelf) as served:
        with connected(served.url) as one, connected(served.url) as two:
            for each in (one, two):
                each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert each.recv(12) == b"HTTP/1.1 200"
            with connected(served.url) as third:
                assert is_closed(third)
        assert httpx.get(served.url).status_code == 200


class Line:
    """A transport that only knows who is at the other end."""

    def __init__(self, address: str) -> None:
        self.address, self.is_open = address, True

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.address, 1, 0, 0), "sockname": ("::1", 1, 0, 0)}.get(name)

    def abort(self) -> None:
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize(
    ("addresses", "is_open"),
    [
        (["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1"], [True, False, True]),
        (["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"], [True, False, True]),
        (["192.0.2.1", "192.0.2.1", "fd00::1", "fd00::2"], [True] * 4),
    ],
)
def test_connections_are_counted_by_what_one_customer_has(
    shelf: Store, addresses: list[str], is_open: list[bool]
) -> None:
    made = connections.protocol(1, ["192.0.2.0/24", "fd00::/64"])
    loop = asyncio.new_event_loop()
    config = uvicorn.Config(create_app(shelf), http=made)
    config.load()
    lines = [Line(address) for address in addresses]
    for line in lines:
        one: Any = made(config, ServerState(), {}, loop)
        one.connection_made(line)
    loop.close()
    assert [line.is_open for line in lines] == is_open


def connected(url: str) -> socket.socket:
    """Return a connection to a service."""
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 0), timeout=30)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other end closes or speaks; say which."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_health_figures_and_a_line_per_request(
    web: TestClient, shelf: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oclgen.access")
    web.post("/api/v1/records", content=body(record()), headers=bearer(shelf))
    web.post("/api/v1/records", content=body(record()), headers={"Authorization": "Bearer no"})
    assert web.get("/healthz").json() == {"status": "ok"}
    figures = web.get("/metrics").text
    assert 'oclgen_requests_total{method="POST",status="401"} 1\n' in figures
    assert "\noclgen_tunings 1\n" in figures
    lines = [json.loads(one.message) for one in caplog.records if one.name == "oclgen.access"]
    said = [(one["method"], one["status"], one["token"]) for one in lines]
    assert said[:2] == [("POST", 200, "alice"), ("POST", 401, "")]


def test_arrival_is_shown_beside_what_a_sender_says(web: TestClient, shelf: Store) -> None:
    shelf.of(replace(INFO, name="other")).record(SQUARE, variant(), timed(1.0))
    web.post("/api/v1/records", content=body(record()), headers=bearer(shelf))
    keys = [one["id"] for one in web.get("/api/v1/winners").json()["items"]]
    trials = [web.get(f"/api/v1/winners/{key}/trials").json()["items"][0] for key in keys]
    assert {one["family"] for one in trials} == {FAMILY}
    assert trials[0]["arrived"] is None
    assert trials[1]["arrived"] > trials[1]["created"]
