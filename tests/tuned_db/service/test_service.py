"""The service: who may write, what is refused and how, and records that travel both ways."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.tuned_db.tuned_samples import (
    FAMILY,
    INFO,
    SQUARE,
    record,
    timed,
    variant,
)

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx
from fastapi.testclient import TestClient

from oclgen.problem import GemmProblem
from tests.tuned_db.service.service_runs import GENEROUS, bearer, body, many, serving
from tuned_db import DatabaseError, Store
from tuned_db.database.models import MEASURED
from tuned_db.records.exchange import SCHEMA_LINE
from tuned_db.service import drawings, guard
from tuned_db.service.app import create_app
from tuned_db.service.guard import Buckets, RequestLimits
from tuned_db.trust.tokens import TokenError, add_token, list_tokens, revoke_token
from tuned_db.views.titles import title_of


@pytest.fixture
def web(shelf: Store) -> TestClient:
    """A browser without a token; `Authorization` is added where a test wants to write."""
    return TestClient(create_app(shelf, GENEROUS))


def test_caches_seed_conditions_and_digest_are_taken_in_and_shown(
    web: TestClient, shelf: Store
) -> None:
    cold = record(cache="cold", seed=7, conditions={"mhz_before": 1980.0}, samples=(9.0,))
    content = body(record(samples=(1.0,)), cold)
    sent = web.post("/api/v1/records", content=content, headers=bearer(shelf))
    assert sent.json() == {"improved": 2, "kept": 0}
    winners = web.get("/api/v1/winners").json()["items"]
    assert {one["cache"]: one["ms"] for one in winners} == {"warm": 1.0, "cold": 9.0}
    (shown,) = [one for one in winners if one["cache"] == "cold"]
    assert (shown["seed"], shown["conditions"]) == (7, {"mhz_before": 1980.0})
    assert shown["digest"] == cold.digest
    assert web.get("/api/v1/records").content == content
    (trial,) = web.get(f"/api/v1/winners/{shown['id']}/trials").json()["items"]
    more = {"id", "verified", "arrived"}
    assert trial.keys() == MEASURED.keys() - {"samples", "origin"} | more
    assert f">{title_of(cold.problem)}</a> cold" in web.get(f"/devices/{shown['device_id']}").text


def test_writing_needs_a_token_and_reading_none(web: TestClient, shelf: Store) -> None:
    for headers in ({}, {"Authorization": "Bearer oclgen_no"}, {"Authorization": "Basic YTpi"}):
        answer = web.post("/api/v1/records", content=body(record()), headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert shelf.all_winners() == []
    answer = web.post("/api/v1/records", content=body(record()), headers=bearer(shelf))
    assert (answer.status_code, answer.json()) == (200, {"improved": 1, "kept": 0})
    assert [one.origin for one in shelf.all_winners()] == ["push by alice"]
    assert web.get("/api/v1/records").content == body(record())


def test_tokens_are_hashed_named_once_and_revoked(shelf: Store, tmp_path: Path) -> None:
    token = add_token(shelf.database, "bob")
    with pytest.raises(TokenError, match="bob has a token already"):
        add_token(shelf.database, "bob")
    with pytest.raises(TokenError, match="no name for a token"):
        add_token(shelf.database, "../bob")
    assert [one.name for one in list_tokens(shelf.database)] == ["bob"]
    for file in tmp_path.glob("served.sqlite*"):
        assert token.encode() not in file.read_bytes()
        assert token.removeprefix("oclgen_").encode() not in file.read_bytes()
    revoke_token(shelf.database, "bob")
    with pytest.raises(TokenError, match="'bob' has no token"):
        revoke_token(shelf.database, "bob")
    web = TestClient(create_app(shelf))
    headers = {"Authorization": f"Bearer {token}"}
    assert web.post("/api/v1/records", content=body(record()), headers=headers).status_code == 401


def test_a_bad_line_is_named_and_nothing_is_taken_in(web: TestClient, shelf: Store) -> None:
    upload = body(record()) + b'{"problem": 7}\n'
    answer = web.post("/api/v1/records", content=upload, headers=bearer(shelf))
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("the upload, line 3: ")
    assert shelf.all_winners() == []


NASTY: dict[str, list[Any]] = {
    "family": ["../../etc/passwd", "gemm/register", "a\\b", "x" * 65, "", "<script>", "é"],
    "generator": ["1; DROP TABLE oclgen_devices", "../1", "a b", ""],
    "version": ["/root", "0.1\n"],
    "config": [
        {"../x": 1},
        {"a": 2**40},
        {"a": "\ud800"},
        {"a": None},
        {"a b": 1},
        {"a": "\u0000"},
    ],
    "samples": [[1e300], [None], [[1]], list(range(-3, 0))],
    "peak": [[1], [1, "2"], [-1, 1], "fast", [1, 2, 3]],
    "device": [{"name": "a\u0000b"}, {"name": ["x"]}, {"compute_units": 10**30}],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in NASTY.items() for value in values]
)
def test_hostile_records_are_refused(web: TestClient, shelf: Store, field: str, value: Any) -> None:
    line = json.loads(record(generator="99").to_line())
    line[field] = line["device"] | value if field == "device" else value
    upload = f"{SCHEMA_LINE}\n{json.dumps(line)}\n".encode()
    answer = web.post("/api/v1/records", content=upload, headers=bearer(shelf))
    assert answer.status_code == 400, answer.text
    assert field in answer.json()["detail"]
    assert shelf.all_winners() == []


INJECTED = "'; DROP TABLE oclgen_tunings; --"


def test_sql_in_strings_is_text(web: TestClient, shelf: Store) -> None:
    evil = record(INJECTED, generator="99", device=replace(INFO, name=INJECTED))
    assert web.post("/api/v1/records", content=body(evil), headers=bearer(shelf)).status_code == 200
    found = web.get("/api/v1/winners", params={"text": INJECTED}).json()["items"]
    assert [one["problem"] for one in found] == [INJECTED]
    assert web.get("/api/v1/winners", params={"text": "%"}).json()["items"] == []
    assert web.get("/api/v1/records", params={"architecture": INJECTED}).status_code == 200
    assert len(shelf.all_winners()) == 1


def test_markup_in_strings_is_text(web: TestClient, shelf: Store) -> None:
    markup = '<script>alert("1")</script><svg onload=x>'
    shelf.merge([record(markup, generator="99", device=replace(INFO, name=markup, vendor=markup))])
    shelf.merge([record(device=replace(INFO, name=markup))])
    for path in ("/", "/devices/1", "/devices/2", "/tunings/1", "/tunings/2"):
        answer = web.get(path, params={"text": "<b>"} if path == "/devices/1" else {})
        assert answer.status_code == 200
        assert "<script" not in answer.text
        assert "<svg onload" not in answer.text
        assert '<b>"' not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "upload",
    [
        b"",
        b"\x00" * 100,
        b"[" * 60_000,
        SCHEMA_LINE.encode() + b"\n" + b'{"a":' * 10_000,
        SCHEMA_LINE.encode() + b"\n" + b"x" * 70_000,
        b"\xff\xfe" * 10,
        b"PK\x03\x04",
    ],
    ids=range(7),
)
def test_bodies_that_are_no_export(web: TestClient, shelf: Store, upload: bytes) -> None:
    answer = web.post("/api/v1/records", content=upload, headers=bearer(shelf))
    assert answer.status_code == 400
    assert len(answer.text) < 2000


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/winners?after=-1",
        "/api/v1/winners?after=99999999999999999999",
        "/api/v1/winners?limit=501",
        "/api/v1/winners?limit=x",
        "/api/v1/winners?family=../etc",
        "/api/v1/winners?text=%00",
        "/api/v1/winners/0/trials",
        "/devices/9223372036854775808",
        "/devices/1?text=%0a",
        "/devices/1?sort=config",
        "/compare?left=0",
        "/problem",
        "/api/v1/winners?sort=%20ms",
    ],
)
def test_wrong_questions_are_refused(web: TestClient, path: str) -> None:
    assert web.get(path).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/devices/7",
        "/tunings/7",
        "/api/v1/winners/7/trials",
        "/x",
        "/style.css/../x",
        "/devices/7/failures",
        "/devices/7/roofline.svg",
        "/tunings/7/heat.svg",
        "/problem?key=gemm",
        "/compare?left=7&right=8",
        "/diff?left=7&right=8",
        "/tunings/7/progress.svg",
        "/tunings/7/parameters.svg",
    ],
)
def test_what_is_not_there_is_404(web: TestClient, path: str) -> None:
    assert web.get(path).status_code == 404


CHARTS = (
    "/devices/1/roofline.svg",
    "/compare.svg?left=1&right=1",
    "/tunings/1/progress.svg",
    "/tunings/1/parameters.svg",
    f"/tunings/1/heat.svg?family={FAMILY}&x=item_m&y=unroll_k",
)


@pytest.mark.parametrize("path", CHARTS)
def test_a_chart_is_drawn_once_and_kept_by_browsers(
    web: TestClient, shelf: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    pytest.importorskip("matplotlib")
    for number in range(16):
        one = variant(item_m=1 + number % 4, unroll_k=1 + number // 4)
        shelf.of(INFO).record(SQUARE, one, timed(2.0 + number % 4))
    first = web.get(path)
    assert first.headers["content-type"] == "image/svg+xml"
    assert first.headers["cache-control"] == "max-age=60"
    assert first.headers.get_list("content-security-policy") == [drawings.CSP]
    monkeypatch.setattr(drawings, "draw", lambda chart: pytest.fail("it is drawn again"))
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = web.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
    monkeypatch.undo()
    shelf.of(INFO).record(SQUARE, variant(item_m=2), timed(0.5))
    shelf.of(INFO).record(SQUARE, variant(item_m=4), timed(0.4))
    later = web.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert later.status_code == 200
    assert later.content != first.content


def test_without_matplotlib_pages_say_what_to_install(
    web: TestClient, shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.merge([record()])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for path in ("/devices/1", "/tunings/1"):
        answer = web.get(path)
        assert answer.status_code == 200
        assert "Charts need matplotlib: pip install" in answer.text
        assert "<table" in answer.text
        assert "<img" not in answer.text
    refused = web.get("/devices/1/roofline.svg")
    assert (refused.status_code, "pip install" in refused.text) == (404, True)


def test_pages_follow_each_other_and_miss_nothing(web: TestClient, shelf: Store) -> None:
    shelf.merge(many(25))
    seen, after = [], 0
    while after is not None:
        page = web.get("/api/v1/winners", params={"after": after, "limit": 10}).json()
        seen += [one["problem"] for one in page["items"]]
        after = page["next"]
    assert sorted(seen) == sorted(one.problem for one in many(25))
    first = web.get("/api/v1/records?limit=20&kind=gpu")
    assert first.links["next"]["url"] == "/api/v1/records?limit=20&kind=gpu&after=20"
    assert web.get(first.links["next"]["url"]).content.count(b"\n") == 1 + 5
    assert first.headers["total-records"] == "25"  # a file of 20 does not say that it is a part
    assert web.get("/api/v1/records?kind=cpu").headers["total-records"] == "0"


def test_filters_narrow_what_is_listed(web: TestClient, shelf: Store) -> None:
    shelf.merge(
        [record(), record(GemmProblem(128, 64, 64)), record(device=replace(INFO, name="B"))]
    )

    def problems(**query: Any) -> list[str]:
        items = web.get("/api/v1/winners", params=query).json()["items"]
        return [one["problem"].split(":")[1] for one in items]

    assert problems(device=1) == ["64x64x64"]
    assert problems(op="conv") == []
    assert problems(op="gemm", text="128x") == ["128x64x64"]
    assert len(problems(family=FAMILY)) == 3
    assert web.get("/api/v1/devices").json()["items"][0]["winners"] >= 1


def test_too_large_a_body_is_refused_before_it_is_read(shelf: Store) -> None:
    web = TestClient(create_app(shelf, replace(GENEROUS, body_bytes=1000)))
    headers = bearer(shelf)
    answer = web.post("/api/v1/records", content=b"x" * 1001, headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    chunks = (b"x" * 100 for _ in range(20))  # no length is declared
    assert web.post("/api/v1/records", content=chunks, headers=headers).status_code == 413
    wrong = web.post("/api/v1/records", content=b"", headers={"content-length": "-5"})
    assert wrong.status_code == 413


def test_who_asks_too_often_waits(shelf: Store) -> None:
    web = TestClient(create_app(shelf, RequestLimits(reads_per_s=1.0, burst_s=3.0, request_s=inf)))
    answers = [web.get("/") for _ in range(5)]
    assert [one.status_code for one in answers][:3] == [200] * 3
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert web.post("/api/v1/records").status_code == 401  # writing has a bucket of its own


def test_buckets_fill_again_and_forget_the_quietest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CLIENTS", 2)
    buckets = Buckets(per_s=1.0, size=2.0)
    assert [buckets.wait_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert buckets.wait_s("a", 0.5) == 0.5
    assert buckets.wait_s("a", 1.0) == 0.0
    buckets.wait_s("b", 1.0)
    buckets.wait_s("c", 1.0)
    assert buckets.wait_s("a", 1.0) == 0.0  # was forgotten, and is new


def test_a_client_that_never_ends_its_body_is_dropped(shelf: Store) -> None:
    with serving(shelf, replace(GENEROUS, body_s=0.2)) as served:
        address = httpx.URL(served.url)
        with socket.create_connection((address.host, address.port or 0), timeout=10) as line:
            line.sendall(b"POST /api/v1/records HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
            assert line.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_database_that_fails_is_503_and_names_no_path(
    web: TestClient, shelf: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> None:
        raise DatabaseError(f"database file {tmp_path} is damaged")

    monkeypatch.setattr("tuned_db.views.browse.list_devices", fail)
    answer = web.get("/api/v1/devices")
    assert answer.status_code == 503
    assert str(tmp_path) not in answer.text
