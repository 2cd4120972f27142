# SPDX-License-Identifier: Apache-2.0
"""The pages name only flags and commands that exist, link only to files that exist, and leave no flag of search out."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from aicjax.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
OTHER_FLAGS = {"--debug", "--help", "--no-deps"}  # of the program itself, and of pip
BENCHMARK_FLAGS = {
    flag
    for path in ROOT.glob("benchmarks/*.py")
    for flag in re.findall(r"add_argument\(\s*\"(--[a-z0-9-]+)\"", path.read_text())
}
ENGINE_FLAGS = {
    flag
    for path in ROOT.glob("configs/deploy/engines/*.yaml")
    for flag in re.findall(r": (--[a-z0-9-]+)$", path.read_text(), re.MULTILINE)
}


def _flags(command: Any) -> set[str]:
    own = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
    return own.union(*(_flags(child) for child in getattr(command, "commands", {}).values()))


PROGRAM: Any = typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_flags_that_exist(page: Path):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", page.read_text()))
    assert named <= _flags(PROGRAM) | OTHER_FLAGS | BENCHMARK_FLAGS | ENGINE_FLAGS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_commands_that_exist(page: Path):
    named = set(re.findall(r"(?:`|^    (?:\w+=\S+ )?)aicjax ([a-z]+)", page.read_text(), re.MULTILINE))
    assert named <= {*PROGRAM.commands, "cli"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_command_page_covers_the_search():
    text = (ROOT / "docs" / "cli.md").read_text()
    flags = {name for name in _flags(PROGRAM.commands["search"]) if name != "--help"}
    assert {flag for flag in flags if flag not in text} <= {"--target-request-rate"}
