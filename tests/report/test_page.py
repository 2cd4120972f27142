# SPDX-License-Identifier: Apache-2.0
"""A report in a real browser: it draws, loads nothing, can be used by keys, in both themes and on a telephone."""

import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aicjax.report.html import picture, search_page
from tests.report import browser, pages

pytest.importorskip("plotly")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.launched(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "report.html"
    file.write_text(pages.text(model_path="maker/</script><b>model"), encoding="utf-8")
    return file


@pytest.fixture
def opened(chromium: Any, path: Path) -> Iterator[Open]:
    """Opens the page; in the end nothing may have been said on the console, thrown, or asked of another place."""
    contexts, said, asked = [], [], []

    def open_page(*, ready: str = "yes", script: str = "", **settings: Any) -> Any:
        context = chromium.new_context(offline=True, **settings)
        contexts.append(context)
        shown = context.new_page()
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: asked.append(request.url))
        if script:
            shown.add_init_script(script)
        shown.goto(path.as_uri())
        shown.wait_for_function(f"{browser.READY} === '{ready}'")
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert set(asked) <= {path.as_uri()}


def _point(shown: Any) -> None:
    """Puts the pointer on the answer of the chart of all configurations."""
    box = shown.locator("#front .scatterlayer .trace:last-of-type path.point").last.bounding_box()
    shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_every_chart_is_drawn_and_a_point_tells_its_configuration(opened: Open):
    shown = opened()
    shown.locator("details.more summary").first.click()
    for folded in shown.locator("details.more:not([open]) > summary").all():
        folded.click()
    shown.wait_for_function("[...document.querySelectorAll('.plot')].every((plot) => plot.dataset.drawn)")
    drawn = shown.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) => plot.querySelectorAll('.main-svg').length)"
    )
    assert len(drawn) >= 7
    assert min(drawn) >= 1
    shown.locator("#front .plot").scroll_into_view_if_needed()
    _point(shown)
    label = shown.locator("#front .hoverlayer")
    label.get_by_text("tokens/s/GPU").first.wait_for()
    assert "tp4, batch" in label.text_content()


def test_arrow_keys_read_points_aloud(opened: Open):
    shown = opened()
    shown.locator("#front .plot").focus()
    for key, told in (("ArrowRight", "disagg: "), ("ArrowDown", "agg: tp4, batch 40,"), ("ArrowRight", "batch 39,")):
        shown.keyboard.press(key)
        shown.wait_for_function("(told) => document.getElementById('said').textContent.includes(told)", arg=told)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_legible_and_the_button_changes_charts_too(scheme: str, opened: Open):
    shown = opened(color_scheme=scheme)
    assert shown.evaluate(browser.FAINT) == []
    before = shown.evaluate(browser.LOOK)
    shown.locator("#theme").click()
    shown.wait_for_function(f"({browser.LOOK})().every((now, at) => now !== {before}[at])")
    assert shown.evaluate(browser.FAINT) == []


def test_keys_reach_everything_in_order(opened: Open):
    shown = opened()
    stops = shown.evaluate(browser.FOCUSABLE)
    reached = []
    for _ in stops:
        shown.keyboard.press("Tab")
        reached.append(shown.evaluate("Number(document.activeElement.dataset.stop ?? -1)"))
        ring = "[getComputedStyle(document.activeElement).outlineStyle, document.activeElement.outerHTML.slice(0, 99)]"
        assert shown.evaluate(ring)[0] != "none", shown.evaluate(ring)
    assert reached == stops
    assert len(stops) > 30


def test_everything_has_a_name_and_tables_have_heads(opened: Open):
    shown = opened()
    assert shown.evaluate(browser.UNNAMED) == []
    assert shown.evaluate("[...document.querySelectorAll('thead th, tbody th')].every((head) => head.scope)")
    assert shown.evaluate("document.querySelectorAll('table:not(:has(caption))').length") == 0
    levels = shown.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((head) => Number(head.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_tables_sort_by_every_column(opened: Open):
    shown = opened()
    table = shown.locator("#picks table").last
    column = "(table) => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim())"
    head = table.locator("thead button").first
    assert table.evaluate(column) == ["1", "2"]
    head.click()
    assert table.evaluate(column) == ["2", "1"]
    assert table.locator("thead th").first.get_attribute("aria-sort") == "descending"
    head.press("Enter")
    assert table.evaluate(column) == ["1", "2"]


def test_a_telephone_needs_no_sideways_scrolling(opened: Open):
    shown = opened(viewport={"width": 390, "height": 844})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    widths = shown.evaluate("[...document.querySelectorAll('.plot')].map((plot) => plot.getBoundingClientRect().right)")
    assert max(widths) <= 390


def test_print_is_light_and_shows_no_buttons(opened: Open):
    shown = opened(color_scheme="dark")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert set(shown.evaluate("[...document.querySelectorAll('svg.main-svg')].map((svg) => svg.clientWidth)")) == {680}
    assert shown.evaluate(browser.FAINT) == []
    shown.emulate_media(media="print")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not shown.locator("header").is_visible()
    shown.emulate_media(media="screen")
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_the_manifest_is_saved(opened: Open):
    shown = opened(accept_downloads=True)
    with shown.expect_download() as saved:
        shown.locator("#save").click()
    assert saved.value.suggested_filename == "manifest.json"
    assert "maker/</script><b>model" in saved.value.path().read_text(encoding="utf-8")


def test_a_browser_that_cannot_unpack_the_library_shows_the_tables(opened: Open):
    shown = opened(ready="no", script="delete window.DecompressionStream")
    assert shown.locator("#front table").is_visible()
    assert "tables are unfolded" in shown.locator("#front .plot").text_content()


def test_a_picture_is_drawn_by_the_browser():
    browser.chromium()
    pytest.importorskip("kaleido")
    drawn = picture.png(search_page.page(pages.result()))
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (picture.WIDTH * picture.SCALE, picture.HEIGHT * picture.SCALE)
