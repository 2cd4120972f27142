# SPDX-License-Identifier: Apache-2.0
"""Result files of a run: tables and manifest, deployment files, and their names in AIConfigurator."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aicjax._names import one_of
from aicjax._results import AicjaxError, InputError
from aicjax.cli.deploy import targets_in, write_rows

if TYPE_CHECKING:
    from aicjax.cli.output import Output
    from aicjax.explore import ExperimentsResult, SearchResult


def save_search(result: "SearchResult", output: "Output") -> Path:
    """Writes the files of a search, deployment files for experiments that meet the limits; returns their folder."""
    from aicjax.report.save import save

    folder = save(result, _directory(result, output))
    print(f"saved in {folder}", file=sys.stderr)
    _complete(result, output, folder)
    return folder


def save_file(result: "ExperimentsResult", output: "Output") -> None:
    """Writes the files of the experiments of a file."""
    from aicjax.report.save import save_experiments

    first = next(iter(result.results.values()), None)
    if output.save_layout == "reference" and first is not None:
        folder = save_experiments(result, _directory(first, output), after_first=True)
    else:
        folder = save_experiments(result, output.folder)
    print(f"saved in {folder}", file=sys.stderr)
    for search in result.results.values():
        _complete(search, output, folder)


def check_layout(layout: str) -> None:
    """Refuses an unknown layout of result folders.

    Raises:
        InputError: It is unknown.
    """
    from aicjax.report.reference_layout import LAYOUTS

    if layout not in LAYOUTS:
        raise InputError("save_layout", layout, one_of(layout, LAYOUTS))


def _directory(result: "SearchResult", output: "Output") -> Path:
    from aicjax.report.reference_layout import directory_for

    model = result.request.model_path
    return directory_for(model, output.folder) if output.save_layout == "reference" else output.folder


def _complete(result: "SearchResult", output: "Output", folder: Path) -> None:
    from aicjax.report import ranges, reference_layout

    met = {name: task for name, task in result.tasks.items() if task.meets_target}
    tables = {name: ranges.rows_with_ranges(task, result.request) for name, task in met.items()}
    reference = output.save_layout == "reference"
    try:
        if output.target is not None and tables:
            write_rows(tables, result.inputs, targets_in(output.target), folder, **output.site)
    except AicjaxError:  # named with its row; AIConfigurator keeps the tables of such a run
        if not reference:
            raise
    if reference:
        reference_layout.add(result, folder)
