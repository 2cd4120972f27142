# SPDX-License-Identifier: Apache-2.0
"""The page of a search or a recommendation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aicjax.explore import frame as frames
from aicjax.explore.request import EstimateRequest, SearchRequest
from aicjax.explore.result import SearchResult
from aicjax.report import manifest, phrases, sensitivity, summary
from aicjax.report.html import answer, balance, front, inputs, margin, memory, moves, palette, steps, tops
from aicjax.report.html.commands import again, deploying
from aicjax.report.html.parts import Page, Panel
from aicjax.report.html.shown import Shown

SOURCES = {
    "SILICON": "from measured tables",
    "HYBRID": "from measured tables, and estimates where they miss",
    "EMPIRICAL": "from estimates alone",
    "SOL": "from rooflines alone",
}


def page(result: SearchResult, *, command: str | None = None, saved_in: Path | None = None) -> Page:
    """The page.

    Args:
        result: The result.
        command: The command line that ran; None where it was asked for in Python.
        saved_in: The folder that `--save-dir` wrote; None without.
    """
    shown = of_search(result)
    found = margin.margins(shown)
    head = answer.head(result, found)
    content = manifest.of_result(result)
    request = result.request
    source = f"{SOURCES[request.database_mode]}{phrases.following(request)}"
    return Page(
        title=head.title,
        kicker=f"{summary.question(result)[0]}; {summary.workload(request)}; {source}",
        lead=head.lead,
        tone=head.tone,
        tiles=head.tiles,
        reasons=head.reasons,
        commands=deploying(result, command, saved_in),
        panels=[*panels(result, shown, found), rests_on(result, content, command)],
        saved=content,
        picture="front",
    )


def of_search(result: SearchResult) -> list[Shown]:
    """The experiments of a search with their top lists, the winner first."""
    shown = [
        Shown(
            name, task, result.request, summary.top_rows(task, result.request, interval=True), palette.series(position)
        )
        for position, (name, task) in enumerate(result.tasks.items())
        if frames.length(task.feasible) or frames.length(task.best)
    ]
    return sorted(shown, key=lambda each: each.name != result.chosen)


def panels(result: SearchResult, shown: Sequence[Shown], found: Sequence[margin.Margin]) -> list[Panel]:
    """All panels but that of the inputs."""
    errors = {name: str(error).removeprefix(f"{name}: ") for name, error in result.errors.items()}
    won = answered(result)
    known = [front.panel(shown, won), tops.panel(shown, errors, won)]
    return [*(panel for panel in known if panel is not None), *behind(result, shown, found)]


def answered(result: SearchResult) -> str | None:
    """The experiment whose first row is the answer; None where that misses the limits."""
    return result.chosen if result.winner is not None and result.winner.meets_target else None


def behind(result: SearchResult, shown: Sequence[Shown], found: Sequence[margin.Margin]) -> list[Panel]:
    """The panels of what lies behind the answer."""
    explained = [(each, each.task.explain(0)) for each in shown if each.task.explain is not None and each.rows]
    named = [(f"{each.name}, row 1", explanation.steps) for each, explanation in explained]
    winner = result.winner
    sensitivities = None if winner is None or winner.sensitivities is None else winner.sensitivities(0)
    known = [
        margin.panel(found, shown, answered(result)),
        steps.time_panel(named),
        steps.roofline_panel(named[0]) if named else None,
        memory.panel([(each.name, explanation.memory) for each, explanation in explained]),
        *(balance.panel(each) for each in shown),
        moves.panel(sensitivities, sensitivity.LEAST),
    ]
    return [panel for panel in known if panel is not None]


def rests_on(result: SearchResult, content: Mapping[str, Any], command: str | None) -> Panel:
    """The panel of the inputs of a search, by its manifest."""
    left_out = [(name, refusal) for name, task in result.by_backend.items() for refusal in task.refused]
    repeated = again(command, "search", result.request.model_dump(exclude_defaults=True))
    return inputs.panel(content, stated(result.request), refused=left_out, again=repeated)


def stated(request: SearchRequest | EstimateRequest) -> dict[str, Any]:
    """Inputs of a request that are not the defaults."""
    defaults = {name: of.default for name, of in type(request).model_fields.items()}
    values: Mapping[str, Any] = request.model_dump(mode="json")
    return {name: value for name, value in values.items() if value != defaults.get(name)}
