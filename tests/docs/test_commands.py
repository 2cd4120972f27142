# SPDX-License-Identifier: Apache-2.0
"""The pages name only commands, flags, targets and files that exist, and every command line on them is one."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from aicjax.cli import app, compat
from tests.docs.pages import PAGES, ROOT, command_lines, name

OTHER_FLAGS = {"--debug", "--help", "--no-deps"}  # of the program itself, and of pip
BENCHMARK_FLAGS = {
    flag
    for path in ROOT.glob("benchmarks/*.py")
    for flag in re.findall(r"add_argument\(\s*\"(--[a-z0-9-]+)\"", path.read_text(encoding="utf-8"))
}
ENGINE_FLAGS = {
    flag
    for path in ROOT.glob("configs/deploy/engines/*.yaml")
    for flag in re.findall(r": (--[a-z0-9-]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
}
COMPAT_FLAGS = {flag for command in compat.commands().values() for flag in command.fates}  # of AIConfigurator
PART = re.compile(r"\.\.\.|\b(DIR|FILE|SOURCE|NAME|MANIFEST|TARGET)\b|[<\[|]")  # a line that leaves something out
MADE = {  # by readers who add something
    "systems/h200_nvl.yaml",
    "aicjax/models/families/cohere.py",
    "aicjax/ops/sampler.py",
    "tests/ops/test_sampler.py",
}
FOLDERS = "aicjax|configs|systems|perfdb|tests|examples|benchmarks|docs"
UNFINISHED = re.compile(r"^aicjax: (Missing .*|.* requires an argument\.|No such command 'COMMAND'\.|)$")


def _flags(command: Any) -> set[str]:
    own = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
    return own.union(*(_flags(child) for child in getattr(command, "commands", {}).values()))


def _program() -> Any:
    """The program, with commands that read their arguments and then do nothing."""
    program: Any = typer.main.get_command(app.app)
    groups = [program]
    while groups:
        for command in groups.pop().commands.values():
            command.callback = None
            if hasattr(command, "commands"):
                groups.append(command)
    return program


PROGRAM = _program()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_flags_that_exist(page: Path):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", page.read_text(encoding="utf-8")))
    assert named <= _flags(PROGRAM) | OTHER_FLAGS | BENCHMARK_FLAGS | ENGINE_FLAGS | COMPAT_FLAGS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_command_lines_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(typer.main, "get_command", lambda _: PROGRAM)
    for line in command_lines(page, "aicjax"):
        words = [word for word in shlex.split(line.replace("[", "").replace("]", "")) if word != "..."][1:]
        code = app.run(words)
        said = capsys.readouterr().err
        if PART.search(line) or f"`{line}`" in page.read_text(encoding="utf-8"):  # it may leave out what is needed
            assert code == 0 or UNFINISHED.search(said), f"{line}: {said}"
        else:
            assert code == 0, f"{line}: {said}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_and_benchmarks_exist(page: Path):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {line.split()[1] for line in command_lines(page, "make") if "=" not in line.split()[1]} <= set(targets)
    modules = re.findall(r"python -m (benchmarks[.\w]*)", page.read_text(encoding="utf-8"))
    assert [module for module in modules if not _module(module)] == []


def _module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_pages_name_exist(page: Path):
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert [path for path in named if path not in MADE and not (ROOT / path).exists()] == []


def test_command_page_covers_the_search():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    flags = {flag for flag in _flags(PROGRAM.commands["search"]) if flag != "--help"}
    assert {flag for flag in flags if flag not in text} <= {"--target-request-rate"}


def test_the_command_page_has_every_command():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    shown = [command for command, about in PROGRAM.commands.items() if not about.hidden]
    assert [command for command in shown if f"\n## {command}\n" not in text] == []


def test_sections_of_the_command_page_name_flags_of_their_command():
    sections = re.split(r"^## ", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    seen = 0
    for section in sections:
        command = PROGRAM.commands.get(section.split("\n")[0])
        if command is None:
            continue
        cells = re.findall(r"^\| (`-[^|]*) \|", section, re.MULTILINE)
        named = {flag for cell in cells for flag in re.findall(r"--[a-z0-9-]+", cell)}
        seen += len(named)
        assert named <= _flags(command), section.split("\n")[0]
    assert seen > 50
