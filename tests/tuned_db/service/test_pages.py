"""Pages and API beyond one list: orders, filters, two sides, reasons of failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tuned_db.tuned_samples import FAMILY, INFO, SQUARE, record, timed, variant

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from oclgen.measurement import Measurement
from oclgen.problem import ConvProblem, GemmProblem
from tests.tuned_db.service.service_runs import GENEROUS
from tuned_db import Store
from tuned_db.service.app import create_app
from tuned_db.views import across, browse
from tuned_db.views.failures import LONGEST, list_failures, shown

CONV = ConvProblem(1, 4, 8, 8, 4, 3, 3, direction="bwd_data")
NEWER = replace(INFO, driver_version="2.0")


def web_of(store: Store) -> TestClient:
    return TestClient(create_app(store, GENEROUS))


def fill(store: Store) -> None:
    """Six winners on a device: products of either dtype, a gradient, one claimed, one cold."""
    mine = store.of(INFO)
    for size, ms, dtype in ((64, 3.0, "fp32"), (128, 1.0, "bf16"), (256, 3.0, "bf16")):
        mine.record(GemmProblem(size, 64, 64, dtype), variant(), timed(ms))
    store.merge([record(CONV, samples=(2.0,)), record(samples=(9.5,), cache="cold")])
    store.merge([record(samples=(1.5,), device=NEWER, trials=7)])


@pytest.mark.parametrize(
    ("sort", "times"),
    [("ms", [1.0, 2.0, 3.0, 3.0, 9.5]), ("-ms", [9.5, 3.0, 3.0, 2.0, 1.0])],
)
def test_sorted_pages_follow_each_other_and_miss_nothing(
    store: Store, sort: str, times: list[float]
) -> None:
    fill(store)
    found, after = [], 0
    while True:
        with store.database.reading() as connection:
            page = browse.list_winners(connection, browse.Filter(1), after, 2, sort)
        found += [one.record.ms for one in page.items]
        if page.next is None:
            break
        after = page.next
    assert found == times
    with store.database.reading() as connection:
        gone = browse.list_winners(connection, browse.Filter(1), 999, 2, sort)
    assert (gone.items, gone.next) == ([], None)


@pytest.mark.parametrize(
    ("query", "times"),
    [
        ("dtype=bf16", [1.0, 3.0]),
        ("direction=bwd_data", [2.0]),
        ("source=claimed&cache=warm", [1.5, 2.0]),
        ("source=here", [1.0, 3.0, 3.0]),
        ("cache=cold", [9.5]),
        (f"problem={SQUARE.key()}", [1.5, 3.0, 9.5]),
    ],
)
def test_winners_are_narrowed_by_all_that_a_page_offers(
    shelf: Store, query: str, times: list[float]
) -> None:
    fill(shelf)
    answer = web_of(shelf).get(f"/api/v1/winners?sort=ms&{query}")
    assert [one["ms"] for one in answer.json()["items"]] == times


def test_a_list_of_winners_is_counted_sorted_and_narrowed(shelf: Store) -> None:
    fill(shelf)
    web = web_of(shelf)
    text = web.get("/devices/1?dtype=bf16&sort=-ms").text
    assert "2 winners, sorted by ms" in text
    assert text.index("GEMM 256") < text.index("GEMM 128")
    assert 'aria-sort="descending"' in text
    assert "dtype=bf16&amp;sort=ms" in text
    assert web.get("/?text=imaginary+gpu").text.count("/devices/") == 2
    assert "No device fits" in web.get("/?kind=cpu").text


def test_a_problem_is_shown_on_every_device_and_driver(shelf: Store) -> None:
    fill(shelf)
    web = web_of(shelf)
    problems = web.get("/problems?dtype=fp32&op=gemm").text
    assert (problems.count("<tr><td>"), "/problem?key=gemm%3A64x64x64" in problems) == (1, True)
    text = web.get("/problem", params={"key": SQUARE.key()}).text
    times = [text.index(f'<td class="number">{ms}</td>') for ms in ("1.5", "3", "9.5")]
    assert times == sorted(times)
    assert "2.0</td>" in text
    assert "claimed, few trials</td>" in text


def test_the_best_of_two_devices_stand_side_by_side(store: Store) -> None:
    fill(store)
    older = record(samples=(0.5,), generator="0", device=NEWER)
    store.merge([older, record(CONV, samples=(8.0,), trials=1, device=NEWER)])
    with store.database.reading() as connection:
        left, right = (one.id for one in browse.list_devices(connection).items)
        found, is_part = across.pairs(connection, left, right, browse.Filter(), 10)
        gemms, _ = across.pairs(connection, left, right, browse.Filter(op="gemm"), 10)
        assert across.pairs(connection, left, right, browse.Filter(), 1) == (found[1:], True)
        assert across.pairs(connection, right, 99, browse.Filter(), 1) == ([], True)
    assert not is_part
    assert [(one.problem, one.speedup) for one in found] == [
        (SQUARE.key(), 6.0),
        (CONV.key(), 0.25),
    ]
    assert gemms == found[:1]
    assert across.mean_speedup(found) == pytest.approx(1.5**0.5)
    assert [one.is_sure for one in found] == [False, False]


def test_a_mean_is_told_of_what_was_tried_enough(shelf: Store) -> None:
    shelf.merge([record(samples=(4.0,)), record(CONV, samples=(1.0,), trials=2)])
    shelf.merge([record(device=NEWER, samples=(2.0,)), record(CONV, device=NEWER)])
    text = " ".join(web_of(shelf).get("/compare?left=1&right=2").text.split())
    assert "2 problems are known of both" in text
    assert "On 1 of them, with 8 trials or more" in text
    assert "is 2 times as fast" in text
    assert text.count("(few trials)") == 1


REASON = "/home/somebody/kernels/x.cl:7: error: C:\\Users\\somebody\\a b.h, see ~john/doe.d/notes"


def test_failures_say_why_and_name_no_folder(shelf: Store) -> None:
    device = shelf.of(INFO)
    device.record(SQUARE, variant(item_m=1), timed(1.0))
    for item_m in (2, 4):
        failure = Measurement(invalidity="compile", reason=REASON)
        device.record(SQUARE, variant(item_m=item_m), failure)
    device.record(SQUARE, variant(item_m=8), Measurement(invalidity="timeout", reason="5 s"))
    with shelf.database.reading() as connection:
        found = list_failures(connection, device=1)
    assert [(one.family, one.invalidity, one.count) for one in found] == [
        (FAMILY, "compile", 2),
        (FAMILY, "timeout", 1),
    ]
    web = web_of(shelf)
    trials = web.get("/api/v1/winners/1/trials").text
    for text in (web.get("/devices/1/failures").text, web.get("/tunings/1").text, trials):
        assert "x.cl:7: error" in text
        assert "somebody" not in text
        assert "john" not in text


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("relative L2 error 2.00e-01, allowed 1e-05", None),
        ("/tmp/john.doe: no room", "…: no room"),
        ("in file ../john/y.cl(3)", "in file y.cl(3)"),
        ("  two\n lines ", "two lines"),
        ("x" * 999, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_of_a_path_its_file_is_left(reason: str, said: str | None) -> None:
    assert shown(reason) == (said or reason)


def test_two_variants_are_told_apart(shelf: Store) -> None:
    mine = shelf.of(INFO)
    mine.record(SQUARE, variant(item_m=1), timed(1.0))
    failure = Measurement(invalidity="compile", reason="no <b>room</b>")
    mine.record(SQUARE, variant(item_m=2), failure)
    text = web_of(shelf).get("/diff?left=1&right=2").text
    rows = [part.partition("</tr>")[0] for part in text.split('<tr class="')[1:]]
    marked = [one.split('row">')[1].partition("<")[0] for one in rows if one.startswith("differs")]
    assert marked[0] == "item_m"
    assert {"ms", "outcome", "reason", "kernels' digest"} <= {
        one.replace("&#39;", "'") for one in marked
    }
    assert "<b>room" not in text


def test_peaks_by_dtype_travel_and_are_shown(shelf: Store) -> None:
    product = GemmProblem(64, 64, 64, "bf16")
    claim: Any = {"peak": (100.0, 10.0), "peaks": {"bf16": 800.0, "fp16": 700.0}}
    shelf.merge([record(product, **claim)])
    shelf.of(INFO).note_peak(90.0, 9.0, {"bf16": 900.0})
    web = web_of(shelf)
    (device,) = web.get("/api/v1/devices").json()["items"]
    assert device["peaks"] == {"bf16": 900.0, "fp16": 700.0}
    (winner,) = web.get("/api/v1/winners").json()["items"]
    assert winner["of_peak"] == pytest.approx(winner["gflops"] / 900.0)
    assert "fp32 90, bf16 900, fp16 700" in web.get("/devices/1").text
    assert shelf.all_winners()[0].peaks == {"bf16": 900.0, "fp16": 700.0}
