# SPDX-License-Identifier: Apache-2.0
"""The commands of a page: files that start the answer, and the run once more."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicjax.explore.result import SearchResult
from aicjax.report.html.parts import Command

TARGET = "dynamo"
NOT_DEPLOYED = ("afd",)  # serving modes without deployment files
WIDTH = 100


def deploying(result: SearchResult, command: str | None, saved_in: Path | None) -> list[Command]:
    """What writes the files of the answer; nothing where there is none, or it was asked for in Python.

    Args:
        result: The result.
        command: The command line that ran; None where it was asked for in Python.
        saved_in: The folder that `--save-dir` wrote; None without.
    """
    winner = result.winner
    if winner is None or not winner.meets_target or winner.serving_mode in NOT_DEPLOYED:
        return []
    if saved_in is not None:
        row = f"--experiment {shlex.quote(winner.name)} --row 1"
        files = f"aicjax deploy --from {shlex.quote(str(saved_in))} {row} --target {TARGET}"
    elif command is not None:
        files = f"{command} --save-dir runs --deployment-target {TARGET}"
    else:
        return []
    return [Command("Write the files that start it", folded(files))]


def again(command: str | None, function: str, fields: Mapping[str, Any]) -> Command:
    """What runs the same once more.

    Args:
        command: The command line that ran; None where it was asked for in Python.
        function: The public function that answers.
        fields: What it is given.
    """
    if command is not None:
        return Command("Run this again", folded(command))
    return Command("Run this again in Python", in_python(function, fields))


def in_python(function: str, fields: Mapping[str, Any]) -> str:
    """The call of a public function."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"import aicjax\n\naicjax.{function}({arguments})"


def folded(command: str) -> str:
    """A command on lines of at most `WIDTH` characters where it can be broken before a flag."""
    lines = [""]
    for part in command.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) >= WIDTH:
            lines[-1] += " \\"
            lines.append("  " + part)
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return "\n".join(lines)
