# SPDX-License-Identifier: Apache-2.0
"""A search result on a terminal: the answer, the fronts, the top lists."""

from rich.console import Console

from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.result import SearchResult, TaskResult
from aicjax.report import grid_gain, pareto, ranges, sensitivity, summary
from aicjax.report.console import print_lines
from aicjax.report.pareto import Curve
from aicjax.report.table import print_top

PLOT_HEIGHT = 14
PLOT_MAX_WIDTH = 100


def print_result(result: SearchResult, console: Console, *, explain: bool = False, interval: bool = True) -> None:
    """Prints what was asked, the answer with its reasons, the Pareto fronts and the top list of every experiment.

    Args:
        result: The result.
        console: Where to.
        explain: Whether to say which assumptions move the answer.
        interval: Whether to print the ranges of figures, where the constants in force have them.
    """
    print_lines(console, [*summary.question(result), "", *summary.answer(result)])
    winner = result.winner
    tables = {
        name: summary.top_rows(task, result.request, interval=interval)
        for name, task in result.tasks.items()
        if frames.length(task.best)
    }
    if result.chosen in tables:
        print_lines(console, ranges.lines(tables[result.chosen][0].ranges))
    if winner is not None and winner.explain is not None:
        print_lines(console, [*summary.reasons(winner.explain(0)), *summary.corrections(winner)])
    print_lines(console, grid_gain.lines(result))
    if explain and winner is not None:
        moves = winner.sensitivities
        print_lines(console, (f"  {line}" for line in sensitivity.lines(None if moves is None else moves(0))))
    print_lines(console, ["", *fronts(result, min(console.width, PLOT_MAX_WIDTH)), ""])
    for name, rows in tables.items():
        task = result.tasks[name]
        print_top(console, title(task, result), rows, with_backend=task.backend == "auto")
    reasons = {name: str(error).removeprefix(f"{name}: ") for name, error in result.errors.items()}
    print_lines(console, (f"{name}, no configuration: {reason}" for name, reason in reasons.items()))


def fronts(result: SearchResult, width: int) -> list[str]:
    """The Pareto fronts of all experiments and the chosen row, as lines of text."""
    request = result.request
    by_latency = request.request_latency is not None or request.osl == 1
    x_name = "request_latency" if by_latency else "tokens/s/user"
    target = request.request_latency if by_latency else 1000 / request.tpot
    markers = _markers(list(result.tasks))
    curves = [
        Curve(name, markers[name], task.pareto[x_name], task.pareto[CLUSTER])
        for name, task in result.tasks.items()
        if frames.length(task.pareto)
    ]
    if result.winner is not None:
        best = result.winner.best
        curves.append(Curve("chosen", "X", best[x_name][:1], best[CLUSTER][:1], joined=False))
    x_label = "request latency ms" if by_latency else x_name
    return pareto.plot(
        curves, width=width, height=PLOT_HEIGHT, x_label=x_label, y_label="tokens/s/gpu", x_target=target
    )


def _markers(names: list[str]) -> dict[str, str]:
    """One character per experiment: its first letter where those differ, else a digit."""
    initials = [name[0] for name in names]
    if len(set(initials)) == len(names):
        return dict(zip(names, initials, strict=True))
    return {name: str(number) for number, name in enumerate(names, start=1)}


def title(task: TaskResult, result: SearchResult) -> str:
    """The line above a top list."""
    order = "by fewest GPUs" if summary.budget(result.request) is None else "by tokens/s/gpu"
    return f"{task.name}, {order}" if task.meets_target else f"{task.name}: misses the limit, nearest first"
