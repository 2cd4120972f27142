# SPDX-License-Identifier: Apache-2.0
"""Pages as files: what is in them, that nothing breaks out, and what is written where a page cannot be."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicjax._results import InputError
from aicjax.report import result_text
from aicjax.report.html import front, page, palette, picture, search_page, write
from aicjax.report.html.figures import plain, short_layouts
from aicjax.report.html.parts import Page
from tests.report import pages, results
from tests.report.frames import agg_frame, disagg_frame

pytest.importorskip("plotly")

EVIL = "maker/</script><img src=x onerror=alert(1)>'\"&"
MOST_BYTES = 6_000_000
ELEMENT = re.compile(r'<script type="application/json" id="(\w+)">(.*?)</script>', re.DOTALL)


def _stored(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return {name: json.loads(content, parse_constant=refuse) for name, content in ELEMENT.findall(text)}


def _title(text: str) -> str:
    found = re.search(r"<h1[^>]*>(.*?)</h1>", text)
    assert found
    return found.group(1)


def test_a_page_says_what_to_deploy_and_how_to_repeat_it():
    text = pages.text()
    assert _title(text) == "Deploy 5 prefill workers of tp4 (batch 1) + 3 decode workers of tp4 (batch 64) on 32 GPUs"
    for part in ("Why this one", "How sure", "What next", "--deployment-target dynamo", "held back by the TPOT limit"):
        assert part.lower() in text.lower()
    assert _stored(text)["manifest"]["inputs"]["model_path"] == "maker/model"


def test_a_page_is_small_whole_and_always_the_same():
    text = pages.text()
    assert len(text.encode()) < MOST_BYTES
    assert text == pages.text()
    outside = re.sub(r'<script type="text/plain" id="library">.*?</script>', "", text, flags=re.DOTALL)
    assert "http://" not in outside
    assert "https://" not in outside
    assert not re.search(r'\b(?:src|href)="(?!#|data:,)', outside)


def test_every_kept_configuration_is_on_the_chart_and_absent_numbers_are_null():
    figures = {figure["name"]: figure for figure in _stored(pages.text())["figures"]}
    traces = figures["front"]["data"]
    clouds = [trace for trace in traces if trace["mode"] == "markers" and trace["marker"]["size"] == 5]
    assert sorted(len(trace["x"]) for trace in clouds) == [1, 40]
    told = next(trace["columns"] for trace in clouds if len(trace["x"]) == 40)
    assert any(column == [None if at % 10 == 0 else value for at, value in enumerate(column)] for column in told[:-1])
    assert {"front", "margin", "time-1", "roofline", "memory", "moves", "balance"} <= set(figures)


def test_more_configurations_than_a_page_takes_are_thinned_and_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(front, "MOST_POINTS", 20)  # of a page: ten of each experiment
    text = pages.text()
    assert "11 of 41 configurations are drawn" in text


def test_a_page_stays_small_however_many_configurations_were_kept():
    random = np.random.default_rng(0)
    shuffled = {  # no number twice
        name: column * random.uniform(0.5, 1.5, column.size) if column.dtype.kind == "f" else column
        for name, column in pages.cloud(front.MOST_POINTS + 1).items()
    }
    tasks = [results.task(name, agg_frame(16, 28), feasible=shuffled) for name in ("agg", "afd")]
    text = page.render(search_page.page(results.result(*tasks)))
    assert f"{front.MOST_POINTS:,} of " in text
    assert len(text.encode()) < MOST_BYTES


@pytest.mark.parametrize(
    ("prefill_per_s", "told"),
    [
        (9.26, "The prefill side waits 12% of its time."),
        (36.65 / 5 / 0.9, "Both sides are busy alike."),
    ],
)
def test_the_side_of_a_replica_that_waits_is_named(prefill_per_s: float, told: str):
    frame = {**disagg_frame(), "(p)seq/s/worker": np.array([prefill_per_s])}
    task = results.task("disagg", frame, resolved=results.RESOLVED)
    assert told in page.render(search_page.page(results.result(task)))


def test_text_of_users_breaks_nothing():
    text = pages.text(model_path=EVIL)
    assert "<img" not in text
    assert _stored(text)["manifest"]["inputs"]["model_path"] == EVIL


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_never_enters_a_page(value: float):
    with pytest.raises(ValueError, match="JSON"):
        page.embedded({"x": value})
    assert plain(np.array([1.0, value])) == [1.0, None]


def test_colours_of_charts_are_in_both_sets():
    text = pages.text()
    sets = palette.colours()
    assert sets["light"].keys() == sets["dark"].keys()
    assert set(re.findall(r'"(--[a-z0-9-]+)"', text)) <= sets["light"].keys()


def test_a_search_without_an_answer_says_why_and_what_is_nearest():
    failed = results.failed("agg", "agg: no configuration meets the limits. Binding: TTFT, limit 1 ms.")
    text = page.render(search_page.page(results.result(failed)))
    assert _title(text) == "No configuration keeps the limits"
    assert "Binding: TTFT, limit 1 ms" in text
    assert "What next" in text


def test_layouts_are_short():
    assert short_layouts("nearest tp8pp1dp1etp1ep1, batch 2") == "nearest tp8, batch 2"
    assert short_layouts("tp1pp1dp8etp1ep8") == "tp1 dp8 ep8"


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("report.pdf", ".html, .png or .txt"),
        ("report", ".html"),
        ("missing/report.html", "exists"),
        ("folder.html", "written"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before(name: str, allowed: str, tmp_path: Path):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match=re.escape(allowed)) as refusal:
        write.check(tmp_path / name)
    assert refusal.value.argument == "report"


def test_a_picture_without_a_browser_is_refused_with_the_way_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    chromium = pytest.importorskip("choreographer.browsers.chromium").Chromium
    monkeypatch.setattr(chromium, "find_browser", lambda **_: None)
    with pytest.raises(InputError, match="apt-get install chromium"):
        write.check(tmp_path / "report.png")


def test_a_picture_has_the_colours_and_the_title_of_its_page():
    shown = search_page.page(pages.result(model_path=EVIL))
    figure = picture.drawn(shown, shown.charts[0])
    assert "&lt;img" in figure["layout"]["title"]["text"]
    assert "--" not in json.dumps(figure)
    assert figure["layout"]["paper_bgcolor"] == palette.colours()["light"]["--paper"]


def _refused() -> Page:
    raise AssertionError("no page is made")


def test_without_plotly_the_report_is_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(page, "library", lambda: None)
    found = pages.result()
    written = write.write(
        tmp_path / "report.html", _refused, lambda to: result_text.print_result(found, to, explain=True)
    )
    assert written == tmp_path / "report.txt"
    assert not (tmp_path / "report.html").exists()
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install" in error
    text = written.read_text(encoding="utf-8")
    assert "Best: disagg" in text
    assert "for 1 % more of" in text
    assert "\x1b" not in text
