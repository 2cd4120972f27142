# SPDX-License-Identifier: Apache-2.0
"""Links lead to files and headings that exist, every page is in the navigation, every public name has its place."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import aicjax
import aicjax.fleet
from tests.docs.pages import PAGES, ROOT, anchors, links, name
from tests.test_layers import FLOORS

NAVIGATION = (ROOT / "docs" / "builder" / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r": ([\w/-]+\.md)$", NAVIGATION, re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize(("page", "package"), [("api.md", aicjax), ("api-fleet.md", aicjax.fleet)])
def test_public_names_are_on_their_page(page: str, package: ModuleType):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    listed = re.findall(rf"^::: {package.__name__}\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(public for public in dir(package) if public != "__version__")


def test_the_house_of_the_page_is_the_one_that_is_kept():
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    house = {int(floor): set(re.findall(r"`(\w+)/?`", rooms)) for floor, rooms in rows}
    assert house == {floor: set(rooms) for floor, rooms in enumerate(FLOORS[:-1])}  # the package itself is no floor
