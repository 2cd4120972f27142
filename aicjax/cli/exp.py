# SPDX-License-Identifier: Apache-2.0
"""`aicjax exp`: the searches of an experiment file, compared."""

import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import options, report_file, site_options
from aicjax.cli import search_options as groups
from aicjax.cli.flags import flag, switch, takes
from aicjax.cli.output import Output
from aicjax.cli.saving import save_file


class _Searches:
    """What all searches share."""

    attention_backend: options.AttentionBackend
    compat: options.CompatName
    inclusive_tpot: Annotated[
        bool, switch("--inclusive-tpot", panel="Output", text="Report TPOT with the first token counted in.")
    ]


@takes(_Searches, groups.Output, site_options.Site, without=("explain", "no_interval"))
def command(
    ctx: Context,
    yaml_path: Annotated[
        Path | None, flag("--yaml-path", metavar="FILE", text="YAML file: names of experiments and what each searches.")
    ] = None,
) -> None:
    """Run the experiments of a file and compare them: several models, systems, engines or workloads in one table.

    Exit codes: 0 found, 2 bad input, 3 nothing meets its limits, 4 no measured data.
    """
    given = options.given(ctx)
    output = Output.take(given)
    if yaml_path is None:
        raise InputError("yaml_path", None, "given")
    del given["yaml_path"]

    from aicjax.explore import run_experiments
    from aicjax.report import comparison
    from aicjax.report.console import stdout_console
    from aicjax.report.progress import shown_when_slow

    with shown_when_slow(f"searching the experiments of {yaml_path}"):
        result = run_experiments(yaml_path, **given)
    for name, reason in result.experiments.skipped.items():
        print(f"aicjax: experiment {name} is skipped: {reason}", file=sys.stderr)
    meets = result.chosen is not None and result.tasks[result.chosen].meets_target
    if output.json:
        print(json_text.dumps(comparison.as_dict(result), indent=2, allow_nan=False))
    elif output.quiet:
        if meets:
            print(comparison.headline(result))
    else:
        comparison.print_experiments(result, stdout_console(plain=output.no_color))
    if output.report is not None:
        from aicjax.report.html import experiments_page

        report_file.write_report(
            output.report,
            lambda: experiments_page.page(result, command=report_file.COMMAND.get()),
            lambda console: comparison.print_experiments(result, console),
        )
    if output.save_dir is not None:
        save_file(result, output)
    result.require()
