# SPDX-License-Identifier: Apache-2.0
"""The panel of memory: what fills one GPU of each worker, and the room for its KV cache."""

from collections.abc import Sequence

from aicjax.explore.result import MemoryUse
from aicjax.report.html import palette
from aicjax.report.html.figures import axis, bar, bars_height
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number

PARTS = (
    ("weights", "weights"),
    ("activations", "activations"),
    ("kvcache", "KV cache"),
    ("nccl", "NCCL"),
    ("others", "other"),
)


def panel(rows: Sequence[tuple[str, Sequence[MemoryUse]]]) -> Panel | None:
    """The panel; None where nothing is known.

    Args:
        rows: Names of rows, and the memory of their workers, the answer first.
    """
    uses = [(f"{name}: {use.role}" if name != use.role else name, use) for name, found in rows for use in found]
    if not uses:
        return None
    names = [name for name, _ in uses]
    traces = [
        bar(
            label,
            names,
            [round(getattr(use, part), 3) for _, use in uses],
            palette.series(position),
            f"<b>%{{y}}</b><br>{label} %{{x:.2f}} GiB",
        )
        for position, (part, label) in enumerate(PARTS)
    ]
    room = [max(0.0, use.kv_budget - use.kvcache) for _, use in uses]
    traces.append(
        bar(
            "room for more KV cache",
            names,
            [round(gib, 3) for gib in room],
            "--edge",
            "<b>%{y}</b><br>room for %{x:.2f} GiB more of KV cache",
        )
    )
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "capacity",
            "x": [round(use.capacity, 3) for _, use in uses],
            "y": names,
            "marker": {
                "symbol": "line-ns-open",
                "size": 24,
                "color": "--mark",
                "line": {"width": 2.5, "color": "--mark"},
            },
            "hovertemplate": "<b>%{y}</b><br>the GPU has %{x:.1f} GiB<extra></extra>",
        }
    )
    columns = [Column("worker", False), *(Column(f"{label}, GiB") for _, label in PARTS)]
    columns += [*map(Column, ("in use, GiB", "capacity, GiB", "KV budget, GiB")), Column("rule of the budget", False)]
    cells = [
        [
            Cell(name),
            *(number(getattr(use, part)) for part, _ in PARTS),
            *map(number, (use.total, use.capacity, use.kv_budget)),
            Cell(use.kv_rule or "–"),
        ]
        for name, use in uses
    ]
    chart = Chart(
        name="memory",
        title="Memory of one GPU",
        summary="; ".join(f"{name} uses {use.total:.1f} of {use.capacity:.1f} GiB" for name, use in uses),
        traces=traces,
        layout={
            "xaxis": axis("GiB"),
            "yaxis": {"categoryorder": "array", "categoryarray": names[::-1]},
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
        },
        height=bars_height(2 * len(uses)) + 20,
        table=Table("Memory of one GPU", columns, cells),
    )
    lines = [
        f"{name}: {use.total:.1f} of {use.capacity:.1f} GiB in use at the batch that was chosen; its KV cache fills "
        f"{use.kvcache / use.kv_budget:.0%} of the {use.kv_budget:.1f} GiB that the engine gives it."
        for name, use in uses
        if use.kv_budget > 0
    ]
    return Panel("memory", "Memory", [Text(lines), chart])
