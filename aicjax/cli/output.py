# SPDX-License-Identifier: Apache-2.0
"""Running a search from the command line and showing its result in the form that was asked for."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicjax._results import InputError
from aicjax.cli import report_file, site_options
from aicjax.cli.deploy import check_target
from aicjax.cli.saving import check_layout, save_search

if TYPE_CHECKING:
    from aicjax.explore import SearchRequest


@dataclass(frozen=True)
class Output:
    """How a result is shown.

    Attributes:
        json: One JSON object in place of tables.
        quiet: One line, the best configuration.
        no_color: No colour.
        explain: Whether to say which assumptions move the rows.
        interval: Whether to give the ranges of figures.
        save_dir: Where result files go; None writes none.
        target: What deployment files are written for beside them; None writes none.
        report: Where a report goes; None writes none.
        save_layout: Whether they have their names in AIConfigurator too: `default` or `reference`.
        site: What the user's cluster is called and has, for deployment files.
    """

    json: bool
    quiet: bool
    no_color: bool
    explain: bool
    interval: bool
    save_dir: Path | None
    target: str | None = None
    report: Path | None = None
    save_layout: str = "default"
    site: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where result files go."""
        assert self.save_dir is not None
        return self.save_dir

    def at(self, site: Mapping[str, str]) -> "Output":
        """The same where the cluster has what is stated, unless a flag said otherwise."""
        merged = {**site, **self.site}
        if self.target is not None:
            _check_site(merged)
        return dataclasses.replace(self, site=merged)

    @classmethod
    def take(cls, given: dict[str, Any]) -> "Output":
        """Takes the output flags out of the given flags; what stays is the request."""
        flags = {name: given.pop(name, False) for name in ("json", "quiet", "no_color", "explain")}
        interval, save_dir = not given.pop("no_interval", False), given.pop("save_dir", None)
        target = given.pop("deployment_target", None)
        if target is not None:
            check_target(target, save_dir)
        report = report_file.taken(given)
        layout, site = given.pop("save_layout", "default"), site_options.taken(given)
        check_layout(layout)
        _check_site(site)
        if site and target is None:
            name, value = next(iter(site.items()))
            raise InputError(name, value, "given together with --deployment-target")
        return cls(
            **flags, interval=interval, save_dir=save_dir, target=target, report=report, save_layout=layout, site=site
        )


def _check_site(site: Mapping[str, str]) -> None:
    from aicjax.deploy.names import check_names

    check_names(None, site)


def present(request: "SearchRequest", output: Output, *, for_load: bool = False) -> None:
    """Runs the search or the recommendation of a request and shows its result.

    Args:
        request: What to search.
        output: How it is shown.
        for_load: Whether its load target decides on the GPUs, of which its budget is then the most.

    Raises:
        NoFeasible: No configuration meets the limits; raised after the nearest ones are shown.
    """
    from aicjax.explore import recommend, search
    from aicjax.report import result_json, result_text, summary
    from aicjax.report.console import stdout_console
    from aicjax.report.progress import shown_when_slow

    with shown_when_slow(f"searching {request.model_path} on {request.system}"):
        result = recommend(request) if for_load else search(request)
    error = summary.failure(result)
    if output.json:
        print(
            json.dumps(
                result_json.as_dict(result, explain=output.explain, interval=output.interval), indent=2, allow_nan=False
            )
        )
    elif output.quiet:
        if error is None:
            print(summary.headline(result))
    elif result.winner is not None:
        console = stdout_console(plain=output.no_color)
        result_text.print_result(result, console, explain=output.explain, interval=output.interval)
    saved_in = None if output.save_dir is None else save_search(result, output)
    if output.report is not None:
        from aicjax.report.html import search_page

        report_file.write_report(
            output.report,
            lambda: search_page.page(result, command=report_file.COMMAND.get(), saved_in=saved_in),
            lambda console: result_text.print_result(result, console, explain=True),
        )
    if error is not None:
        raise error
