"""The client of a service: push, pull, what it refuses, and many at once."""

from __future__ import annotations

import gzip
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tuned_db.tuned_samples import (
    INFO,
    LIMITS,
    SQUARE,
    record,
    timed,
    variant,
)

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx

from oclgen.problem import GemmProblem
from tests.tuned_db.service.service_runs import body, many, serving
from tuned_db import Chooser, Store, open_store
from tuned_db.service.client import Client, ServiceError


def test_push_pull_verify_is_the_way_of_a_record(shelf: Store, tmp_path: Path) -> None:
    here, there = open_store(tmp_path / "here.sqlite"), open_store(tmp_path / "there.sqlite")
    here.of(INFO).note_peak(1000.0, 100.0)
    here.of(INFO).record(SQUARE, variant(item_m=2), timed(1.0))
    with serving(shelf) as served:
        with Client(served.url, served.token) as client:
            assert client.push(here.history()).improved == 1
            assert client.push(here.history()).kept == 1
        with Client(served.url) as reader:
            for records in reader.pull(INFO.architecture, INFO.kind):
                there.merge(records, origin=f"pull from {reader.host}")
            assert list(reader.pull("another")) == [[]]
            with pytest.raises(ServiceError, match="refuses with 401: this needs a token"):
                reader.push(here.history())
    assert there.all_winners() == here.all_winners()
    assert [(one.origin, one.peak) for one in there.all_winners()] == [
        ("pull from 127.0.0.1", (1000.0, 100.0))
    ]
    assert Chooser(there, INFO, LIMITS).choose(SQUARE).source == "exact, unverified"
    there.of(INFO).record(SQUARE, variant(item_m=2), timed(1.1))
    assert Chooser(there, INFO, LIMITS).choose(SQUARE).source == "exact"


def test_pulling_follows_every_page(shelf: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuned_db.service.client.PAGE", 10)
    shelf.merge(many(25))
    with serving(shelf) as served, Client(served.url) as client:
        pages = list(client.pull())
    assert [len(page) for page in pages] == [10, 10, 5]
    assert sorted(r.problem for page in pages for r in page) == sorted(r.problem for r in many(25))


def answering(*answers: httpx.Response) -> httpx.MockTransport:
    queue = list(answers)
    return httpx.MockTransport(lambda _: queue.pop(0) if len(queue) > 1 else queue[0])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(200, text="<html>"), "line 1: this is no export of oclgen"),
        (httpx.Response(404, text="gone"), "refuses with 404: Not Found"),
        (httpx.Response(429, json={"detail": "slow down"}), "refuses with 429: slow down"),
        (httpx.Response(302, headers={"Location": "http://elsewhere/"}), "refuses with 302"),
        (httpx.Response(404, json={"detail": "\x1b[2Jgone"}), "refuses with 404:  [2Jgone"),
        (httpx.Response(404, text="[" * 100_000), "refuses with 404: Not Found"),
        (httpx.Response(503, headers=[(b"retry-after", b"\xb2")]), "refuses with 503"),
    ],
)
def test_a_service_that_is_none(answer: httpx.Response, message: str) -> None:
    client = Client("http://host", transport=answering(answer), sleep=lambda _: None)
    with client, pytest.raises(ServiceError) as caught:
        list(client.pull())
    assert message in str(caught.value)


def test_the_client_waits_as_long_as_it_is_asked_to() -> None:
    waits: list[float] = []
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    answers = answering(busy, httpx.Response(503), httpx.Response(200, content=body(record())))
    with Client("http://host", transport=answers, sleep=waits.append) as client:
        assert list(client.pull()) == [[record()]]
    assert waits == [7.0, 1.0]


def test_the_client_stays_at_its_service_and_ends() -> None:
    away = {"Link": '<http://elsewhere/api>; rel="next"'}
    answer = httpx.Response(200, content=body(record()), headers=away)
    with Client("http://host", transport=answering(answer)) as client:
        assert len(list(client.pull())) == 1


def test_a_next_page_that_is_no_address() -> None:
    for link in ("http://[", "http://host:port/"):
        answer = httpx.Response(200, content=body(), headers={"Link": f'<{link}>; rel="next"'})
        with (
            Client("http://host", transport=answering(answer)) as client,
            pytest.raises(ServiceError, match="names a next page that is no address"),
        ):
            list(client.pull())


def test_an_answer_that_is_nested_too_deeply() -> None:
    answer = httpx.Response(200, text="[" * 100_000)
    with (
        Client("http://host", transport=answering(answer)) as client,
        pytest.raises(ServiceError, match="answers what no oclgen service does"),
    ):
        client.nearest_foreign("kernel", {"m": 1})


@pytest.mark.parametrize("keys", [[1, 1], [2, 1], [0], [10**30]])
def test_pages_that_do_not_go_on_are_refused(keys: list[int]) -> None:
    links = [{"Link": f'</api/v1/records?after={key}>; rel="next"'} for key in keys]
    answers = (httpx.Response(200, content=body(record()), headers=link) for link in links)
    with (
        Client("http://host", transport=answering(*answers)) as client,
        pytest.raises(ServiceError, match="pages that do not go on"),
    ):
        list(client.pull())


def test_an_answer_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small compressed answer may be large, pages many, and an answer slow."""
    content = body(*many(9))
    packed = httpx.Response(
        200, content=gzip.compress(content), headers={"Content-Encoding": "gzip"}
    )
    for name, value, said in (
        ("LARGEST_PAGE", len(content) - 1, "pages of more than"),
        ("MOST_BYTES", len(content) - 1, "more than .* bytes"),
        ("ANSWER_S", -1.0, "for a page"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"tuned_db.service.client.{name}", value)
            with (
                Client("http://host", transport=answering(packed)) as client,
                pytest.raises(ServiceError, match=said),
            ):
                list(client.pull())


def test_who_waits_is_told_why() -> None:
    said: list[str] = []
    answers = answering(httpx.Response(503, json={"detail": "later"}), httpx.Response(404))
    client = Client("http://host", transport=answers, sleep=lambda _: None, say=said.append)
    with client, pytest.raises(ServiceError):
        list(client.pull())
    assert said == ["host refuses with 503: later; attempt 2 of 8 in 0.5 s"]


def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: it refuses
        waits: list[float] = []
        said: list[str] = []
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            Client(url, sleep=waits.append, say=said.append) as client,
            pytest.raises(ServiceError, match=r"127\.0\.0\.1 cannot be reached"),
        ):
            list(client.pull())
    assert (waits, said) == ([], [])


@pytest.mark.parametrize("url", ["host", "ftp://host", "http://", ""])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ServiceError, match="no address of a service"):
        Client(url)


def test_fifty_clients_at_once_lose_nothing(shelf: Store) -> None:
    variants = [variant(item_m=m).to_json() for m in (1, 2, 3, 4)]

    def work(number: int) -> int:
        with Client(served.url, served.token) as client:
            mine = [
                record(GemmProblem(1 + number % 10, 8, n), config=text, samples=(1.0 + number,))
                for n, text in enumerate(variants, start=1)
            ]
            client.push(mine)
            return sum(len(page) for page in client.pull())

    with serving(shelf) as served, ThreadPoolExecutor(50) as pool:
        read = list(pool.map(work, range(50)))
    assert max(read) == 40
    assert len(shelf.history()) == 50 * 4
    assert {one.ms for one in shelf.all_winners()} == {1.0 + number for number in range(10)}
