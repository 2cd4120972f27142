# SPDX-License-Identifier: Apache-2.0
"""An installed Chromium for tests of pages, and the scripts that look at a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
READY = "document.documentElement.dataset.ready"

# Text whose contrast with what is behind it is below 4.5, as `text: contrast`.
FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const over = (top, under) => top.length < 4 || top[3] === 1 ? top
    : top.slice(0, 3).map((c, at) => c * top[3] + under[at] * (1 - top[3]));
  const behind = (node) => {
    if (node === null) return [255, 255, 255];
    const own = parse(getComputedStyle(node).backgroundColor);
    return own.length === 4 && own[3] < 1 ? over(own, behind(node.parentElement)) : own;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, holder = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE"].includes(holder.tagName)) continue;
    const box = holder.getBoundingClientRect(), style = getComputedStyle(holder);
    if (!box.width || style.visibility === "hidden" || holder.closest(".unseen, [aria-hidden]")) continue;
    const inDrawing = holder.closest("svg") !== null;
    const ground = behind(inDrawing ? holder.closest(".plot") : holder);
    const colour = over(parse(inDrawing ? style.fill : style.color), ground);
    const [a, b] = [light(colour), light(ground)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`${node.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""

# What cannot be named by assistive technology.
UNNAMED = """() => [...document.querySelectorAll("button, a[href], img, [role], nav, summary, table")]
  .filter((each) => each.getAttribute("role") !== "status")
  .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.getAttribute("alt")))
  .map((each) => each.outerHTML.slice(0, 80))"""

# What takes the focus, in the order of the page.
FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility({ contentVisibilityAuto: true }))
  .map((each, at) => { each.dataset.stop = at; return at; })"""

# Colours of the page and of all its charts.
LOOK = """() => [
  getComputedStyle(document.body).backgroundColor,
  ...[...document.querySelectorAll(".plot .xtick text")].map((each) => getComputedStyle(each).fill),
]"""


def chromium() -> str:
    """The path of an installed browser; skips the tests that need one where there is none."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("no Chromium on PATH (apt-get install chromium)")
    return found


@contextmanager
def launched(folder: Path) -> Iterator:
    """A headless browser with a profile of its own, offline."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS), downloads_path=folder)
        yield browser
        browser.close()
