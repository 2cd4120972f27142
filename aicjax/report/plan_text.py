# SPDX-License-Identifier: Apache-2.0
"""A plan on a terminal: the deployment, its replicas, cost and risk, and what else was considered."""

from rich.console import Console

from aicjax._names import counted
from aicjax._results import NoFeasible
from aicjax.fleet.answer_parts import MET, PREFILL_TOO_SLOW
from aicjax.fleet.plan_answers import PlanAnswer, PlanRow
from aicjax.report.fleet_view import View, interval, milliseconds, share, usd
from aicjax.report.table import Column, optional, print_fitted


def _layout(row: PlanRow) -> str:
    axes = {"tp": row.tp, "pp": row.pp, "dp": row.dp, "etp": row.moe_tp, "ep": row.moe_ep}
    return " ".join(f"{axis}{size}" for axis, size in axes.items() if size > 1 or axis == "tp")


def _deployment(row: PlanRow) -> str:
    return f"{_layout(row)}, batch {row.batch_size}, {row.backend} on {row.gpus_per_replica} x {row.system}"


def _lines(answer: PlanAnswer) -> list[str]:
    best = answer.rows[0]
    spare = f" ({best.needed} needed, {best.spare} spare)" if best.spare else ""
    head = f"{counted(best.replicas, 'replica')}{spare} of {_deployment(best)}: {counted(best.gpus, 'GPU')}"
    if best.cost is None:
        lines = [f"{head}; no price of a GPU is stated: the fewest GPUs are first"]
    else:
        lines = [
            f"{head}, {usd(best.cost.per_hour)}/h, {usd(best.cost.per_year)} a year",
            f"per million tokens: {usd(best.cost.per_million_output)} by output, {usd(best.cost.per_million_input)} by "
            f"input, {usd(best.cost.per_million_total)} by all",
        ]
    if best.confidence is not None:
        lines.append(
            f"simulated step by step: P{answer.asked.percentile:g} TTFT {interval(best.ttft_simulated_ms)} ms, "
            f"mean TPOT {interval(best.tpot_simulated_ms)} ms; the limit is met with probability {best.confidence:.3f}"
        )
    if best.enough_up < 1:
        lines.append(f"enough replicas are up with probability {best.enough_up:.4f}")
    lines += [f"{system}, no deployment: {reason}" for system, reason in answer.refused.items()]
    return lines


_REPLICAS = (
    Column("deployment", _deployment, "left"),
    Column("replicas", lambda row: f"{row.needed} + {row.spare}" if row.spare else str(row.needed)),
    Column("GPUs", lambda row: str(row.gpus)),
)
_PRICES = (
    Column("$/h", lambda row: f"{row.cost.per_hour:.2f}"),
    Column("$/M\noutput", lambda row: f"{row.cost.per_million_output:.3f}"),
)
_NUMBERS = (
    Column("busy", lambda row: share(row.utilization)),
    Column("TTFT ms\nqueue law", lambda row: milliseconds(row.ttft_ms)),
    Column("TTFT ms\nsimulated", lambda row: interval(row.ttft_simulated_ms)),
    Column("TPOT ms", lambda row: interval(row.tpot_simulated_ms) if row.tpot_simulated_ms else f"{row.tpot_ms:.1f}"),
    Column("P(meets)", lambda row: optional(row.confidence, ".3f")),
    Column("verdict", lambda row: row.verdict, "left"),
)


def _table(answer: PlanAnswer, console: Console) -> None:
    dropped = ("busy", "TTFT ms\nqueue law", "$/M\noutput")
    prices = _PRICES if answer.rows[0].cost is not None else ()
    print_fitted(console, "deployments", answer.rows, (*_REPLICAS, *prices, *_NUMBERS), dropped)


def _failure(answer: PlanAnswer) -> NoFeasible | None:
    best = answer.rows[0]
    if best.verdict == MET:
        return None
    alone = "" if best.verdict != PREFILL_TOO_SLOW else "; no number of replicas helps"
    return NoFeasible(f"Nothing meets the limits; binding: {best.verdict}{alone}; the nearest is {_deployment(best)}.")


VIEWS = {PlanAnswer: View(_lines, _table, _failure)}
