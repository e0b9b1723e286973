"""The page in a real browser: what people see, and that nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oclgen.measurement import Measurement
from oclgen.problem import GemmProblem
from tests.tuned_db.tuned_samples import INFO, record, timed, variant
from tuned_db import open_store

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api")

from tests.tuned_db.service.service_runs import Served, serving

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MARKUP = "<script>document.title='broken'</script>"
playwright.expect.set_options(timeout=30_000)  # ms, as pages have: other tests load the processors


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of this machine; the test skips where there is none."""
    found = os.environ.get("BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser here; install one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with sixty problems, one of them with a history, and a device named by markup."""
    store = open_store(tmp_path_factory.mktemp("browser") / "served.sqlite")
    device = store.of(INFO)
    device.note_peak(1000.0, 100.0)
    square = GemmProblem(512, 512, 512)
    for item_m, ms in ((1, 4.0), (2, 2.0), (4, 1.0), (8, 3.0)):
        for unroll_k in (1, 2, 3, 4):
            one = variant(item_m=item_m, unroll_k=unroll_k)
            device.record(square, one, timed(ms + 0.01 * unroll_k))
    failure = Measurement(invalidity="compile", reason="/home/somebody/x.cl: error")
    device.record(square, variant(item_m=16), failure)
    store.merge([record(GemmProblem(size, 64, 64)) for size in range(1, 60)])
    store.merge([record(device=replace(INFO, name=MARKUP))])
    with serving(store) as running:
        yield running


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    """A page whose every request and complaint is held against it at the end."""
    complaints: list[str] = []
    asked: list[str] = []
    one = browser.new_page()
    one.on("console", lambda message: complaints.append(message.text))
    one.on("pageerror", lambda error: complaints.append(str(error)))
    one.on("request", lambda request: asked.append(request.url))
    yield one
    one.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(served.url)] == []


def expect(page: Any, selector: str) -> Any:
    """Return assertions that wait: a click returns while the next page is still being read."""
    return playwright.expect(page.locator(selector), selector)


def shown(page: Any, name: str) -> str:
    """Return the text of a chart that the page shows, once it is drawn; it has an alternative."""
    image = page.locator(f"img[src*='{name}']")
    image.evaluate("one => one.decode()")  # fails where the drawing is broken or withheld
    assert image.evaluate("one => one.naturalWidth") > 500
    assert image.get_attribute("alt")
    answer = page.request.get(image.evaluate("one => one.src"))
    return str(answer.text())


def test_from_the_devices_to_a_history(page: Any, served: Served) -> None:
    page.goto(served.url)
    expect(page, "h1").to_have_text("Devices")
    expect(page, "#devices tr").to_have_count(3)
    page.click(f"text={INFO.name}")
    expect(page, "h1").to_have_text(INFO.name)
    assert "fp32: roof of 1000 GFLOP/s, 100 GB/s" in shown(page, "roofline.svg")
    page.click("#winners >> text=GEMM 512 x 512 x 512")
    expect(page, "img").to_have_count(3)
    assert "best so far" in shown(page, "progress.svg")
    assert "gemm_register.item_m" in shown(page, "parameters.svg")
    assert "times longer (trials)" in shown(page, "heat.svg")
    expect(page, "#config").to_contain_text('"item_m":4')
    expect(page, "#history tr td:nth-child(5)").to_have_text(["timed"] * 16 + ["compile"])
    assert "somebody" not in page.content()


def test_pages_and_filters(page: Any, served: Served) -> None:
    page.goto(f"{served.url}/devices/1")
    expect(page, "#winners tr").to_have_count(51)
    page.click("#next")
    expect(page, "#winners tr").to_have_count(11)
    page.goto(f"{served.url}/devices/1")
    page.fill("input[name=text]", "gemm:7x")
    page.click("button")
    expect(page, "#winners tr").to_have_count(2)
    assert page.input_value("input[name=text]") == "gemm:7x"
    expect(page, "#winners tr:nth-child(2) td:last-child").to_have_text("claimed")
    page.select_option("select[name=op]", "conv")
    page.click("button")
    expect(page, "#winners tr").to_have_count(1)


def test_markup_in_a_name_is_shown_and_not_run(page: Any, served: Served) -> None:
    page.goto(served.url)
    page.click(f"text={MARKUP}")
    expect(page, "h1").to_have_text(MARKUP)
    playwright.expect(page).to_have_title(re.compile("^<script>"))


def test_a_chart_opened_by_itself_has_its_colours(page: Any, served: Served) -> None:
    """What a page may load does not hold for it: its styles stand inside, and scripts may not."""
    page.goto(f"{served.url}/devices/1/roofline.svg")
    grey = page.evaluate("getComputedStyle(document.querySelector('text')).fill")
    assert grey == "rgb(128, 128, 128)"


PAGES = (
    "/",
    "/devices/1",
    "/devices/1/failures",
    "/tunings/1",
    "/problems",
    f"/problem?key={GemmProblem(512, 512, 512).key()}",
    "/compare?left=1&right=1",
    "/diff?left=1&right=2",
)


@pytest.mark.parametrize("path", PAGES)
def test_pages_fit_a_telephone_and_a_dark_room(page: Any, served: Served, path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{served.url}{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page, "main").to_have_count(1)
    back, ink = page.evaluate(
        "['backgroundColor', 'color'].map(one => getComputedStyle(document.body)[one])"
    )
    dark, light = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (back, ink))
    assert (dark < 200, light > 500) == (True, True)


def test_the_style_is_applied(page: Any, served: Served, tmp_path: Path) -> None:
    page.goto(f"{served.url}/devices/1")
    assert page.evaluate("getComputedStyle(document.querySelector('table')).borderCollapse") == (
        "collapse"
    )
    narrow = page.evaluate("document.querySelector('img').getBoundingClientRect().width")
    page.set_viewport_size({"width": 320, "height": 600})
    assert page.evaluate("document.querySelector('img').getBoundingClientRect().width") < narrow
