# SPDX-License-Identifier: Apache-2.0
"""Experiments as pages show them, and all the rows that they kept."""

from collections.abc import Sequence
from typing import NamedTuple

from aicjax.explore import frame as frames
from aicjax.explore.frame import Frame
from aicjax.explore.pick import over_budget
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import TaskResult
from aicjax.report.rows import Row


class Shown(NamedTuple):
    """An experiment.

    Attributes:
        name: Its name.
        task: The experiment.
        request: What it was asked.
        rows: Its top list.
        colour: Its colour on all charts.
    """

    name: str
    task: TaskResult
    request: SearchRequest
    rows: Sequence[Row]
    colour: str


def kept_rows(task: TaskResult, request: SearchRequest) -> Frame:
    """All rows that an experiment kept, with the throughput of the budget."""
    if not frames.length(task.feasible):
        return {}
    if request.total_gpus is None:
        return frames.with_cluster(task.feasible, task.feasible["tokens/s/gpu"])
    return over_budget(task.feasible, request.total_gpus)
