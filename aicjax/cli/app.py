# SPDX-License-Identifier: Apache-2.0
"""The program `aicjax`: its commands, and one line with an exit code for every expected failure."""

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import aicjax
from aicjax._results import AicjaxError
from aicjax.cli import (
    calibrate,
    compat,
    db,
    deploy,
    device,
    estimate,
    exp,
    fleet,
    fleet_options,
    generate,
    measure,
    options,
    plan,
    query,
    recommend,
    refusals,
    report_file,
    search,
    support,
    sweep,
)

EXIT_INTERNAL = 70  # a defect of this program (EX_SOFTWARE)
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="aicjax",
    help="Predicts the serving performance of large language models on GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("search")(search.command)
app.command("default", hidden=True)(search.command)
app.command("recommend")(recommend.command)
app.command("plan")(plan.command)
app.command("exp")(exp.command)
app.command("sweep")(sweep.command)
app.command("estimate")(estimate.command)
app.add_typer(query.app, name="query")
app.add_typer(deploy.app, name="deploy")
app.command("generate")(generate.command)
app.command("calibrate")(calibrate.command)
app.add_typer(measure.app, name="measure")
app.command("support")(support.command)
app.command("compat", context_settings={"allow_extra_args": True})(compat.command)
app.add_typer(fleet.app, name="fleet")
app.add_typer(db.app, name="db")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aicjax {aicjax.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Predicts the serving performance of large language models on GPUs."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; every expected failure is one line on stderr.

    A leading `cli` is dropped and `default` is `search`, so that command lines of AIConfigurator work as they are.

    Args:
        arguments: What follows the program name.

    Returns:
        0 success, 2 bad input, 3 nothing meets the limits, 4 missing data, 70 a defect, 130 interrupted.
    """
    arguments = list(arguments[1:] if arguments[:1] == ["cli"] else arguments)
    debug = "--debug" in arguments
    arguments = options.joined([argument for argument in arguments if argument != "--debug"])
    device.prepare()
    report_file.COMMAND.set(shlex.join(["aicjax", *arguments]))
    try:
        if arguments[:1] == ["compat"] and arguments[1:] not in ([], ["--help"]):
            arguments = compat.announced(arguments[1:])
        if arguments[:1] == ["fleet"]:
            arguments = fleet_options.joined(arguments)
        else:
            arguments = refusals.without_effect(arguments)
            if arguments[:1] != ["deploy"]:
                refusals.check(arguments)
        code = typer.main.get_command(app).main(arguments, prog_name="aicjax", standalone_mode=False)
    except (AicjaxError, typer.TyperException) as error:
        return _fail(error, error.exit_code, debug)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split())
        return _fail(f"internal error, {type(error).__name__}: {message} (--debug shows where)", EXIT_INTERNAL, debug)
    return code if isinstance(code, int) else 0


def _fail(error: Exception | str, code: int, debug: bool) -> int:
    if debug and isinstance(error, Exception):
        raise error
    text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    print(f"aicjax: {' '.join(text.split())}", file=sys.stderr)
    return code
