# SPDX-License-Identifier: Apache-2.0
"""Simulations on a terminal: a stated fleet, and routing rules on the same requests."""

from typing import Any

from rich.console import Console

from aicjax._names import counted
from aicjax._results import NoFeasible
from aicjax.fleet.answer_parts import MET, MISSED
from aicjax.fleet.run_answers import RoutersAnswer, SimulateAnswer, Simulated, SimulatedPool
from aicjax.report.fleet_view import View, interval, milliseconds, share, usd
from aicjax.report.table import Column, optional, print_fitted


def _within(result: Simulated) -> str:
    return optional(result.within_limit and result.within_limit.value, ".2%")


def _lost(result: Simulated) -> str:
    return str(result.rejected + result.refused)


def _load(result: Simulated, slots: int) -> str:
    return share(result.offered) if slots else "-"


def _horizon(answer: SimulateAnswer | RoutersAnswer) -> str:
    start = answer.start if isinstance(answer, SimulateAnswer) else None
    begin = "" if start is None else f", from {'an empty' if start == 'empty' else 'a settled'} fleet"
    return f"{answer.runs} runs of {answer.requests:,} requests, {answer.horizon_s:,.1f} s each{begin}"


def _simulate_lines(answer: SimulateAnswer) -> list[str]:
    pools = " + ".join(f"{pool.replicas} {pool.replica}" for pool in answer.pools)
    fleet = answer.fleet
    headline = (
        f"{answer.verdict}: {_within(fleet)} within {answer.asked.ttft_ms:g} ms with {pools}, router {answer.router}"
    )
    lines = [
        headline,
        f"P{answer.asked.percentile:g} TTFT {interval(fleet.ttft_ms)} ms, median {interval(fleet.ttft_p50_ms)} ms",
        f"{counted(answer.gpus, 'GPU')}, {usd(answer.price_per_hour)}/h, {usd(answer.price_per_year)} a year; "
        f"{_horizon(answer)}",
    ]
    busy = max(answer.pools, key=lambda pool: pool.result.offered)
    if busy.result.offered >= 1:
        lines.append(
            f"unstable: the {busy.name} pool gets {busy.result.offered:.0%} of what it can serve; "
            f"times are those of the first {answer.horizon_s:,.1f} s and grow without bound"
        )
    full = _without_slots(answer)
    if full:
        lines.append(f"no room for a request of up to {full.max_tokens:,} tokens on a replica of the {full.name} pool")
    elif fleet.refused:
        lines.append(f"refused: {fleet.refused:,} of {fleet.requests:,} requests are longer than their pool takes")
    return lines + _bounds_lines(answer)


def _without_slots(answer: SimulateAnswer) -> SimulatedPool | None:
    """The first pool that holds no request of the length that it reserves for."""
    return next((pool for pool in answer.pools if not pool.slots), None)


def _bounds_lines(answer: SimulateAnswer) -> list[str]:
    bounds, rate_per_s = answer.bounds, answer.asked.rate_per_s
    if bounds is None or rate_per_s is None:
        return [f"no closed form: router {answer.router} over these pools"]
    rate = bounds.breaking_rate_per_s
    lines = [f"closed form: the limit holds up to {rate:,.1f} req/s, {rate / rate_per_s:.0%} of this load"]
    if bounds.enough is not None:
        lines.append(f"enough replicas are up {bounds.enough:.3%} of the time")
    return lines


_POOL_COLUMNS = (
    Column("pool", lambda row: row[0], "left"),
    Column("replicas", lambda row: row[1]),
    Column("up to\ntokens", lambda row: row[2]),
    Column("requests", lambda row: f"{row[3].requests:,}"),
    Column("not\nserved", lambda row: _lost(row[3])),
    Column("load", lambda row: _load(row[3], row[4])),
    Column("busy", lambda row: share(row[3].utilization)),
    Column("wait\nms", lambda row: milliseconds(row[3].wait_ms)),
    Column("median\nTTFT ms", lambda row: interval(row[3].ttft_p50_ms)),
    Column("TTFT ms", lambda row: interval(row[3].ttft_ms)),
    Column("within\nlimit", lambda row: _within(row[3])),
)


