"""What people look at: pages of rows, rates, effects, charts, comparisons and the report."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from math import nan
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, SQUARE, record, timed, variant
from tuned_db import DatabaseError, Store, open_store, write_records
from tuned_db.views import browse
from tuned_db.views.analysis import ENOUGH, best_over_trials, effects, grid, rate_of
from tuned_db.views.charts import LONGEST, Bars, Chart, Heat, Series, draw
from tuned_db.views.compare import compare, records_at
from tuned_db.views.report import sections, to_html

FAILED = Measurement(invalidity="timeout", reason="/home/somebody hangs")


def fill(store: Store) -> None:
    """A problem whose time depends on item_m alone, a failure, and a claim for another problem."""
    device = store.of(INFO)
    device.note_peak(1000.0, 100.0)
    for item_m in (1, 2, 4):
        for unroll_k in range(1, 7):
            one = variant(item_m=item_m, unroll_k=unroll_k)
            device.record(SQUARE, one, timed(8.0 / item_m))
    device.record(SQUARE, variant(item_m=8), FAILED)
    store.merge([record(GemmProblem(128, 64, 64))])


def test_devices_winners_and_trials_come_page_by_page(store: Store) -> None:
    fill(store)
    with store.database.reading() as connection:
        devices = browse.list_devices(connection)
        (summary,) = devices.items
        assert (summary.device, summary.winners, summary.tunings) == (INFO, 2, 2)
        assert (summary.trials, summary.peak_gflops) == (19 + 20, 1000.0)
        first = browse.list_winners(connection, browse.Filter(), limit=1)
        rest = browse.list_winners(connection, browse.Filter(), after=first.next or 0, limit=2)
        assert [one.record.verified for one in (*first.items, *rest.items)] == [True, False]
        assert rest.next is None
        trials = browse.list_trials(connection, first.items[0].id, limit=500).items
        assert [one.invalidity for one in trials] == ["none"] * 18 + ["timeout"]
        assert browse.find_winner(connection, 99) is None
        assert browse.find_device(connection, 99) is None


def test_a_rate_is_told_against_peak_and_bound() -> None:
    one = replace(record(GemmProblem(64, 64, 64), samples=(1.0,)), peak=(1.0, 0.01))
    rate = rate_of(one)
    assert rate is not None
    assert rate.flops == 2 * 64**3
    assert rate.gflops == pytest.approx(2 * 64**3 * 1e-6)
    assert rate.of_peak == pytest.approx(rate.gflops)
    intensity = rate.flops / (3 * 64 * 64 * 4)
    assert rate.of_bound == pytest.approx(rate.gflops / (0.01 * intensity))
    unknown = rate_of(record())
    assert unknown is not None
    assert unknown.of_peak is None
    assert rate_of(record("of another generator", generator="9")) is None


def test_the_best_so_far_steps_over_failures() -> None:
    assert best_over_trials([None, 3.0, 4.0, None, 2.0, 2.0]) == [(2, 3.0), (5, 2.0)]
    assert best_over_trials([]) == []


def test_the_parameter_that_matters_is_found() -> None:
    variants = [
        ("f", f'{{"a":{a},"b":{b},"same":1}}', 10.0 / a + 0.01 * b)
        for a in (1, 2, 16)
        for b in range(1, 7)
    ]
    first, second = effects([variants])
    assert (first.parameter, second.parameter) == ("a", "b")
    assert first.importance > 0.99
    assert second.importance < 0.01
    assert [value for value, _ in first.slowdowns] == ["1", "2", "16"]
    costs = dict(first.slowdowns)
    assert costs["16"] == pytest.approx(1.0)
    assert costs["1"] == pytest.approx(10.01 / 0.635)
    assert effects([variants[: ENOUGH - 1]]) == []


def test_noise_explains_nothing() -> None:
    """Twelve values among sixteen trials fit any times: by chance they explain 11/15 of them."""
    random = Random(7)
    found = effects(
        [("f", f'{{"a":{n % 12},"b":{n % 2}}}', random.uniform(1.0, 2.0)) for n in range(16)]
        for _ in range(40)
    )
    assert {one.parameter for one in found} == {"a", "b"}
    assert max(one.importance for one in found) < 0.2


def test_two_parameters_make_a_grid_of_what_was_tried() -> None:
    variants = [
        ("f", f'{{"a":{a},"b":{b}}}', float(a * b)) for a in (1, 2, 16) for b in range(1, 7)
    ]
    found = grid(variants[:-1], "f", "a", "b")
    assert found is not None
    assert (found.columns, found.rows[-1]) == (("1", "2", "16"), "6")
    slowdowns, counts = zip(*(cell for cell in found.cells[0] if cell), strict=True)
    assert slowdowns == pytest.approx((1.0, 2.0, 16.0))
    assert counts == (1, 1, 1)
    assert found.cells[-1][-1] is None
    assert grid(variants[: ENOUGH - 1], "f", "a", "b") is None
    assert grid(variants, "f", "a", "a") is None


texts = st.text(max_size=2 * LONGEST)
places = st.tuples(st.floats(), st.floats())
points = st.lists(places | st.tuples(st.floats(0, 1e15), st.floats(0, 1e15)), max_size=5)


@settings(max_examples=8, deadline=None)
@given(texts, points, st.booleans(), st.booleans())
@example("x", [(nan, 1.0)], False, False)
def test_any_chart_is_well_formed(
    text: str, found: list[tuple[float, float]], x: bool, y: bool
) -> None:
    series = (Series(text, tuple(found)), Series("s", tuple(found), style="steps"))
    for chart in (
        Chart("any", text, text, series, log_x=x, log_y=y),
        Bars("any", tuple((text, value) for value, _ in found), text),
        Heat("any", text, text, (text, "b"), ("c",), (tuple((x, text) for x, _ in found[:2]),)),
    ):
        root = ElementTree.fromstring(draw(chart))
        assert "any" in "".join(root.itertext())


def test_a_text_is_drawn_as_it_is_and_equal_charts_are_equal_files() -> None:
    """No markup of XML and none of mathematics; a report does not change without its numbers."""
    for text in ("<script>alert(1)</script>", "$x^2$ & $\\frac$", 'a"b'):
        chart = Chart(text, text, text, (Series(text, ((1.0, 2.0), (10.0, 3.0))), Series("s", ())))
        first = draw(chart)
        shown = [
            one.text for one in ElementTree.fromstring(first).iter() if one.tag.endswith("text")
        ]
        assert shown.count(text) == 4  # title, both axes, legend
        draw.cache_clear()
        assert draw(chart) == first


def test_charts_become_png() -> None:
    series = Series("s", ((1.0, 2.0), (10.0, 3.0)), style="steps")
    charts: tuple[Chart | Bars, ...] = (
        Chart("c", "x", "y", (series, replace(series, style="dots")), log_x=True),
        Bars("b", ()),
    )
    for chart in charts:
        assert draw(chart, "png").startswith(b"\x89PNG")


class Outside(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        asked = [value or "" for name, value in attrs if name in ("src", "href")]
        self.asked += [one for one in asked if not one.startswith("data:image/svg+xml;base64,")]
        assert tag not in ("script", "link", "iframe")


def test_the_report_is_whole_by_itself_and_tells_no_secrets(tmp_path: Path) -> None:
    store = open_store(tmp_path / "secret-name.sqlite")
    fill(store)
    untuned = GemmProblem(999, 9, 9).key()
    (section,) = sections(store, lambda _: [SQUARE.key(), untuned])
    assert section.untuned == [untuned]
    assert section.effects[0].parameter == "item_m"
    text = to_html([section])
    page = Outside()
    page.feed(text)
    assert page.asked == []
    assert text.count("<img") == 2
    assert untuned in text
    assert "unverified" in text
    assert "secret-name" not in text
    assert "somebody" not in text
    assert sections(store, lambda _: [], "no such device") == []
    assert "Nothing was tuned yet" in to_html([])


def test_without_matplotlib_a_report_has_its_tables_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "a.sqlite")
    fill(store)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = to_html(sections(store, lambda _: []))
    assert "pip install &#39;oclgen[report]&#39;" in text
    assert SQUARE.key() in text
    assert "<img" not in text


def test_two_sides_are_compared_problem_by_problem() -> None:
    left = [record(samples=(2.0,)), record(samples=(4.0,)), record(GemmProblem(1, 1, 1))]
    right = [record(samples=(1.0,)), record(GemmProblem(2, 2, 2))]
    found = compare(left, right)
    assert [pair.speedup for pair in found.pairs] == [2.0]
    assert found.speedup == pytest.approx(2.0)
    assert (len(found.only_left), len(found.only_right)) == (1, 1)
    assert compare([], right).speedup is None


def test_a_device_and_a_state_of_the_caches_are_compared_with_themselves() -> None:
    cpu, cold = replace(INFO, name="a CPU"), record(samples=(8.0,), cache="cold")
    left = [record(samples=(4.0,)), cold, record(device=cpu)]
    right = [record(samples=(2.0,), device=replace(INFO, driver_version="2")), cold]
    found = compare(left, right)
    assert sorted(pair.speedup for pair in found.pairs) == [1.0, 2.0]
    assert found.only_left == (record().problem,)
    across = compare([record(device=cpu, samples=(3.0,))], [record(samples=(1.0,))], across=True)
    assert [pair.speedup for pair in across.pairs] == [3.0]


def test_a_measured_time_comes_before_a_claim() -> None:
    claimed = record(samples=(0.001,), origin="import")
    (pair,) = compare([claimed, record(samples=(2.0,))], [record(samples=(1.0,))]).pairs
    assert (pair.left.verified, pair.speedup) == (True, 2.0)


def test_sides_are_files_or_databases_and_a_part_of_them(tmp_path: Path) -> None:
    newer = replace(INFO, driver_version="2.0")
    store = open_store(tmp_path / "a.sqlite")
    store.merge([record(), record(device=newer)])
    with (tmp_path / "a.jsonl").open("wb") as stream:
        write_records(store.all_winners(), stream)
    for name in ("a.sqlite", "a.jsonl"):
        where = str(tmp_path / name)
        assert len(records_at(where)) == 2
        with pytest.raises(DatabaseError, match=r"'GPU another' in name.*are: Imaginary GPU"):
            records_at(where, "GPU another")
        assert [one.device for one in records_at(where, "2.0")] == [newer]
    for missing in ("b.sqlite", "b.jsonl"):
        with pytest.raises(DatabaseError, match=missing):
            records_at(str(tmp_path / missing))
        assert not (tmp_path / missing).exists()


def test_nothing_comes_after_a_winner_that_is_not_there(tmp_path: Path) -> None:
    """It may have been dropped since the page before; a sorted page has no value to go on from."""
    store = open_store(tmp_path / "few.sqlite")
    store.merge([record()])
    with store.database.reading() as connection:
        for sort in ("ms", "-created"):
            page = browse.list_winners(connection, browse.Filter(), 59, 2, sort)
            assert (page.items, page.next) == ([], None)
