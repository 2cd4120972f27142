# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation, and what tests take from them: command lines, blocks of code, headings, links."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md"])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    """A page as tests call it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def command_lines(page: Path, program: str) -> Iterator[str]:
    """Command lines of a program: lines of code, continued ones joined, and code within a line of text.

    What stands two spaces or more behind a command line says what it does.
    """
    text = re.sub(r" ?\\\n +", " ", page.read_text(encoding="utf-8"))
    for line in re.findall(rf"^(?:    )?(?:\$ )?(?:\w+=\S+ )?({program} .*)$", text, re.MULTILINE):
        yield re.split(r" {2,}| #", line)[0]
    yield from re.findall(rf"`({program} [^`\n]+)`", text)


def headings(page: Path) -> list[tuple[int, str]]:
    """Level and text of the headings, code left out."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [(len(marks), title) for marks, title in re.findall(r"^(#+) (.+)$", text, re.MULTILINE)]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub and the site make them."""
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for _, title in headings(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def links(page: Path) -> list[str]:
    """Targets of the links that stay within the repository."""
    return re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8"))
