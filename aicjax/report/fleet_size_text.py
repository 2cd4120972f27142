# SPDX-License-Identifier: Apache-2.0
"""Sizings on a terminal: the cheapest fleet, fleets by threshold, fleets by rate and kind of replica."""

from typing import Any

from rich.console import Console

from aicjax._names import counted
from aicjax._results import NoFeasible
from aicjax.fleet.answer_parts import FleetAnswer, ParetoAnswer, PoolAnswer, SizeAnswer, WhatIfAnswer
from aicjax.report.fleet_view import View, fleet_phrase, interval, milliseconds, share, usd
from aicjax.report.table import Column, optional, print_fitted

_POOL_COLUMNS = (
    Column("pool", lambda pool: pool.name, "left"),
    Column("replica", lambda pool: pool.replica, "left"),
    Column("up to\ntokens", lambda pool: f"{pool.max_tokens:,}"),
    Column("replicas", lambda pool: f"{pool.replicas - pool.spare}" + (f" + {pool.spare}" if pool.spare else "")),
    Column("GPUs", lambda pool: str(pool.gpus)),
    Column("slots", lambda pool: str(pool.slots)),
    Column("req/s", lambda pool: f"{pool.rate_per_s:.2f}"),
    Column("busy", lambda pool: share(pool.utilization)),
    Column("wait\nshare", lambda pool: share(pool.wait_probability)),
    Column("wait\nms", lambda pool: milliseconds(pool.wait_ms)),
    Column("TTFT\nms", lambda pool: milliseconds(pool.ttft_ms)),
    Column("TTFT ms\nsimulated", lambda pool: interval(pool.ttft_simulated_ms)),
    Column("$/h", lambda pool: f"{pool.price_per_hour:.2f}"),
)


def print_pools(console: Console, title: str, pools: tuple[PoolAnswer, ...]) -> None:
    """Prints the pools of a fleet as a table."""
    simulated = any(pool.ttft_simulated_ms is not None for pool in pools)
    priced = any(pool.price_per_hour > 0 for pool in pools)
    without = (() if simulated else ("TTFT ms\nsimulated",)) + (() if priced else ("$/h",))
    columns = [column for column in _POOL_COLUMNS if column.header not in without]
    print_fitted(console, title, pools, columns, ("slots", "wait\nshare", "wait\nms"))


def fleet_lines(fleet: FleetAnswer) -> list[str]:
    """A fleet and its cost, in sentences."""
    cost = fleet.cost
    head = f"{fleet_phrase(fleet)}: {counted(fleet.gpus, 'GPU')}"
    if cost.per_hour > 0:
        lines = [
            f"{head}, {usd(cost.per_hour)}/h, {usd(cost.per_year)} a year",
            f"per million tokens: {usd(cost.per_million_output)} by output, {usd(cost.per_million_input)} by input, "
            f"{usd(cost.per_million_total)} by all; split by time {usd(cost.input_price)} input + "
            f"{usd(cost.output_price)} output",
        ]
    else:
        lines = [f"{head}; no price is stated"]
    if fleet.confidence is not None:
        lines.append(f"simulated: the limit is met with probability {fleet.confidence:.3f}")
    if fleet.refused > 0.5e-6:
        lines.append(f"refused: {fleet.refused:.4%} of the requests are longer than every pool takes")
    return lines


def shortfall(fleet: FleetAnswer) -> NoFeasible:
    """Why a fleet does not meet its limit."""
    room = all(pool.slots > 0 for pool in fleet.pools)
    nearest = f"; the nearest is {fleet_phrase(fleet)}" if room else ""
    return NoFeasible(f"Nothing meets the limit; binding: {fleet.binding}{nearest}.")


def _size_lines(answer: SizeAnswer) -> list[str]:
    lines = fleet_lines(answer.chosen)
    if answer.chosen.gamma > 1:
        lines.append(f"requests of up to {answer.chosen.gamma:g} times the threshold are compressed to it")
    return lines


_FLEET_COLUMNS = (
    Column("gamma", lambda fleet: f"{fleet.gamma:g}"),
    Column("fleet", fleet_phrase, "left"),
    Column("GPUs", lambda fleet: str(fleet.gpus)),
    Column("$ a year", lambda fleet: usd(fleet.cost.per_year)),
    Column("TTFT\nms", lambda fleet: milliseconds(fleet.ttft_ms)),
    Column("meets", lambda fleet: "yes" if fleet.meets else "no"),
    Column("simulated\nP(meets)", lambda fleet: optional(fleet.confidence, ".3f")),
)


