# SPDX-License-Identifier: Apache-2.0
"""`aicjax deploy`: files that start the configuration of a result row, and checks of such files."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Context

from aicjax._names import one_of
from aicjax._results import AicjaxError, InputError
from aicjax.cli import requests, site_options
from aicjax.cli.flags import flag

if TYPE_CHECKING:
    from aicjax.explore import SearchRequest

_REQUESTED = "dynamo"  # target of a request file, which is a resource of Dynamo

app = typer.Typer(no_args_is_help=True, invoke_without_command=True)


@app.callback()
def command(
    ctx: Context,
    run: Annotated[Path | None, flag("--from", metavar="DIR", text="Folder that search --save-dir wrote.")] = None,
    request: Annotated[
        Path | None, flag("--request", metavar="FILE", text="DynamoGraphDeploymentRequest: its search runs first.")
    ] = None,
    target: Annotated[
        str | None,
        flag(
            "--target",
            metavar="NAMES",
            default="dynamo with --request",
            text="What to write for, as of search --deployment-target.",
        ),
    ] = None,
    experiment: Annotated[
        str | None, flag("--experiment", metavar="NAME", default="the best", text="Such as agg or disagg.")
    ] = None,
    row: Annotated[int, flag("--row", default="1", text="Row of its top list, from 1.")] = 1,
    rules: Annotated[
        str,
        flag("--rules", metavar="production|benchmark", default="production", text="For real traffic, or to measure."),
    ] = "production",
    name: Annotated[str | None, flag("--name", metavar="NAME", text="Name of the deployment.")] = None,
    namespace: site_options.Namespace = None,
    image: site_options.Image = None,
    secret: site_options.Secret = None,
    model_cache: site_options.ModelCache = None,
    system: Annotated[
        str | None, flag("--system", metavar="NAME", default="the file's", text="GPU system (--request).")
    ] = None,
    total_gpus: Annotated[
        str | None, flag("--total-gpus", default="the file's", text="GPU budget (--request).")
    ] = None,
    save_dir: Annotated[
        Path | None,
        flag("--save-dir", metavar="DIR", default="in the run's folder, beside FILE", text="Where the files go."),
    ] = None,
) -> None:
    """Write the files that start a row of a saved search, or of the search that a request file asks for.

    Exit codes: 0 written, 2 bad input or a failed check, 3 nothing meets the limits, 4 no measured data; but for 0
    nothing is written.
    """
    if ctx.invoked_subcommand is not None:
        return
    if (run is None) == (request is None):
        raise InputError("from", None if run is None else str(run), "given, or --request, and not both")
    from aicjax.deploy.names import check_names

    site = {"namespace": namespace, "image": image, "secret": secret, "model_cache": model_cache}
    if request is not None:
        flags = {"system": system, "total_gpus": total_gpus}
        asked = requests.read(request, {name: value for name, value in flags.items() if value is not None})
        target, name = target or _REQUESTED, name or asked.name
        check_target(target, request)
        site |= {fact: value for fact, value in asked.site.items() if site[fact] is None}
        check_names(name, site)
        record, inputs = _searched(asked.search, experiment, row)
        folder = request.parent / (name or request.stem)
    else:
        for flag_name, value in (("system", system), ("total_gpus", total_gpus)):
            if value is not None:
                raise InputError(flag_name, value, "absent with --from: the saved search has it")
        if target is None:
            raise InputError("target", None, "given")
        assert run is not None
        check_names(name, site)
        from aicjax.report.saved import read_row

        chosen, record, inputs = read_row(run, experiment, row)
        folder = run / chosen / f"top{row}"

    from aicjax.deploy.build import build
    from aicjax.deploy.record import Site
    from aicjax.deploy.render import render
    from aicjax.deploy.write import write_all

    deployment = build(record, inputs, rules=rules, name=name, site=Site(**site))
    named = targets_in(target)
    folders = [(save_dir or folder) / each for each in named]
    if save_dir is not None and len(named) == 1:
        folders = [save_dir]
    write_all({goes_to: render(deployment, each) for goes_to, each in zip(folders, named, strict=True)})
    for goes_to in folders:
        print(goes_to)


@app.command("check")
def check(
    directory: Annotated[Path, Argument(metavar="DIR", help="Folder with generated files.")],
    as_json: Annotated[bool, flag("--json", text="One JSON object in place of lines.")] = False,
) -> int:
    """Check every deployment in a folder.

    Exit codes: 0 all pass, 2 a check fails.
    """
    from aicjax.deploy.write import check_directory

    found = check_directory(directory)
    if as_json:
        each = [{"folder": name, "passed": not problems, "problems": problems} for name, problems in found.items()]
        print(json.dumps({"passed": not any(found.values()), "deployments": each}, indent=2))
    else:
        for folder, problems in found.items():
            print(f"{folder}: {'; '.join(problems) or 'passes every check'}")
    return 2 if any(found.values()) else 0


def targets_in(target: str) -> list[str]:
    """The targets of a list with commas, each once."""
    return list(dict.fromkeys(name.strip() for name in target.split(",")))


def check_target(target: str, save_dir: Path | None) -> None:
    """Refuses a target, or a list of them with commas, before anything is computed.

    Raises:
        InputError: No such target, or nowhere to write to.
    """
    from aicjax.deploy.targets import TARGETS

    for name in targets_in(target):
        if name not in TARGETS:
            raise InputError("deployment_target", name, one_of(name, TARGETS))
    if save_dir is None:
        raise InputError("deployment_target", target, "given together with --save-dir")


def write_rows(
    tables: Mapping[str, list[dict[str, Any]]],
    inputs: Mapping[str, Any],
    targets: Sequence[str],
    run: Path,
    **site: str,
) -> None:
    """Writes the files of all rows; a row that is refused is named on stderr, once for each reason.

    Args:
        tables: Rows of the top lists, by experiment.
        inputs: The request.
        targets: What to write for.
        run: The run's folder.
        site: What the user's cluster is called and has, as fields of `aicjax.deploy.record.Site`.

    Raises:
        AicjaxError: All rows are refused for a target; the others are written.
    """
    from aicjax.deploy.build import build
    from aicjax.deploy.record import Site
    from aicjax.deploy.render import render
    from aicjax.deploy.write import write

    first: dict[str, AicjaxError] = {}
    written = set()
    for experiment, records in tables.items():
        for rank, record in enumerate(records, start=1):
            reasons: dict[str, None] = {}
            for target in targets:
                try:
                    deployment = build(record, inputs, site=Site(**site))
                    write(render(deployment, target), run / experiment / f"top{rank}" / target)
                    written.add(target)
                except AicjaxError as refusal:
                    first.setdefault(target, refusal)
                    reasons[str(refusal)] = None
            for reason in reasons:
                print(f"not deployed: {experiment}, row {rank}: {reason}", file=sys.stderr)
    for target, refusal in first.items():
        if target not in written:
            raise refusal


def _searched(search: "SearchRequest", experiment: str | None, rank: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of the search that a request file asks for, and the request; the headline is printed."""
    from aicjax import explore
    from aicjax.report import ranges, summary
    from aicjax.report.progress import shown_when_slow

    with shown_when_slow(f"searching {search.model_path} on {search.system}"):
        result = explore.recommend(search) if search.has_load_target else explore.search(search)
    result.require()
    chosen = experiment or str(result.chosen)
    if chosen not in result.tasks:
        raise InputError("experiment", chosen, one_of(chosen, result.tasks))
    rows = ranges.rows_with_ranges(result.tasks[chosen], search)
    if not 1 <= rank <= len(rows):
        raise InputError("row", rank, f"from 1 to {len(rows)}")
    print(summary.headline(result))
    return rows[rank - 1], result.inputs
