# SPDX-License-Identifier: Apache-2.0
"""Several searches run one after the other and compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicjax._results import AicjaxError, NoFeasible
from aicjax.explore.experiments import Experiments, read_experiments
from aicjax.explore.result import SearchResult, TaskResult
from aicjax.explore.run import run_experiment


@dataclass(frozen=True)
class ExperimentsResult:
    """The experiments of a file, each a search of its own.

    Attributes:
        experiments: What was asked.
        results: Outcomes by name, in the order in which they ran.
        failures: Why an experiment could not be planned, by name.
    """

    experiments: Experiments
    results: Mapping[str, SearchResult]
    failures: Mapping[str, AicjaxError]

    @property
    def tasks(self) -> dict[str, TaskResult]:
        """The experiments that ran."""
        return {name: task for result in self.results.values() for name, task in result.tasks.items()}

    @property
    def chosen(self) -> str | None:
        """The experiment with the best score, of those that meet their limits if any does; None when none has a row."""
        scored = [task for task in self.tasks.values() if task.score > 0]
        best = max(scored, key=lambda task: (task.meets_target, task.score), default=None)
        return best.name if best is not None else None

    @property
    def errors(self) -> dict[str, AicjaxError]:
        """Why experiments have no row, by name."""
        found = {name: error for result in self.results.values() for name, error in result.errors.items()}
        return {**self.failures, **found}

    def require(self) -> TaskResult:
        """The chosen experiment when it meets its limits.

        Raises:
            NoFeasible: No experiment has a configuration within its limits.
            AicjaxError: Every experiment failed for another reason: bad input or missing data.
        """
        if self.chosen is not None and self.tasks[self.chosen].meets_target:
            return self.tasks[self.chosen]
        short = [task.shortfall.error(task.name) for task in self.tasks.values() if task.shortfall is not None]
        if short:
            raise NoFeasible(" ".join(str(error) for error in short))
        raise min(self.errors.values(), key=lambda error: isinstance(error, NoFeasible))


def run_experiments(source: Path | str | Mapping[str, Any], **shared: Any) -> ExperimentsResult:
    """The best configurations of every experiment of a file; one that fails does not stop the others.

    Args:
        source: A YAML file, or a mapping with the same content: names to experiments, and `exps` for their order.
        shared: Fields of a `SearchRequest` for all experiments, for example `top_n`; what an experiment states wins.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a value is bad.

    Examples:
        >>> import aicjax
        >>> small = {"serving_mode": "agg", "model_path": "Qwen/Qwen3-8B", "system_name": "h200_sxm", "total_gpus": 1}
        >>> aicjax.run_experiments({"small": small}).chosen
        'small'
    """
    experiments = read_experiments(source, **shared)
    results: dict[str, SearchResult] = {}
    failures: dict[str, AicjaxError] = {}
    for name, request in experiments.requests.items():
        try:
            results[name] = run_experiment(name, request)
        except AicjaxError as error:
            failures[name] = error
    return ExperimentsResult(experiments, results, failures)
