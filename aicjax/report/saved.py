# SPDX-License-Identifier: Apache-2.0
"""Rows of a saved search, whose files may have been edited: every cell that a deployment rests on is checked."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.explore.request import SearchRequest
from aicjax.report import manifest
from aicjax.report.save import RANGES_FILE, TOP_FILE

_MOST = 10**9  # in a cell
_SIZES = ("bs", "tp", "pp", "dp", "moe_tp", "moe_ep")
_WORDS = ("backend", "version", "system", "kvcache")
_TOTALS = ("num_total_gpus", "concurrency")
_FIGURES = ("ttft", "tpot", "tokens/s", "request_rate")
_MORE_COUNTS = ("num_tokens", "replicas_needed", "cp", "(p)cp", "(d)cp", "(e)workers")
_MORE_FIGURES = ("memory", "(p)memory", "(d)memory", "seq/s", "(p)seq/s/worker", "(d)seq/s/worker")


def read_row(run: Path, experiment: str | None, rank: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A row of a saved search.

    Args:
        run: Folder that the search wrote.
        experiment: Whose row; None for the best.
        rank: Which, from 1.

    Returns:
        The experiment, its row with `ranges` where they are known, and the request.

    Raises:
        InputError: No such row, or files that are not those of a search.
    """
    content = manifest.read(run)
    chosen = str(content.get("chosen")) if experiment is None else experiment
    found = sorted(path.parent.name for path in run.glob(f"*/{TOP_FILE}"))
    if chosen not in found:
        raise InputError("experiment", chosen, one_of(chosen, found))
    path = run / chosen / TOP_FILE
    rows = _rows(path)
    if not 1 <= rank <= len(rows):
        raise InputError("row", rank, f"from 1 to {len(rows)}")
    inputs, row = _inputs(content["inputs"]), rows[rank - 1]
    if "(a)tp" not in row:  # attention and feed-forward apart is not deployed
        for problem in _problems(row, inputs):
            raise InputError("from", str(path), f"a table of a search; row {rank}: {problem}")
    return chosen, {**row, "ranges": _ranges(path.with_name(RANGES_FILE), len(rows))[rank - 1]}, inputs


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError("from", str(path), f"a readable table ({error})") from None


def _inputs(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a manifest, as a search takes it."""
    given = {name: value for name, value in stated.items() if value is not None}
    request = SearchRequest(**given)
    return request.model_dump(mode="json") | {"constants": request.constants_name}


def _problems(row: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    prefixes = ("(p)", "(d)") if "(d)parallel" in row else ("",)
    counts = [*_TOTALS, *(f"{prefix}{name}" for prefix in prefixes for name in _SIZES)]
    counts += [f"{prefix}workers" for prefix in prefixes if prefix]
    words = ["model", *(f"{prefix}{name}" for prefix in prefixes for name in _WORDS)]
    absent = [name for name in (*words, *counts, *_FIGURES) if row.get(name) is None]
    if absent:
        yield f"it has no column {absent[0]}"
        return
    more_counts, more_figures = ([name for name in known if row.get(name)] for known in (_MORE_COUNTS, _MORE_FIGURES))
    checks = [(name, row[name], _is_count, f"a whole number from 1 to {_MOST}") for name in counts]
    checks += [(name, row[name], _is_figure, "a number above 0") for name in _FIGURES]
    checks += [(name, row[name], str.isdigit, "a whole number") for name in more_counts]
    checks += [(name, row[name], _is_number_from_0, "a number from 0") for name in (*more_counts, *more_figures)]
    wrong = [f"{name} is {cell!r}, not {what}" for name, cell, passes, what in checks if not passes(cell)]
    yield from wrong
    if not wrong:
        yield from _disagreements(row, inputs, prefixes)


def _disagreements(row: Mapping[str, Any], inputs: Mapping[str, Any], prefixes: tuple[str, ...]) -> Iterator[str]:
    """Cells that do not go together, or not with the request."""
    asked = {"model": "model_path", "isl": "isl", "osl": "osl", "prefix": "prefix"}
    for name, field in asked.items():
        if str(row.get(name, inputs[field])) != str(inputs[field]):
            yield f"{name} is {row[name]!r}, that of the manifest {inputs[field]!r}"
    if not inputs["total_gpus"] and not row.get("replicas_needed"):
        yield "neither it nor the manifest says how many GPUs there are"
    gpus = 0
    for prefix in prefixes:
        tp, pp, dp, moe_tp, moe_ep = (int(row[f"{prefix}{name}"]) for name in _SIZES[1:])
        gpus += tp * pp * dp * int(row[f"{prefix}workers"] if prefix else 1)
        if moe_tp * moe_ep not in (1, tp * dp):
            yield f"experts over {moe_tp * moe_ep} GPUs of the {tp * dp} of a stage"
    others = any(int(row.get(name) or 0) > 1 for name in ("cp", "(p)cp", "(d)cp")) or int(row.get("(e)workers") or 0)
    if not others and gpus != int(row["num_total_gpus"]):
        yield f"num_total_gpus is {row['num_total_gpus']}, its workers have {gpus}"


def _is_count(cell: str) -> bool:
    return _is_figure(cell) and cell.isascii() and cell.isdigit()


def _is_figure(cell: str) -> bool:
    return _is_number_from_0(cell) and float(cell) > 0


def _is_number_from_0(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= _MOST
    except ValueError:
        return False


def _ranges(path: Path, rows: int) -> list[Any]:
    """Ranges of the rows; None for each without a file of them."""
    if not path.is_file():
        return [None] * rows
    try:
        ranges = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("from", str(path), f"a readable file ({error})") from None
    if not isinstance(ranges, list) or len(ranges) != rows or not all(map(_is_ranges, ranges)):
        raise InputError("from", str(path), "a list with the ranges of every row")
    return ranges


def _is_ranges(stated: Any) -> bool:
    if stated is None:
        return True
    if not isinstance(stated, Mapping) or not {"ttft_ms", "tpot_ms", "tokens_per_s_per_gpu", "limits_met"} <= set(
        stated
    ):
        return False
    lists = [stated["ttft_ms"], stated["tokens_per_s_per_gpu"], *([stated["tpot_ms"]] if stated["tpot_ms"] else [])]
    chance = stated["limits_met"]
    in_order = all(
        isinstance(values, list) and values and all(_is_number(value) for value in values) and values == sorted(values)
        for values in lists
    )
    return in_order and (chance is None or (_is_number(chance) and chance <= 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
