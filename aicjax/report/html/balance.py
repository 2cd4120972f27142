# SPDX-License-Identifier: Apache-2.0
"""The panel of a replica of prefill and decode workers: what each side could serve, and which one waits."""

from collections.abc import Mapping
from typing import Any

from aicjax._names import counted
from aicjax.explore import frame as frames
from aicjax.report.html import palette
from aicjax.report.html.figures import axis, bar, bars_height
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number
from aicjax.report.html.shown import Shown

EVEN = 0.005  # sides this near to each other count as even
SIDES = (("prefill", "(p)", "prefill_degradation"), ("decode", "(d)", "decode_degradation"))


def panel(each: Shown) -> Panel | None:
    """The panel of a disaggregated experiment; None for others."""
    factors = each.task.resolved.get("corrections")
    if not each.rows or factors is None or "(p)seq/s/worker" not in each.task.best:
        return None
    sides = [_side(frames.row(each.task.best, position), factors) for position in range(len(each.rows))]
    names = [f"#{row.rank}" for row in each.rows]
    could_serve, first_busy = sides[0]
    idle = _waits(first_busy)
    traces = [
        bar(
            f"{role}: workers busy",
            names,
            [round(100 * busy[role], 2) for _, busy in sides],
            palette.series(position),
            f"<b>%{{y}}</b><br>{role} workers busy %{{x:.1f}} %",
        )
        for position, (role, _, _) in enumerate(SIDES)
    ]
    columns = [Column("#"), *map(Column, ("prefill, requests/s", "decode, requests/s", "replica, requests/s"))]
    columns += [*map(Column, ("prefill busy", "decode busy")), Column("waits", False)]
    rate = each.task.best["seq/s"].tolist()
    rows = [
        [
            number(row.rank, "d"),
            *(number(capacity[role]) for role, _, _ in SIDES),
            number(rate[position]),
            *(number(busy[role], ".0%") for role, _, _ in SIDES),
            Cell(_waits(busy) or "neither"),
        ]
        for position, (row, (capacity, busy)) in enumerate(zip(each.rows, sides, strict=True))
    ]
    chart = Chart(
        name="balance",
        title="How busy each side is",
        summary=f"In the first row the {idle} side waits" if idle else "In the first row both sides are busy alike",
        traces=traces,
        layout={
            "xaxis": axis("busy, % of what the side can serve", range=[0, 105]),
            "yaxis": {"categoryorder": "array", "categoryarray": names[::-1], "type": "category"},
            "barmode": "group",
        },
        height=bars_height(2 * len(names)),
        table=Table("Rates of one replica", columns, rows),
    )
    first = frames.row(each.task.best, 0)
    workers = [
        f"{counted(first[f'{prefix}workers'], f'{role} worker')} of {first[f'{prefix}seq/s/worker']:.2f} requests/s"
        for role, prefix, _ in SIDES
    ]
    lines = [
        f"One replica of {each.name}, row 1: {' and '.join(workers)}. The prefill side can serve "
        f"{could_serve['prefill']:.2f} and the decode side {could_serve['decode']:.2f} requests/s, at the share of "
        f"their capacity that counts ({factors['prefill_degradation']:g} and {factors['decode_degradation']:g}).",
        f"The {idle} side waits {1 - first_busy[idle]:.0%} of its time." if idle else "Both sides are busy alike.",
    ]
    return Panel("balance", "Prefill against decode", [Text(lines), chart], short="Balance")


def _side(record: Mapping[str, Any], factors: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """What each side can serve [requests/s], and what share of it the replica uses."""
    capacity = {
        role: record[f"{prefix}workers"] * record[f"{prefix}seq/s/worker"] * factors[factor]
        for role, prefix, factor in SIDES
    }
    return capacity, {role: min(1.0, record["seq/s"] / served) if served else 0.0 for role, served in capacity.items()}


def _waits(busy: Mapping[str, float]) -> str | None:
    """The side that waits; None where both are busy alike."""
    idle = min(busy, key=lambda role: busy[role])
    return idle if busy[idle] < 1 - EVEN else None
