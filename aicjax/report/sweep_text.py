# SPDX-License-Identifier: Apache-2.0
"""A sweep on a terminal: what was swept, what became of the points, and the best of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from aicjax._names import counted
from aicjax.explore import frame as frames
from aicjax.report import phrases
from aicjax.report.console import print_lines
from aicjax.report.rows import workers
from aicjax.report.sweep_json import span
from aicjax.report.table import Column, optional, print_fitted
from aicjax.sweeps.result import OVERALL, REASONS, Answer, SweepResult
from aicjax.sweeps.spec import OBJECTIVES, Limits, SweepSpec

TOP_ROWS = 5
GROUP_ROWS = 40
REFUSED_LINES = 10

Record = Mapping[str, Any]

_DROPPED_FIRST = ("GiB\n/GPU", "in\nflight", "total\nms", "req/s", "tok/s\n/user", "version")


def print_sweep(result: SweepResult, console: Console, *, points_per_s: float | None = None) -> None:
    """Prints what was swept, then for each pair of limits the counts, the best points, and the best of each group.

    Args:
        result: What was found.
        console: Where to.
        points_per_s: How fast this host was; None where that is not known.
    """
    print_lines(console, [*question(result.spec), *progress(result, points_per_s), *refused(result)])
    pairs = len(result.spec.limits)
    for limits in range(pairs):
        overall, *groups = result.answers[limits::pairs]
        print_lines(console, ["", *counts(overall), ""])
        if overall.counts["feasible"]:
            for objective in result.spec.objectives:
                _print_best(console, result.spec, overall, objective)
            _print_groups(console, result.spec, groups)


def question(spec: SweepSpec) -> list[str]:
    """The axes: their sizes, and those of requests in flight."""
    sizes = {
        "model": len(spec.models),
        "system": len(spec.systems),
        "engine": len(spec.backends),
        "format": len(spec.formats),
        "workload": len(spec.workloads),
        "memory fraction": len(spec.memory_fraction),
    }
    crossed = [counted(size, name) for name, size in sizes.items() if size > 1]
    names = [", ".join(axis) for axis in (spec.models, spec.systems, spec.backends)]
    axes = ("batch", "ctx_tokens") if spec.serving_mode == "agg" else ("prefill_batch", "decode_batch")
    counts = "; ".join(_axis(name, getattr(spec, name)) for name in axes)
    return [
        f"{names[0]} on {names[1]} with {names[2]}, {spec.database_mode}",
        f"workloads {', '.join(workload.label for workload in spec.workloads)}",
        f"{' x '.join([*crossed, 'all layouts'])}; {counts}",
    ]


def progress(result: SweepResult, points_per_s: float | None = None) -> list[str]:
    """How many points were done, how fast, and whether that is all."""
    rate = "" if points_per_s is None else f" at {points_per_s:,.0f} points/s"
    lines = [f"{result.done_points:,} points, {result.seconds:.1f} s{rate}"]
    if not result.complete:
        lines.append(f"incomplete: {result.points:,} points in all; the same command with the same --out goes on")
    return lines


def refused(result: SweepResult) -> list[str]:
    """The combinations that cannot run, with the reason."""
    every = result.cases.refused
    lines = [f"refused: {name.label}: {reason}" for name, reason in every[:REFUSED_LINES]]
    if len(every) > REFUSED_LINES:
        lines.append(f"refused: {len(every) - REFUSED_LINES} more")
    return lines


def counts(answer: Answer) -> list[str]:
    """How many points meet the limits, and what became of the others."""
    total, feasible = sum(answer.counts.values()), answer.counts["feasible"]
    share = f" ({feasible / total:.1%})" if total else ""
    lost = [f"{count:,} {REASONS[name]}" for name, count in answer.counts.items() if count and name != "feasible"]
    head = f"{limits_text(answer.limits)}: {feasible:,} of {total:,} points feasible{share}"
    return [head, *([f"  the others: {', '.join(lost)}"] if lost else [])]


def nothing_found(result: SweepResult) -> str:
    """Why no point meets its limits, one line."""
    counted = result.answers[0].counts
    words = [f"{count:,} {REASONS[name]}" for name, count in counted.items() if count]
    return f"None of {sum(counted.values()):,} points meets its limits: {', '.join(words)}."


def limits_text(limits: Limits) -> str:
    """Limits in words."""
    parts = [f"{name.upper()} {value:g} ms" for name, value in limits.model_dump().items() if value is not None]
    return f"limits {', '.join(parts)}" if parts else "no limits"


def headline(result: SweepResult) -> str:
    """The best point within the first limits that have one, in one line; only for a result that has one."""
    objective = result.spec.objectives[0]
    answer = next(answer for answer in result.answers if answer.group == OVERALL and answer.counts["feasible"])
    row = frames.row(answer.best[objective], 0)
    tpot = "" if row["tpot"] is None else f", TPOT {row['tpot']:.2f} ms"
    where = f"{row['model']} on {_origin(row, 'system')} with {_origin(row, 'backend')}"
    return (
        f"{objective} {_number(row[objective])} within {limits_text(answer.limits)}: {where}, "
        f"{phrases.composition(workers(dict(row)))}, TTFT {row['ttft']:.2f} ms{tpot}"
    )


def _axis(name: str, counts: Sequence[int]) -> str:
    values = span(counts)
    if isinstance(values, list):
        return f"{name} {', '.join(map(str, values))}"
    step = f" by {values['step']}" if values["step"] > 1 else ""
    return f"{name} {values['first']} to {values['last']}{step}"


def _print_best(console: Console, spec: SweepSpec, answer: Answer, objective: str) -> None:
    rows = list(frames.rows(answer.best[objective]))[:TOP_ROWS]
    columns = [*_axes(spec), *_figures(spec, objective)]
    print_fitted(console, f"best by {objective}", rows, columns, _DROPPED_FIRST)


def _print_groups(console: Console, spec: SweepSpec, groups: Sequence[Answer]) -> None:
    """The best point of each group by the first objective, best first."""
    objective = spec.objectives[0]
    best = [(answer, frames.row(answer.best[objective], 0)) for answer in groups if answer.counts["feasible"]]
    best.sort(key=lambda pair: pair[1][objective], reverse=OBJECTIVES[objective])
    if len(best) > 1:
        columns = [*_group_axes(spec), *_of_row(_figures(spec, objective))]
        title = f"best of each group by {objective}"
        print_fitted(console, title, best[:GROUP_ROWS], columns, _DROPPED_FIRST)
    if len(best) > GROUP_ROWS:
        print_lines(console, [f"{len(best) - GROUP_ROWS} more groups; --out writes all"])
    if empty := [answer.group for answer in groups if not answer.counts["feasible"]]:
        shown = "; ".join(empty[:REFUSED_LINES])
        more = f"; {len(empty) - REFUSED_LINES} more" if len(empty) > REFUSED_LINES else ""
        print_lines(console, [f"groups without a feasible point: {shown}{more}"])


def _group_axes(spec: SweepSpec) -> Iterator[Column]:
    for axis in spec.group_by:
        yield Column(axis, lambda pair, axis=axis: str(pair[0].values[axis] or "default"), "left")


def _of_row(columns: Sequence[Column]) -> Iterator[Column]:
    """The columns for pairs of answer and row."""
    for column in columns:
        yield column._replace(text=lambda pair, text=column.text: text(pair[1]))


def _axes(spec: SweepSpec) -> Iterator[Column]:
    """What tells the rows of different combinations apart: axes with more than one value."""
    if len(spec.models) > 1:
        yield Column("model", lambda row: row["model"], "left")
    if len(spec.systems) > 1:
        yield Column("system", lambda row: _origin(row, "system"), "left")
    if len(spec.backends) > 1:
        yield Column("engine", lambda row: _origin(row, "backend"), "left")
    if any(len(versions) > 1 for versions in spec.versions.values()):
        yield Column("version", lambda row: _origin(row, "version"), "left")
    if len(spec.formats) > 1:
        yield Column("formats", _formats, "left")
    if len(spec.workloads) > 1:
        yield Column("isl/osl", _requests, "left")
    if len(spec.memory_fraction) > 1:
        yield Column("memory", lambda row: "default" if (f := row["memory_fraction"]) is None else f"{f:g}")


def _figures(spec: SweepSpec, objective: str) -> list[Column]:
    plain = [
        Column("tok/s\n/gpu", _of("tokens/s/gpu", 2)),
        Column("tok/s\n/user", _of("tokens/s/user", 2)),
        Column("req/s", _of("seq/s", 2)),
        Column("TTFT\nms", _of("ttft", 1)),
        Column("TPOT\nms", _of("tpot", 2)),
        Column("total\nms", _of("request_latency", 0)),
        Column("in\nflight", lambda row: str(row["concurrency"])),
        Column("GPUs", lambda row: str(row["num_total_gpus"])),
        Column("worker\n(b: batch)", lambda row: phrases.composition(workers(dict(row))), "left"),
    ]
    if spec.serving_mode == "agg":
        plain.append(Column("ctx\ntokens", lambda row: str(row["ctx_tokens"])))
    plain.append(Column("GiB\n/GPU", _memory))
    own = [
        Column(name, lambda row, name=name: _number(row[name]))
        for name in ("tokens/$", "tokens/J")
        if name == objective
    ]
    return [*own, *plain]


def _of(name: str, decimals: int) -> Callable[[Record], str]:
    return lambda row: optional(row[name], f".{decimals}f")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _origin(row: Record, name: str) -> str:
    """System, engine or version of a row; of both sides where they differ."""
    if name in row:
        return row[name]
    return " + ".join(dict.fromkeys([row[f"(p){name}"], row[f"(d){name}"]]))


def _formats(row: Record) -> str:
    side = "" if "gemm" in row else "(d)"
    return f"{row[f'{side}gemm']} kv {row[f'{side}kvcache']}"


def _requests(row: Record) -> str:
    cached = f" prefix {row['prefix']}" if row["prefix"] else ""
    nextn = f" nextn {row['nextn']}" if row["nextn"] else ""
    return f"{row['isl']}/{row['osl']}{cached}{nextn}"


def _memory(row: Record) -> str:
    values = (worker.memory_gib for worker in workers(dict(row)))
    return ", ".join(optional(value, ".1f") for value in values)
