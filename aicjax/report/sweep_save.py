# SPDX-License-Identifier: Apache-2.0
"""The files of a sweep: one JSON object, and its frames as CSV."""

import json
from pathlib import Path

from aicjax._results import InputError
from aicjax.explore import frame as frames
from aicjax.report.save import write_csv
from aicjax.report.sweep_json import as_dict
from aicjax.sweeps.result import SweepResult

RESULT_FILE = "result.json"


def as_text(result: SweepResult) -> str:
    """The JSON object as text, keys sorted."""
    return json.dumps(as_dict(result), indent=2, sort_keys=True, allow_nan=False)


def save_sweep(result: SweepResult, directory: Path) -> list[Path]:
    """Writes `result.json`, and `best.csv`, `front.csv`, `counts.csv` and `histogram.csv` as far as there are any.

    Args:
        result: What to write.
        directory: Where to; made if missing. Files of these names are replaced.

    Returns:
        The files.

    Raises:
        InputError: The directory cannot be written.
    """
    tables = {
        "best.csv": result.bests,
        "front.csv": result.fronts,
        "counts.csv": result.counts,
        "histogram.csv": result.histogram,
    }
    written = [directory / RESULT_FILE]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written[0].write_text(as_text(result) + "\n", encoding="utf-8")
        for name, frame in tables.items():
            if frames.length(frame):
                write_csv(directory / name, frame)
                written.append(directory / name)
    except OSError as error:
        raise InputError("out", str(directory), f"a directory that can be written ({error.strerror})") from None
    return written