def _size_table(answer: SizeAnswer, console: Console) -> None:
    print_pools(console, "pools", answer.chosen.pools)
    if len(answer.fleets) > 1:
        rest = [fleet for fleet in answer.fleets if fleet is not answer.chosen]
        print_fitted(console, "by reach of compression", [answer.chosen, *rest], _FLEET_COLUMNS)


def _size_failure(answer: SizeAnswer) -> NoFeasible | None:
    return None if answer.chosen.meets else shortfall(answer.chosen)


def _pareto_lines(answer: ParetoAnswer) -> list[str]:
    if answer.best is None:
        return ["no threshold meets the limit"]
    row = answer.rows[answer.best]
    where = "one pool" if row.threshold is None else f"pools part at {row.threshold:,} tokens"
    saved = f", {row.saving:.1%} less than one pool" if row.threshold is not None else ""
    return [f"{where}: {fleet_phrase(row.fleet)}, {usd(row.fleet.cost.per_year)} a year{saved}"]


_THRESHOLD_COLUMNS = (
    Column("threshold", lambda row: "one pool" if row.threshold is None else f"{row.threshold:,}"),
    Column("short\nshare", lambda row: share(row.fleet.pools[0].share) if len(row.fleet.pools) > 1 else "-"),
    Column("fleet", lambda row: fleet_phrase(row.fleet), "left"),
    Column("GPUs", lambda row: str(row.fleet.gpus)),
    Column("$ a year", lambda row: usd(row.fleet.cost.per_year)),
    Column("saves", lambda row: share(row.saving)),
    Column("TTFT\nms", lambda row: milliseconds(row.fleet.ttft_ms)),
    Column("meets", lambda row: "yes" if row.fleet.meets else "no"),
    Column("front", lambda row: "*" if row.pareto else "", "left"),
)


def _pareto_table(answer: ParetoAnswer, console: Console) -> None:
    print_fitted(console, "thresholds", answer.rows, _THRESHOLD_COLUMNS, bold_first=False)


def _pareto_failure(answer: ParetoAnswer) -> NoFeasible | None:
    return shortfall(answer.rows[0].fleet) if answer.best is None else None


def _whatif_lines(answer: WhatIfAnswer) -> list[str]:
    cheapest: dict[float, Any] = {}
    for row in answer.rows:
        known = cheapest.get(row.rate_per_s)
        if known is None or (not row.fleet.meets, row.fleet.cost.per_hour) < (
            not known.fleet.meets,
            known.fleet.cost.per_hour,
        ):
            cheapest[row.rate_per_s] = row
    return [
        f"{rate:g} req/s: {fleet_phrase(row.fleet)}, {usd(row.fleet.cost.per_year)} a year"
        for rate, row in cheapest.items()
    ]


_RATE_COLUMNS = (
    Column("req/s", lambda row: f"{row.rate_per_s:g}"),
    Column("fleet", lambda row: fleet_phrase(row.fleet), "left"),
    Column("gamma", lambda row: f"{row.fleet.gamma:g}"),
    Column("GPUs", lambda row: str(row.fleet.gpus)),
    Column("$/h", lambda row: f"{row.fleet.cost.per_hour:.2f}"),
    Column("$ a year", lambda row: usd(row.fleet.cost.per_year)),
    Column("$/M output", lambda row: f"{row.fleet.cost.per_million_output:.3f}"),
    Column("TTFT\nms", lambda row: milliseconds(row.fleet.ttft_ms)),
    Column("meets", lambda row: "yes" if row.fleet.meets else "no"),
)


def _whatif_table(answer: WhatIfAnswer, console: Console) -> None:
    print_fitted(console, "fleets", answer.rows, _RATE_COLUMNS, bold_first=False)


def _whatif_failure(answer: WhatIfAnswer) -> NoFeasible | None:
    for rate in dict.fromkeys(row.rate_per_s for row in answer.rows):
        rows = [row for row in answer.rows if row.rate_per_s == rate]
        if not any(row.fleet.meets for row in rows):
            return shortfall(rows[0].fleet)
    return None


VIEWS = {
    SizeAnswer: View(_size_lines, _size_table, _size_failure),
    ParetoAnswer: View(_pareto_lines, _pareto_table, _pareto_failure),
    WhatIfAnswer: View(_whatif_lines, _whatif_table, _whatif_failure),
}
