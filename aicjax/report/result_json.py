# SPDX-License-Identifier: Apache-2.0
"""A search result as one JSON object."""

import dataclasses
from typing import Any

from aicjax.explore import frame as frames
from aicjax.explore.result import SearchResult, StepTimes, TaskResult
from aicjax.report import grid_gain, manifest, sensitivity, summary
from aicjax.report.rows import reported


def as_dict(result: SearchResult, *, explain: bool = False, interval: bool = True) -> dict[str, Any]:
    """The result as plain Python values: the manifest of the run, and every experiment with its rows.

    A row has its place and the figures of the printed table, `columns` as in the CSV file, and `explanation`: memory,
    what limits it, and the next larger batch with the reason against it. With `explain`, `sensitivities` too; with
    `interval`, `ranges` of its figures where the constants in force have them.
    """
    return {
        **manifest.of_result(result),
        "grid_gain": grid_gain.as_dict(result.grid_gain),
        "experiments": {name: _experiment(task, result, explain, interval) for name, task in result.tasks.items()},
        "errors": {name: str(error) for name, error in result.errors.items()},
    }


def _experiment(task: TaskResult, result: SearchResult, explain: bool, interval: bool) -> dict[str, Any]:
    inclusive = result.request.inclusive_tpot
    columns = list(frames.rows(reported(task.best, inclusive_tpot=inclusive)))
    rows = summary.top_rows(task, result.request, interval=interval)
    return {
        "serving_mode": task.serving_mode,
        "backend": task.backend,
        "version": task.version,
        "meets_target": task.meets_target,
        "shortfall": dataclasses.asdict(task.shortfall) if task.shortfall is not None else None,
        "score": task.score,
        "evaluated": task.evaluated,
        "grid_gain": grid_gain.as_dict(task.grid_gain),
        "refused": [dataclasses.asdict(refusal) for refusal in task.refused],
        "rows": [
            {**dataclasses.asdict(row), "columns": record, "explanation": _explanation(task, position)}
            | (_sensitivities(task, position) if explain else {})
            for position, (row, record) in enumerate(zip(rows, columns, strict=True))
        ],
        "pareto": list(frames.rows(reported(task.pareto, inclusive_tpot=inclusive))),
    }


def _explanation(task: TaskResult, position: int) -> dict[str, Any] | None:
    if task.explain is None:
        return None
    explanation = task.explain(position)
    return {**dataclasses.asdict(explanation), "steps": [step_dict(step) for step in explanation.steps]}


def _sensitivities(task: TaskResult, position: int) -> dict[str, Any]:
    moves = task.sensitivities
    return {"sensitivities": sensitivity.as_dicts(None if moves is None else moves(position))}


def step_dict(step: StepTimes) -> dict[str, Any]:
    """One engine step as plain Python values: its operators, their times and how those were obtained."""
    operators = zip(step.names, step.latency_ms, step.provenance, strict=True)
    return {
        "step": step.step,
        "latency_ms": step.total_ms,
        "operators": [
            {"name": name, "latency_ms": latency_ms, "provenance": code.name.lower()}
            for name, latency_ms, code in operators
        ],
    }
