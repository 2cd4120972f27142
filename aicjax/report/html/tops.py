# SPDX-License-Identifier: Apache-2.0
"""The panel of the top lists: the best configurations of every experiment, one table each."""

from collections.abc import Sequence

from aicjax.report import phrases
from aicjax.report.html.answer import ends
from aicjax.report.html.parts import Cell, Column, Panel, Part, Table, Text, number
from aicjax.report.html.shown import Shown
from aicjax.report.ranges import Quantiles
from aicjax.report.rows import Row
from aicjax.report.summary import BINDING


def panel(shown: Sequence[Shown], errors: dict[str, str], chosen: str | None) -> Panel | None:
    """The panel; None without a row.

    Args:
        shown: The experiments.
        errors: Why others have no row, by name.
        chosen: Name of the experiment that won.
    """
    parts: list[Part] = [_table(each, won=each.name == chosen) for each in shown if each.rows]
    parts += [Text([f"{name} has no configuration: {reason}"]) for name, reason in errors.items()]
    if not any(each.rows for each in shown):
        return None
    return Panel("picks", "The best of each experiment", parts, short="Best of each")


def _table(each: Shown, *, won: bool) -> Table:
    rows, task = each.rows, each.task
    sure = rows[0].ranges is not None
    columns = [
        Column("#"),
        Column("replica (b: batch)", False),
        *([Column("engine", False)] if task.backend == "auto" else []),
        Column("tokens/s/GPU"),
        *([Column("8 of 10")] if sure else []),
        *map(Column, ("tokens/s/user", "TTFT, ms")),
        *([Column("8 of 10")] if sure else []),
        Column("TPOT, ms"),
        *([Column("8 of 10"), Column("within limits")] if sure else []),
        *map(Column, ("request, ms", "requests/s", "in flight", "replicas", "GPUs", "GiB a GPU")),
        *([Column("held back by", False)] if rows[0].binding else []),
    ]
    order = "most tokens/s/GPU first" if each.request.total_gpus is not None else "fewest GPUs first"
    missed = "" if task.meets_target else "; all miss a limit, nearest first"
    caption = f"{each.name}{missed or f', {order}'}"
    return Table(caption, columns, [_cells(each, row) for row in rows], marked=0 if won else None)


def _cells(each: Shown, row: Row) -> list[Cell]:
    known = row.ranges
    ranges = (lambda of: [_range(of)]) if known is not None else (lambda _: [])
    memory = [worker.memory_gib for worker in row.workers if worker.memory_gib is not None]
    return [
        number(row.rank, "d"),
        Cell(phrases.composition(row.workers)),
        *([Cell(row.backend)] if each.task.backend == "auto" else []),
        number(row.tokens_per_s_per_gpu),
        *ranges(known and known.tokens_per_s_per_gpu),
        number(row.tokens_per_s_per_user),
        number(row.ttft_ms, ",.1f"),
        *ranges(known and known.ttft_ms),
        number(row.tpot_ms),
        *ranges(known and known.tpot_ms),
        *([number(known.limits_met, ".0%")] if known is not None else []),
        number(row.request_latency_ms, ",.0f"),
        number(row.requests_per_s),
        number(row.concurrency, ",d"),
        number(row.replicas, "d"),
        number(row.gpus, "d"),
        Cell(", ".join(f"{gib:.1f}" for gib in memory) or "–", max(memory, default=None)),
        *([Cell(BINDING.get(row.binding, row.binding))] if row.binding else []),
    ]


def _range(of: Quantiles | None) -> Cell:
    return Cell("–") if of is None else Cell(ends(of), of[0])
