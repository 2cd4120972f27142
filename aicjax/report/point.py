# SPDX-License-Identifier: Apache-2.0
"""One serving point on a terminal or as JSON: figures, memory, operators and where their times come from."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from aicjax.explore.result import Sensitivity
from aicjax.report import phrases, ranges, sensitivity
from aicjax.report.console import print_lines, stdout_console
from aicjax.report.result_json import step_dict

if TYPE_CHECKING:
    from aicjax.explore.point import EstimateResult

SECTIONS = ("summary", "memory", "time", "source")


def print_point(
    result: "EstimateResult",
    *,
    sections: Sequence[str],
    as_json: bool,
    plain: bool,
    explain: bool = False,
    interval: bool = True,
) -> None:
    """Prints an estimate.

    Args:
        result: The estimate.
        sections: Names of `SECTIONS`, in any order.
        as_json: Whether to print one JSON object with everything instead.
        plain: Whether to leave out colours.
        explain: Whether to say which assumptions move the estimate.
        interval: Whether to give the ranges of figures, where the constants in force have them.
    """
    if as_json:
        known = ranges_of(result) if interval else None
        moves = {"sensitivities": sensitivity.as_dicts(_moves(result))} if explain else {}
        sure = {"ranges": None if known is None else dataclasses.asdict(known)}
        print(json.dumps(as_dict(result) | sure | moves, indent=2, allow_nan=False))
        return
    print_on(stdout_console(plain=plain), result, sections=sections, explain=explain, interval=interval)


def print_on(
    console: Console, result: "EstimateResult", *, sections: Sequence[str], explain: bool = False, interval: bool = True
) -> None:
    """Prints an estimate on a console; arguments as of `print_point`."""
    known = ranges_of(result) if interval else None
    parts = {"summary": _summary, "memory": _memory, "time": _times, "source": _sources}
    for name in SECTIONS:
        if name in sections:
            parts[name](result, console)
            print_lines(console, ranges.lines(known) if name == "summary" else ())
    if explain:
        print_lines(console, sensitivity.lines(_moves(result)))


def ranges_of(result: "EstimateResult") -> ranges.Ranges | None:
    """How sure its figures are; None where that is not known."""
    return ranges.of_point(result.request, result.row, result.steps) if result.open_load is None else None


def _moves(result: "EstimateResult") -> Sequence[Sensitivity] | None:
    return None if result.sensitivities is None else result.sensitivities()


def as_dict(result: "EstimateResult") -> dict[str, Any]:
    """The estimate as plain Python values."""
    return {
        "inputs": result.request.model_dump(mode="json"),
        "resolved": result.resolved,
        "row": result.row,
        "memory": [{**dataclasses.asdict(use), "total": use.total} for use in result.memory],
        "steps": [step_dict(step) for step in result.steps],
        "provenance": result.provenance.name.lower(),
        "warnings": list(result.warnings),
        "open_load": None if result.open_load is None else dataclasses.asdict(result.open_load),
    }


def _summary(result: "EstimateResult", console: Console) -> None:
    row, request = result.row, result.request
    where = ", ".join(
        f"{role} {part['layout']} on {part['system']}, {part['backend']} {part['version']}"
        for role, part in result.resolved.items()
    )
    print_lines(console, [f"{phrases.model(request)}: {where}{phrases.following(request)}"])
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, name, unit in _FIGURES:
        value = row.get(name)
        if value is not None and (value or name not in _WHERE_NOT_ZERO):
            table.add_row(label, f"{value:,.3f} {unit}" if unit else f"{value:g}")
    console.print(table)
    if result.open_load is not None:
        print_lines(console, [phrases.open_load(result.open_load)])
    print_lines(console, (f"warning: {warning}" for warning in result.warnings))


_WHERE_NOT_ZERO = ("encoder_latency",)  # nothing to tell of a model of text
_FIGURES = (
    ("TTFT", "ttft", "ms"),
    ("TPOT", "tpot", "ms"),
    ("request latency", "request_latency", "ms"),
    ("vision encoder", "encoder_latency", "ms"),
    ("prefill", "context_latency", "ms"),
    ("decode", "generation_latency", "ms"),
    ("requests", "seq/s", "req/s"),
    ("throughput", "tokens/s", "tokens/s"),
    ("per GPU", "tokens/s/gpu", "tokens/s"),
    ("per user", "tokens/s/user", "tokens/s"),
    ("in flight", "concurrency", ""),
    ("GPUs", "num_total_gpus", ""),
)


def _memory(result: "EstimateResult", console: Console) -> None:
    print_lines(console, map(phrases.memory_use, result.memory))


def _times(result: "EstimateResult", console: Console) -> None:
    for step in result.steps:
        latency_ms = np.asarray(step.latency_ms)
        table = _table(f"{step.step}: {step.total_ms:.3f} ms", ("operator", "ms", "share", "source"))
        for at in np.argsort(-latency_ms, kind="stable")[: np.count_nonzero(latency_ms)]:
            source = step.provenance[at].name.lower()
            table.add_row(step.names[at], f"{latency_ms[at]:.4f}", f"{latency_ms[at] / step.total_ms:.1%}", source)
        console.print(table)


def _sources(result: "EstimateResult", console: Console) -> None:
    print_lines(console, (f"{step.step}: {phrases.sources(step)}" for step in result.steps))


def _table(title: str, headers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in ("ms", "share") else "left", no_wrap=True)
    return table
