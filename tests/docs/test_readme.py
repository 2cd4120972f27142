# SPDX-License-Identifier: Apache-2.0
"""The README shows what the program prints, repeats figures of the pages, and says the same in both languages."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from aicjax.cli.app import run
from tests.docs.pages import ROOT, command_lines, headings, links

README, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
DEMO = "aicjax search --model Qwen/Qwen3-32B-FP8 --system h200_sxm"
FIGURE = re.compile(r"(?<![\w.])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w]|\.\d)", re.ASCII)


def _code(page: Path) -> list[str]:
    """Lines of code: fenced or indented."""
    text = page.read_text(encoding="utf-8")
    fenced = "".join(re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return [*fenced.splitlines(), *re.findall(r"^    (.*)$", text, re.MULTILINE)]


def _tables(page: Path) -> list[str]:
    """Rows of tables."""
    return re.findall(r"^\|.*\|$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def printed() -> list[list[str]]:
    """Words of the lines that `make demo` prints."""
    (line,) = {line for line in command_lines(README, "aicjax") if line.startswith(DEMO)}
    recipe = re.sub(r" ?\\\n\s*", " ", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert line in re.sub(r"\$\(BIN\)/", "", recipe)
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setenv("COLUMNS", "200")
        assert run(line.split()[1:]) == 0
    return [text.split() for text in shown.getvalue().splitlines()]


def test_the_readme_shows_what_the_demo_prints(printed: list[list[str]]):
    code = [line.split() for line in _code(README)]
    shown = code[code.index(["Best:", "agg,", "439.66", "tokens/s/gpu"]) : code.index(["pip", "install", "."])]
    rest = iter(printed)
    for words in filter(None, shown):
        assert any(line[: len(words)] == words for line in rest), " ".join(words)


def test_figures_of_the_readme_stand_on_the_pages():
    pages = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("accuracy.md", "performance.md"))
    tables = [row for row in _tables(README) if FIGURE.search(row) and "`" not in row]
    figures = {figure for row in tables for figure in FIGURE.findall(row)}
    assert len(figures) > 20
    assert figures <= set(FIGURE.findall(pages))


def test_both_languages_have_the_same_parts():
    assert [level for level, _ in headings(README)] == [level for level, _ in headings(CHINESE)]
    assert _code(README) == _code(CHINESE)
    assert links(CHINESE) == ["README.md" if link == "README.zh.md" else link for link in links(README)]


def test_both_languages_have_the_same_tables():
    ours, theirs = _tables(README), _tables(CHINESE)
    assert len(ours) == len(theirs)
    for row, other in zip(ours, theirs, strict=True):
        assert FIGURE.findall(row) == FIGURE.findall(other)
        assert re.findall(r"`[^`]+`", row) == re.findall(r"`[^`]+`", other)


def test_both_languages_name_the_same_figures():
    ours, theirs = (sorted(FIGURE.findall(page.read_text(encoding="utf-8"))) for page in (README, CHINESE))
    assert ours == theirs
