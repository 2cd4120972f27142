# SPDX-License-Identifier: Apache-2.0
"""The experiments of a file beside each other: on a terminal, in one line, and as one JSON object."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import aicjax
from aicjax.explore import frame as frames
from aicjax.explore.comparison import ExperimentsResult
from aicjax.report import manifest, phrases, result_json, summary
from aicjax.report.console import print_lines
from aicjax.report.result_text import title
from aicjax.report.rows import Row
from aicjax.report.table import optional, print_top

_COLUMNS = ("experiment", "tok/s/gpu", "of best", "tok/s/user", "TTFT ms", "TPOT ms", "GPUs", "deployment")
_LEFT = ("experiment", "deployment")


def print_experiments(result: ExperimentsResult, console: Console) -> None:
    """Prints the top list of every experiment, then the best of each beside the others."""
    for name, search in result.results.items():
        print_lines(console, [f"{name}: {line}" for line in summary.question(search)] + [""])
        task = search.tasks[name]
        if frames.length(task.best):
            print_top(console, title(task, search), summary.top_rows(task, search.request))
    if best := best_rows(result):
        console.print(_beside(result, best))
    print_lines(console, (f"{name}, no configuration: {error}" for name, error in result.errors.items()))


def best_rows(result: ExperimentsResult) -> dict[str, Row]:
    """The first row of every experiment that has one, best first."""
    scored = [task for task in result.tasks.values() if task.score > 0]
    order = sorted(scored, key=lambda task: (task.meets_target, task.score), reverse=True)
    return {task.name: summary.top_rows(task, result.results[task.name].request)[0] for task in order}


def headline(result: ExperimentsResult) -> str:
    """The best configuration of all in one line; only for a result that has one."""
    assert result.chosen is not None
    return summary.headline(result.results[result.chosen])


def as_dict(result: ExperimentsResult) -> dict[str, Any]:
    """The result as plain Python values: every experiment as a search of its own, and which is best."""
    return {
        "format": manifest.FORMAT,
        "aicjax": aicjax.__version__,
        "source": result.experiments.source,
        "chosen": result.chosen,
        "experiments": {name: result_json.as_dict(search) for name, search in result.results.items()},
        "errors": {name: str(error) for name, error in result.errors.items()},
        "skipped": dict(result.experiments.skipped),
    }


def _beside(result: ExperimentsResult, best: dict[str, Row]) -> Table:
    table = Table(
        title="best of each", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for header in _COLUMNS:
        table.add_column(header, justify="left" if header in _LEFT else "right", no_wrap=True)
    most = next(iter(best.values())).tokens_per_s_per_gpu
    for name, row in best.items():
        meets = result.tasks[name].meets_target
        deployment = f"{row.replicas} x ({phrases.composition(row.workers)}), {row.backend}"
        table.add_row(
            name,
            f"{row.tokens_per_s_per_gpu:.2f}",
            f"{row.tokens_per_s_per_gpu / most:.0%}",
            optional(row.tokens_per_s_per_user, ".2f"),
            f"{row.ttft_ms:.1f}",
            optional(row.tpot_ms, ".2f"),
            str(row.gpus),
            deployment if meets else f"{deployment}, misses its limits",
            style="bold" if name == result.chosen else None,
        )
    return table
