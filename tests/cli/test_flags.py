# SPDX-License-Identifier: Apache-2.0
from typing import Annotated, Any

import pytest
import typer
from typer import Context

from aicjax.cli.flags import flag, switch, takes


class _Lengths:
    isl: Annotated[str | None, flag("--isl", text="Prompt tokens.")]
    osl: Annotated[str | None, flag("--osl", text="Output tokens.")]
    brief: Annotated[bool, switch("--brief", text="One line.")]


class _Own:
    rate: Annotated[str | None, flag("--rate", text="Requests per second.")]
    isl: Annotated[str | None, flag("--prompt", default="7", text="Another statement.")]


def _main(*groups: type, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    @takes(*groups, **options)
    def command(ctx: Context, file: Annotated[str, typer.Argument()]) -> int:
        """What it does."""
        seen.append({"own": file, **ctx.params})
        return 3

    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app), seen


def test_command_has_its_own_parameters_then_the_groups():
    command, seen = _main(_Lengths, _Own)
    assert [name for param in command.params for name in param.opts] == [
        "file",
        "--prompt",
        "--osl",
        "--brief",
        "--rate",
    ]
    assert command.help == "What it does."
    assert command.main(["a", "--osl", "5"], standalone_mode=False) == 3
    assert seen == [{"own": "a", "file": "a", "isl": None, "osl": "5", "brief": False, "rate": None}]


def test_a_later_statement_takes_the_place_of_an_earlier_one():
    (_, first, *_), (*_, last) = _main(_Lengths, _Own)[0].params, _main(_Own, _Lengths)[0].params
    assert (first.opts, first.show_default, last.opts) == (["--prompt"], "7", ["--brief"])
    assert [param.opts for param in _main(_Own, _Lengths)[0].params][1:3] == [["--rate"], ["--isl"]]


def test_flags_left_out_are_refused():
    command, _ = _main(_Lengths, without=("osl",))
    with pytest.raises(typer.TyperException, match="No such option: --osl"):
        command.main(["a", "--osl", "5"], standalone_mode=False)


def test_leaving_out_what_no_group_has_is_an_error():
    with pytest.raises(KeyError, match="ttft"):
        takes(_Lengths, without=("ttft",))
