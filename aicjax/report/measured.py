# SPDX-License-Identifier: Apache-2.0
"""Predictions beside measurements: a table with errors, and the same as plain values."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aicjax._units import PERCENT
from aicjax.report.console import print_lines, stdout_console
from aicjax.report.table import Column, optional, print_fitted

if TYPE_CHECKING:
    from aicjax.calibrate.compare import Comparison

_QUANTITIES = ("ttft", "tpot", "throughput")
_SHOWN = {"ttft": ("TTFT", "ms", 1), "tpot": ("TPOT", "ms", 2), "throughput": ("tok/s", "/gpu", 1)}
_NAMED = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "throughput per GPU"}
_FACTS = ("model_path", "system", "backend", "mode", "isl", "osl", "concurrency", "num_gpus", "queue_saturated")
_SERVER = ("model_path", "system", "backend", "mode")
_DROPPED_FIRST = ("TPOT\nrange", "TTFT\nrange")


def print_comparison(found: "Comparison", *, plain: bool = False) -> None:
    """Prints one row for each measurement, then the errors over all of them."""
    console, rows = stdout_console(plain=plain), records(found)
    shared = [name for name in _SERVER if len({row[name] for row in rows}) == 1]
    columns = [Column(name.removesuffix("_path"), _fact(name), "left") for name in _SERVER if name not in shared]
    columns += [
        Column("isl + osl", lambda row: f"{row['isl']} + {row['osl']}"),
        Column("in\nflight", lambda row: str(row["concurrency"])),
    ]
    for name in _QUANTITIES:
        columns += _columns(name, with_range=found.range_ms is not None and name != "throughput")
    title = ", ".join(["Measured and predicted", *(str(rows[0][name]) for name in shared)])
    print_fitted(console, title, rows, columns, _DROPPED_FIRST, bold_first=False)
    print_lines(console, [*_notes(rows), *_unanswered(rows), *_errors(found)])


def records(found: "Comparison") -> list[dict[str, Any]]:
    """The measurements and their predictions as plain values; None where there is no prediction."""
    rows = found.rows
    measured = (rows.ttft_ms, rows.tpot_ms, found.tokens_per_s_per_gpu[:, 1])
    predicted = (*found.times_ms.T, found.tokens_per_s_per_gpu[:, 0])
    low, high = found.range_ms or (None, None)
    result = []
    for row in range(len(rows)):
        record: dict[str, Any] = {name: getattr(rows, name)[row].item() for name in _FACTS}
        record["reason"] = str(found.reason[row])
        for quantity, name in enumerate(_QUANTITIES):
            value, theirs = float(predicted[quantity][row]), float(measured[quantity][row])
            known = math.isfinite(value)
            record[name] = {
                "measured": theirs,
                "predicted": value if known else None,
                "error_percent": PERCENT * (value / theirs - 1) if known else None,
            }
            if low is not None and high is not None and name != "throughput":
                ends = float(low[row, quantity]), float(high[row, quantity])
                record[name]["range"] = list(ends) if known else None
                record[name]["in_range"] = ends[0] <= theirs <= ends[1] if known else None
        result.append(record)
    return result


def as_dict(found: "Comparison") -> dict[str, Any]:
    """The rows and the scores as plain Python values."""
    return {"rows": records(found), "scores": dict(found.scores)}


def _fact(name: str) -> Callable[[Any], str]:
    return lambda row: str(row[name])


def _columns(name: str, *, with_range: bool) -> list[Column]:
    title, unit, digits = _SHOWN[name]

    def of(key: str) -> Callable[[Any], str]:
        return lambda row: optional(row[name][key], f".{digits}f")

    def measured(row: Any) -> str:
        return of("measured")(row) + "!" * (row[name].get("in_range") is False)

    def error(row: Any) -> str:
        value = row[name]["error_percent"]
        saturated = "*" if name == "ttft" and row["queue_saturated"] else ""
        return optional(value, "+.1f") + (saturated if value is not None else "")

    def ends(row: Any) -> str:
        value = row[name]["range"]
        return "-" if value is None else f"{value[0]:.{digits}f} - {value[1]:.{digits}f}"

    columns = [
        Column(f"{title}{' ' if unit == 'ms' else ''}{unit}\nmeasured", measured),
        Column("\npredicted", of("predicted")),
        Column("\nerror %", error),
    ]
    return [*columns, Column(f"{title}\nrange", ends)] if with_range else columns


def _unanswered(rows: list[dict[str, Any]]) -> list[str]:
    return [f"no prediction for row {at}: {row['reason']}" for at, row in enumerate(rows, 1) if row["reason"]]


def _errors(found: "Comparison") -> list[str]:
    text = []
    coverage = found.scores["interval_coverage"] or {}
    for name in _QUANTITIES:
        scores, inside = found.scores[name], coverage.get(name)
        said = "-" if scores["mape"] is None else f"{scores['mape']:.1f} / {scores['median']:.1f}"
        within = "" if inside is None else f"; {inside:.0%} of the measured times are in their 80 % range"
        text.append(f"error of {_NAMED[name]}, mean / median in %: {said}{within}")
    return text


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """What the marks in the table mean, of those that stand in it."""
    text = []
    if any(row["queue_saturated"] for row in rows):
        text.append("* requests waited for a place: TTFT is not scored")
    if any(row[name].get("in_range") is False for row in rows for name in _QUANTITIES):
        text.append("! the measured time is outside its range")
    return text
