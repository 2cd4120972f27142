# SPDX-License-Identifier: Apache-2.0
"""The panel of safety: what being surer to keep the limits costs in throughput."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aicjax.explore import frame as frames
from aicjax.explore.columns import CLUSTER
from aicjax.explore.frame import Frame
from aicjax.explore.pareto import pareto_front
from aicjax.explore.shortfall import Limits
from aicjax.report import phrases, ranges
from aicjax.report.html.figures import axis, plain
from aicjax.report.html.parts import Cell, Chart, Column, Panel, Table, Text, number
from aicjax.report.html.shown import Shown, kept_rows
from aicjax.report.rows import workers

SURE = 0.8  # chance at which a configuration is named as the safer one: that of the ranges
_EXCESS = "largest share by which a limit is exceeded"


@dataclass(frozen=True)
class Margin:
    """Configurations of one experiment, from fast to sure: each later one is surer than all before it.

    Attributes:
        name: The experiment.
        rows: Its configurations.
        chance: Probability that each meets all limits [row].
    """

    name: str
    rows: Frame
    chance: np.ndarray

    def safer(self) -> int | None:
        """The fastest configuration with a chance of at least `SURE`; None without one."""
        sure = np.flatnonzero(self.chance >= SURE)
        return int(sure[0]) if sure.size else None

    def replica(self, position: int) -> str:
        """The replica of one row in words."""
        return phrases.composition(workers(frames.row(self.rows, position)))


def margins(shown: Sequence[Shown]) -> list[Margin]:
    """What each experiment offers, from fast to sure; nothing where its errors are not known."""
    found = []
    for each in shown:
        kept = kept_rows(each.task, each.request)
        if not frames.length(kept) or each.task.explain is None:
            continue
        near = _front(kept, each)
        chance = ranges.limits_met(each.task, each.request, near, each.task.explain(0).steps)
        if chance is None:
            continue
        order = np.argsort(-near[CLUSTER], kind="stable")
        best_before = np.concatenate([[-1.0], np.maximum.accumulate(chance[order])[:-1]])
        surer = order[chance[order] > best_before]
        found.append(Margin(each.name, frames.take(near, surer), chance[surer]))
    return [margin for margin in found if margin.chance.size]


def _front(kept: Frame, each: Shown) -> Frame:
    """Rows that yield more than all rows that are farther below the limits."""
    excess = Limits.of(each.request).excess(kept["ttft"], kept["tpot"], kept["request_latency"])
    columns = {**kept, _EXCESS: np.max(list(excess.values()), axis=0)}
    front = pareto_front(columns, _EXCESS, CLUSTER, maximize_x=False)
    return {name: column for name, column in front.items() if name != _EXCESS}


def panel(found: Sequence[Margin], shown: Sequence[Shown], chosen: str | None) -> Panel | None:
    """The panel; None where nothing is known of errors."""
    if not found:
        return None
    colours = {each.name: each.colour for each in shown}
    traces, rows = [], []
    for margin in found:
        colour = colours[margin.name]
        replicas = [margin.replica(position) for position in range(margin.chance.size)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": margin.name,
                "x": plain(100 * margin.chance),
                "y": plain(margin.rows[CLUSTER]),
                "columns": [replicas, plain(margin.rows["ttft"]), plain(margin.rows["tpot"])],
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "marker": {"color": colour, "size": 6},
                "hovertemplate": f"{margin.name}: <b>%{{customdata[0]}}</b><br>TTFT %{{customdata[1]}} ms, TPOT "
                "%{customdata[2]} ms<br>%{y:.2f} tokens/s/GPU, within the limits with %{x:.0f} %<extra></extra>",
            }
        )
        rows += [
            [
                Cell(margin.name, swatch=colour),
                Cell(replica),
                number(chance, ".0%"),
                number(record[CLUSTER]),
                number(record["ttft"], ",.1f"),
                number(record["tpot"]),
            ]
            for replica, chance, record in zip(replicas, margin.chance.tolist(), frames.rows(margin.rows), strict=True)
        ]
    first = next((each.rows[0] for each in shown if each.name == chosen and each.rows), None)
    if first is not None and first.ranges is not None and first.ranges.limits_met is not None:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "the answer",
                "x": [round(100 * first.ranges.limits_met, 3)],
                "y": [round(first.tokens_per_s_per_gpu, 3)],
                "marker": {
                    "color": colours[chosen or ""],
                    "size": 17,
                    "symbol": "star",
                    "line": {"color": "--mark", "width": 1.5},
                },
                "hovertemplate": "the answer: %{y:.2f} tokens/s/GPU, within the limits with %{x:.0f} %<extra></extra>",
            }
        )
    columns = [Column("experiment", False), Column("replica", False)]
    columns += map(Column, ("within the limits", "tokens/s/GPU", "TTFT, ms", "TPOT, ms"))
    chart = Chart(
        name="margin",
        title="Throughput against the chance to keep the limits",
        summary="How much throughput a surer configuration gives up",
        traces=traces,
        layout={
            "xaxis": axis("chance to keep all limits, %", range=[0, 101]),
            "yaxis": axis("tokens/s per GPU of the budget"),
        },
        height=380,
        table=Table("From fast to sure", columns, rows),
    )
    lines = [
        "Predictions are wrong by a factor that nobody knows before the server runs. Chances are shares of draws of "
        "that factor, as it was on measured servers that the fit had not seen. A configuration predicted to be just "
        "within a limit keeps it about every other time; one farther from its limits keeps them more often."
    ]
    return Panel("margin", "What being surer costs", [Text(lines), chart], short="How sure")
