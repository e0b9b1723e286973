"""What many ask or send at once is done once: answers, and transactions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import record
from tuned_db import DatabaseError, Store
from tuned_db.storage import merging
from tuned_db.storage.batches import list_batches
from tuned_db.views import across

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx

from tests.tuned_db.service.service_runs import GENEROUS
from tuned_db.service.app import create_app
from tuned_db.service.together import Together


def test_who_asks_before_a_work_begins_shares_it() -> None:
    async def scene() -> list[int]:
        together: Together[str, int] = Together()
        begun, go = 0, asyncio.Event()

        async def work() -> int:
            nonlocal begun
            begun += 1
            mine = begun
            await go.wait()
            return mine

        first = [asyncio.create_task(together.ask("a", work)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [asyncio.create_task(together.ask("a", work)) for _ in range(3)]
        other = asyncio.create_task(together.ask("b", work))
        await asyncio.sleep(0)
        later[0].cancel()  # who leaves takes nothing from the others
        go.set()
        return await asyncio.gather(*first, *later[1:], other)

    assert asyncio.run(scene()) == [1, 1, 1, 3, 3, 2]


def test_what_fails_fails_for_all_who_share_it_and_not_for_the_next() -> None:
    async def scene() -> list[object]:
        together: Together[str, int] = Together()
        results = iter((ValueError("no"), 7))

        async def work() -> int:
            if isinstance(result := next(results), Exception):
                raise result
            return result

        both = [asyncio.create_task(together.ask("a", work)) for _ in range(2)]
        said: list[object] = list(await asyncio.gather(*both, return_exceptions=True))
        return [str(one) for one in said] + [await together.ask("a", work)]

    assert asyncio.run(scene()) == ["no", "no", 7]


def test_a_page_asked_for_after_a_write_has_it_though_an_older_one_is_being_made(
    shelf: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is held back after the database was read; then a record is written."""
    was_read, go, reads = threading.Event(), threading.Event(), 0
    list_problems = across.list_problems

    def slow(*asked: Any) -> Any:
        nonlocal reads
        found = list_problems(*asked)
        reads += 1
        was_read.set()
        assert go.wait(30)
        return found

    monkeypatch.setattr(across, "list_problems", slow)
    key = record().problem

    async def scene() -> list[bool]:
        transport = httpx.ASGITransport(create_app(shelf, GENEROUS))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as web:
            first = asyncio.create_task(web.get("/problems"))
            await asyncio.to_thread(was_read.wait, 30)
            await asyncio.to_thread(shelf.merge, [record()])
            later = [asyncio.create_task(web.get("/problems")) for _ in range(5)]
            for _ in range(100):  # until all of them wait
                await asyncio.sleep(0)
            go.set()
            return [key in (await one).text for one in (first, *later)]

    assert asyncio.run(scene()) == [False] + 5 * [True]
    assert reads == 2


def test_an_answer_depends_on_what_the_question_says_alone(shelf: Store) -> None:
    """A redirect names the host that was asked for: it is no other host's answer."""

    async def scene() -> list[str]:
        transport = httpx.ASGITransport(create_app(shelf, GENEROUS))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as web:
            asked = [web.get("/problems/", headers={"host": host}) for host in ("one", "two")]
            return [one.headers["location"] for one in await asyncio.gather(*asked)]

    assert asyncio.run(scene()) == ["http://one/problems", "http://two/problems"]


Loads = Sequence[Any]


def _at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: Any, *, are_equal: bool = False
) -> list[Any]:
    """Let eight threads merge a record each; the first to write waits until all others wait."""
    writes = 0

    def held(connection: Any, loads: Loads) -> Any:
        nonlocal writes
        writes += 1
        while writes == 1 and len(store._merging._waiting) < 7:
            time.sleep(0.001)
        return write(connection, loads)

    def bring(number: int) -> Any:
        one = record(GemmProblem(8 if are_equal else number, 8, 8))
        try:
            return store.merge([one], origin=f"push by {number}")
        except DatabaseError as error:
            return str(error)

    monkeypatch.setattr(merging, "_merge", held)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(bring, range(1, 9)))


def test_what_waits_for_a_transaction_is_written_in_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, merge = [], merging._merge

    def write(connection: Any, loads: Loads) -> Any:
        written.append(len(loads))
        return merge(connection, loads)

    merges = _at_once(store, monkeypatch, write)
    assert written == [1, 7]
    assert [one.improved for one in merges] == [1] * 8
    batches = {one.id: one for one in list_batches(store.database)}
    assert [batches[one.batch].origin for one in merges] == [f"push by {n}" for n in range(1, 9)]
    assert {one.records for one in batches.values()} == {1}
    assert len(store.all_winners()) == 8


def test_what_cannot_be_written_fails_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = merging._merge

    def write(connection: Any, loads: Loads) -> Any:
        made = merge(connection, loads)
        if any(one.origin == "push by 5" for one in loads):
            raise DatabaseError("no")
        return made

    merges = _at_once(store, monkeypatch, write)
    assert merges[4] == "no"
    assert {one.improved for one in merges if one != "no"} == {1}
    assert len(store.all_winners()) == len(list_batches(store.database)) == 7


def test_equal_records_that_meet_are_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    merges = _at_once(store, monkeypatch, merging._merge, are_equal=True)
    assert sum(one.improved for one in merges) == 1
    assert len(store.history()) == 1
    assert sum(one.records for one in list_batches(store.database)) == 1
