# SPDX-License-Identifier: Apache-2.0
"""A search result as one JSON object."""

import dataclasses
from typing import Any

from aicjax.explore import frame as frames
from aicjax.explore.result import SearchResult, StepTimes, TaskResult
from aicjax.report import manifest, summary
from aicjax.report.rows import reported


def as_dict(result: SearchResult) -> dict[str, Any]:
    """The result as plain Python values: the manifest of the run, and every experiment with its rows.

    A row has its place and the figures of the printed table, `columns` as in the CSV file, and `explanation`: memory,
    what limits it, and the next larger batch with the reason against it.
    """
    return {
        **manifest.of_result(result),
        "experiments": {name: _experiment(task, result) for name, task in result.tasks.items()},
        "errors": {name: str(error) for name, error in result.errors.items()},
    }


def _experiment(task: TaskResult, result: SearchResult) -> dict[str, Any]:
    inclusive = result.request.inclusive_tpot
    columns = list(frames.rows(reported(task.best, inclusive_tpot=inclusive)))
    rows = summary.top_rows(task, result.request)
    return {
        "serving_mode": task.serving_mode,
        "backend": task.backend,
        "version": task.version,
        "meets_target": task.meets_target,
        "shortfall": dataclasses.asdict(task.shortfall) if task.shortfall is not None else None,
        "score": task.score,
        "evaluated": task.evaluated,
        "refused": [dataclasses.asdict(refusal) for refusal in task.refused],
        "rows": [
            {**dataclasses.asdict(row), "columns": record, "explanation": _explanation(task, position)}
            for position, (row, record) in enumerate(zip(rows, columns, strict=True))
        ],
        "pareto": list(frames.rows(reported(task.pareto, inclusive_tpot=inclusive))),
    }


def _explanation(task: TaskResult, position: int) -> dict[str, Any] | None:
    if task.explain is None:
        return None
    explanation = task.explain(position)
    return {**dataclasses.asdict(explanation), "steps": [step_dict(step) for step in explanation.steps]}


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
