# SPDX-License-Identifier: Apache-2.0
"""The page of the experiments of a file, compared."""

from aicjax._names import counted
from aicjax.explore.comparison import ExperimentsResult
from aicjax.report import comparison, manifest, phrases
from aicjax.report.html import answer, front, margin, palette, search_page, tops
from aicjax.report.html.parts import Cell, Column, Page, Panel, Table, number


def page(result: ExperimentsResult, *, command: str | None = None) -> Page:
    """The page: all experiments beside each other, then what lies behind the best.

    Args:
        result: The result.
        command: The command line that ran; None where it was asked for in Python.
    """
    shown = [each for search in result.results.values() for each in search_page.of_search(search)]
    shown = sorted(shown, key=lambda each: each.name != result.chosen)
    shown = [each._replace(colour=palette.series(position)) for position, each in enumerate(shown)]
    title, tone, lead, tiles, reasons = "No experiment has a configuration", "bad", [], [], []
    won = result.chosen if result.chosen is not None and result.tasks[result.chosen].meets_target else None
    panels: list[Panel | None] = [_beside(result), front.panel(shown, won)]
    errors = {name: str(error).removeprefix(f"{name}: ") for name, error in result.errors.items()}
    content = {}
    if result.chosen is not None:
        chosen = result.results[result.chosen]
        own = [each for each in shown if each.name == result.chosen]
        head = answer.head(chosen, margin.margins(own))
        title, tone, lead, tiles = f"{result.chosen}: {head.title}", head.tone, head.lead, head.tiles
        reasons = list(head.reasons)
        panels += [tops.panel(shown, errors, won), *search_page.behind(chosen, shown, margin.margins(shown))]
        content = manifest.of_result(chosen)
        panels.append(search_page.rests_on(chosen, content, command))
    else:
        reasons = [("Why", [f"{name}: {reason}" for name, reason in errors.items()])]
    return Page(
        title=title,
        kicker=f"{counted(len(result.results) + len(result.failures), 'experiment')} of {result.experiments.source}",
        lead=lead,
        tone=tone,
        tiles=tiles,
        reasons=reasons,
        commands=[],
        panels=[panel for panel in panels if panel is not None],
        saved=content or None,
        picture="front",
    )


def _beside(result: ExperimentsResult) -> Panel | None:
    """The best row of every experiment."""
    best = comparison.best_rows(result)
    if not best:
        return None
    most = next(iter(best.values())).tokens_per_s_per_gpu
    rows = [
        [
            Cell(name),
            Cell(f"{row.replicas} x ({phrases.composition(row.workers)}), {row.backend}"),
            number(row.tokens_per_s_per_gpu),
            number(row.tokens_per_s_per_gpu / most, ".0%"),
            number(row.tokens_per_s_per_user),
            number(row.ttft_ms, ",.1f"),
            number(row.tpot_ms),
            number(row.gpus, "d"),
            Cell("yes" if result.tasks[name].meets_target else "no"),
        ]
        for name, row in best.items()
    ]
    columns = [Column("experiment", False), Column("deployment", False)]
    columns += map(Column, ("tokens/s/GPU", "of the best", "tokens/s/user", "TTFT, ms", "TPOT, ms", "GPUs"))
    marked = list(best).index(result.chosen) if result.chosen in best else None
    table = Table("The best of each", [*columns, Column("keeps its limits", False)], rows, marked)
    return Panel("compared", "The experiments beside each other", [table], short="Compared")