_DOWN_COLUMNS = (
    Column("pool", lambda row: row[0].name, "left"),
    Column("needed", lambda row: optional(row[0].needed, "d")),
    Column("spares\nadvised", lambda row: optional(row[0].spare, "d")),
    Column("up", lambda row: str(row[0].replicas - row[1].down)),
    Column("down", lambda row: str(row[1].down)),
    Column("probability", lambda row: optional(row[1].probability, ".3%")),
    Column("busy", lambda row: share(row[1].utilization)),
    Column("TTFT\nms", lambda row: milliseconds(row[1].ttft_ms)),
    Column("verdict", lambda row: row[1].verdict, "left"),
)


def _simulate_table(answer: SimulateAnswer, console: Console) -> None:
    rows: list[Any] = [("fleet", "", "", answer.fleet, sum(pool.slots for pool in answer.pools))]
    rows += [
        (pool.name, f"{pool.replicas} {pool.replica}", f"{pool.max_tokens:,}", pool.result, pool.slots)
        for pool in answer.pools
    ]
    print_fitted(console, "fleet and pools", rows, _POOL_COLUMNS, ("median\nTTFT ms", "requests", "busy"))
    if answer.bounds is not None:
        states = [(pool, state) for pool in answer.bounds.pools for state in pool.down]
        console.print()
        print_fitted(console, "closed form, replicas down", states, _DOWN_COLUMNS, bold_first=False)


def _simulate_failure(answer: SimulateAnswer) -> NoFeasible | None:
    if answer.verdict == MET:
        return None
    within = f"{_within(answer.fleet)} within {answer.asked.ttft_ms:g} ms"
    full = _without_slots(answer)
    if full is not None and answer.verdict == MISSED:
        room = f"no room for a request of up to {full.max_tokens:,} tokens in the {full.name} pool"
        return NoFeasible(f"The fleet is missed: {within}; binding: memory, {room}.")
    worst = max(answer.pools, key=lambda pool: pool.result.offered)
    cause = "load" if answer.verdict == "unstable" else "TTFT"
    return NoFeasible(
        f"The fleet is {answer.verdict}: {within}; binding: {cause}, "
        f"{worst.name} pool at {worst.result.offered:.0%} of what it can serve."
    )


_ROUTER_COLUMNS = (
    Column("router", lambda row: row.router, "left"),
    Column("TTFT ms", lambda row: interval(row.fleet.ttft_ms)),
    Column("more than\nthe first, ms", lambda row: interval(row.slower_ms)),
    Column("median\nTTFT ms", lambda row: interval(row.fleet.ttft_p50_ms)),
    Column("within\nlimit", lambda row: _within(row.fleet)),
    Column("not\nserved", lambda row: _lost(row.fleet)),
    Column("busy", lambda row: share(row.fleet.utilization)),
    Column("pools", lambda row: ", ".join(f"{name} {part:.0%}" for name, part in row.pools.items()), "left"),
    Column("verdict", lambda row: row.verdict, "left"),
)


def _routers_lines(answer: RoutersAnswer) -> list[str]:
    def rank(row: Any) -> tuple[float, float]:
        within = row.fleet.within_limit
        late = row.fleet.ttft_ms
        return (-within.value if within else 0.0, late.value if late else float("inf"))

    best = min(answer.rows, key=rank)
    return [f"{best.router}: {_within(best.fleet)} within {answer.asked.ttft_ms:g} ms", _horizon(answer)]


def _routers_table(answer: RoutersAnswer, console: Console) -> None:
    dropped = ("median\nTTFT ms", "busy", "pools")
    print_fitted(console, "routers on the same requests", answer.rows, _ROUTER_COLUMNS, dropped, bold_first=False)


VIEWS = {
    SimulateAnswer: View(_simulate_lines, _simulate_table, _simulate_failure),
    RoutersAnswer: View(_routers_lines, _routers_table, lambda answer: None),
}
