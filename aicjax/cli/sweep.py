# SPDX-License-Identifier: Apache-2.0
"""`aicjax sweep`: every point of the cross product of many axes."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from aicjax._results import NoFeasible
from aicjax.cli import options, report_file
from aicjax.cli.flags import flag, switch

_HOSTS = "Devices and hosts"


def command(
    spec: Annotated[Path, Argument(metavar="SPEC.yaml", help="The axes, and what is kept: see docs/sweeps.md.")],
    changes: Annotated[
        list[str] | None,
        Option("--set", metavar="FIELD=VALUE", help="Another value of a field, in YAML; may be repeated."),
    ] = None,
    top_k: Annotated[int | None, flag("--top-k", default="as the file", text="Points that each list keeps.")] = None,
    out: Annotated[
        Path | None,
        flag(
            "--out",
            metavar="DIR",
            text="Write the result there, and the log from which the same command goes on if it is interrupted.",
        ),
    ] = None,
    rows: Annotated[
        bool, switch("--rows", panel="Output", text="Write every point, too: parquet files in the rows of --out.")
    ] = False,
    devices: Annotated[
        int | None, flag("--devices", panel=_HOSTS, default="all", text="Devices of this host to use.")
    ] = None,
    coordinator: Annotated[
        str | None,
        flag(
            "--coordinator", panel=_HOSTS, metavar="HOST:PORT", text="Address of host 0, where several share a sweep."
        ),
    ] = None,
    num_hosts: Annotated[int, flag("--num-hosts", panel=_HOSTS, default="1", text="Hosts that share the sweep.")] = 1,
    host_id: Annotated[int, flag("--host-id", panel=_HOSTS, default="0", text="Number of this host, from 0.")] = 0,
    report: report_file.Report = None,
    json: options.Json = False,
    quiet: Annotated[bool, switch("--quiet", panel="Output", text="Print one line: the best point.")] = False,
    no_color: options.NoColor = False,
) -> None:
    """Evaluate every point of a cross product of models, systems, engines, workloads, layouts, batches and budgets.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data, 130 interrupted.
    """
    report_file.taken({"report": report})
    from aicjax.sweeps.spec import load_spec, parse_changes

    fields = parse_changes(changes or ()) | ({} if top_k is None else {"top_k": top_k})
    chosen = load_spec(spec, fields)

    from aicjax.report import sweep_save, sweep_text
    from aicjax.report.console import stdout_console
    from aicjax.report.sweep_progress import SweepProgress
    from aicjax.sweeps.run import sweep

    with SweepProgress() as progress:
        result = sweep(
            chosen,
            out=out,
            rows=rows,
            devices=devices,
            coordinator=coordinator,
            num_hosts=num_hosts,
            host_id=host_id,
            progress=progress,
            notify=lambda text: print(f"aicjax: {text}", file=sys.stderr),
        )
    if host_id == 0:
        if json:
            print(sweep_save.as_text(result))
        elif not quiet:
            rate = None if progress.last is None else progress.last.points_per_s
            sweep_text.print_sweep(result, stdout_console(plain=no_color), points_per_s=rate)
        elif result.found:
            print(sweep_text.headline(result))
        if out is not None:
            sweep_save.save_sweep(result, out)
            print(f"saved in {out}", file=sys.stderr)
        if report is not None:
            from aicjax.report.html import sweep_page

            report_file.write_report(
                report,
                lambda: sweep_page.page(result, command=report_file.COMMAND.get()),
                lambda console: sweep_text.print_sweep(result, console),
            )
    if not result.complete:
        raise KeyboardInterrupt
    if not result.found:
        raise NoFeasible(sweep_text.nothing_found(result))
