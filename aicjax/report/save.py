# SPDX-License-Identifier: Apache-2.0
"""Result files: CSV tables in the layout and with the columns of AIConfigurator, and the manifest of the run."""

import csv
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from aicjax._results import InputError
from aicjax.explore import frame as frames
from aicjax.explore.comparison import ExperimentsResult
from aicjax.explore.frame import Frame
from aicjax.explore.request import SearchRequest
from aicjax.explore.result import SearchResult, TaskResult
from aicjax.report import manifest, ranges
from aicjax.report.result_json import step_dict
from aicjax.report.rows import reported

TOP_FILE = "best_config_topn.csv"
PARETO_FILE = "pareto.csv"
RANGES_FILE = "ranges.json"
OPERATORS_FILE = "operators.json"


def save(result: SearchResult, directory: Path) -> Path:
    """Writes one folder for the run, with a folder per experiment in it; the same run writes the same folder.

    Args:
        result: What to write.
        directory: Where the run's folder goes; made if missing.

    Returns:
        The run's folder.

    Raises:
        InputError: The folder cannot be written.
    """
    content = manifest.of_result(result)
    folder = directory / f"{_question(result)}_{_digest(content)}"
    _write(result, content, folder, folder)
    return folder


def save_experiments(result: ExperimentsResult, directory: Path, *, after_first: bool = False) -> Path:
    """Writes one folder for an experiment file, with a folder for each experiment and its manifest in it.

    Args:
        result: What to write.
        directory: Where the file's folder goes; made if missing.
        after_first: Whether the folder is called after the first experiment that ran, not after the file.

    Returns:
        The file's folder.

    Raises:
        InputError: The folder cannot be written.
    """
    contents = {name: manifest.of_result(search) for name, search in result.results.items()}
    first = next(iter(result.results.values())) if after_first else None
    source = Path(result.experiments.source).stem if first is None else _question(first)
    folder = directory / f"{source}_{_digest(contents)}"
    for name, search in result.results.items():
        _write(search, contents[name], folder, folder / name)
    return folder


def _write(result: SearchResult, content: dict[str, Any], folder: Path, manifest_folder: Path) -> None:
    try:
        for name, task in {**result.by_backend, **result.tasks}.items():
            if frames.length(task.best):
                _write_experiment(folder / name, task.best, task.pareto, inclusive_tpot=result.request.inclusive_tpot)
        for name, task in result.tasks.items():
            if frames.length(task.best):
                _write_facts(folder / name, task, result.request)
        manifest_folder.mkdir(parents=True, exist_ok=True)
        _write_json(manifest_folder / manifest.FILE_NAME, content)
    except OSError as error:
        raise InputError("save_dir", str(folder.parent), f"a folder that can be written ({error.strerror})") from None


def _write_experiment(folder: Path, best: Frame, pareto: Frame, *, inclusive_tpot: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in ((TOP_FILE, best), (PARETO_FILE, pareto)):
        write_csv(folder / name, reported(frame, inclusive_tpot=inclusive_tpot))


def _write_facts(folder: Path, task: TaskResult, request: SearchRequest) -> None:
    """What is known of the top rows beside their figures: ranges, and how the time of each operator was obtained."""
    if any(found := ranges.of_task(task, request)):
        _write_json(folder / RANGES_FILE, [None if one is None else dataclasses.asdict(one) for one in found])
    if task.explain is not None:
        explained = [task.explain(position) for position in range(frames.length(task.best))]
        _write_json(folder / OPERATORS_FILE, [[step_dict(step) for step in row.steps] for row in explained])


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_csv(path: Path, frame: Frame) -> None:
    """Writes a frame; a number that is absent is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(frame)
        for row in frames.rows(frame):
            writer.writerow("" if value is None else value for value in row.values())


def _question(result: SearchResult) -> str:
    """What was searched, as a name."""
    request = result.request
    model = Path(request.model_path).name
    return (
        f"{model}_{request.system}_{request.backend}_isl{request.isl}_osl{request.osl}"
        f"_ttft{int(request.ttft)}_tpot{int(request.tpot)}"
    )


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
