# SPDX-License-Identifier: Apache-2.0
"""Disaggregated fleets and power on a terminal."""

from rich.console import Console

from aicjax._names import counted
from aicjax._results import NoFeasible
from aicjax.fleet.phase_answers import DisaggAnswer, DisaggRow, FlexAnswer, WattAnswer
from aicjax.report.fleet_view import View, milliseconds, share, usd
from aicjax.report.table import Column, print_fitted

_MOST_ROWS = 12

_DISAGG_COLUMNS = (
    Column("prefill", lambda row: str(row.prefill)),
    Column("decode", lambda row: str(row.decode)),
    Column("GPUs", lambda row: str(row.gpus)),
    Column("$/h", lambda row: f"{row.price_per_hour:.2f}"),
    Column("$ a year", lambda row: usd(row.price_per_year)),
    Column("req/s\nat most", lambda row: f"{row.capacity_per_s:.1f}"),
    Column("prefill\nbusy", lambda row: share(row.prefill_utilization)),
    Column("decode\nbusy", lambda row: share(row.decode_utilization)),
    Column("TTFT\nms", lambda row: milliseconds(row.ttft_ms)),
    Column("TPOT\nms", lambda row: milliseconds(row.tpot_ms)),
    Column("bottleneck", lambda row: row.bottleneck, "left"),
)


def _phrase(answer: DisaggAnswer, row: DisaggRow) -> str:
    return f"{row.prefill} {answer.prefill} for prefill + {row.decode} {answer.decode} for decode"


def _disagg_lines(answer: DisaggAnswer) -> list[str]:
    best = answer.rows[0]
    return [
        f"{_phrase(answer, best)}: {counted(best.gpus, 'GPU')}, {usd(best.price_per_hour)}/h, "
        f"{usd(best.price_per_year)} a year",
        f"up to {best.capacity_per_s:.1f} req/s; bottleneck {best.bottleneck}; TTFT {milliseconds(best.ttft_ms)} ms, "
        f"TPOT {milliseconds(best.tpot_ms)} ms (limit {answer.tpot_ms:g} ms)",
    ]


def _disagg_table(answer: DisaggAnswer, console: Console) -> None:
    print_fitted(console, "price against capacity", answer.rows[:_MOST_ROWS], _DISAGG_COLUMNS)


def _disagg_failure(answer: DisaggAnswer) -> NoFeasible | None:
    if answer.binding is None:
        return None
    nearest = _phrase(answer, answer.rows[0])
    return NoFeasible(f"Nothing meets the limits; binding: {answer.binding}; the nearest is {nearest}.")


def _flex_lines(answer: FlexAnswer) -> list[str]:
    full = answer.rows[0]
    if answer.best is None:
        return [f"{answer.replicas} {answer.replica} miss the limit without any cut"]
    best = answer.rows[answer.best]
    return [
        f"{answer.replicas} {answer.replica} can shed {best.cut:.0%} of their power: {best.cap_kw:.1f} kW at most, "
        f"{full.cap_kw - best.cap_kw:.1f} kW less than at full load",
        f"at this load they draw {best.fleet_kw:.1f} kW; power law: {answer.evidence} evidence",
    ]


_FLEX_COLUMNS = (
    Column("cut", lambda row: f"{row.cut:.0%}"),
    Column("requests of\na replica", lambda row: str(row.cap)),
    Column("kW\nat most", lambda row: f"{row.cap_kw:.2f}"),
    Column("kW at\nthis load", lambda row: f"{row.fleet_kw:.2f}"),
    Column("W of a GPU\nat most", lambda row: f"{row.cap_gpu_w:.0f}"),
    Column("busy", lambda row: share(row.utilization)),
    Column("TTFT\nms", lambda row: milliseconds(row.ttft_ms)),
    Column("verdict", lambda row: row.verdict, "left"),
)


def _flex_table(answer: FlexAnswer, console: Console) -> None:
    print_fitted(console, "cuts", answer.rows, _FLEX_COLUMNS, bold_first=False)


def _flex_failure(answer: FlexAnswer) -> NoFeasible | None:
    if answer.best is not None:
        return None
    return NoFeasible(f"The fleet misses the limit without any cut; binding: {answer.rows[0].verdict}.")


_WATT_COLUMNS = (
    Column("fleet", lambda row: row.fleet, "left"),
    Column("sized by", lambda row: "limit" if row.sized else "utilisation", "left"),
    Column("busy", lambda row: share(row.utilization)),
    Column("tokens/J", lambda row: f"{row.tokens_per_joule:.2f}"),
    Column("kW", lambda row: f"{row.fleet_kw:.2f}"),
    Column("W of a\nGPU", lambda row: f"{row.gpu_w:.0f}"),
    Column("$/M\noutput", lambda row: f"{row.usd_per_million_output:.3f}"),
    Column("TTFT\nms", lambda row: milliseconds(row.ttft_ms)),
    Column("meets", lambda row: "yes" if row.meets else "no"),
    Column("evidence", lambda row: row.evidence, "left"),
)


def _watt_lines(answer: WattAnswer) -> list[str]:
    best = answer.rows[0]
    return [
        f"{best.fleet}: {best.tokens_per_joule:.2f} output tokens per joule, {best.fleet_kw:.2f} kW for "
        f"{best.tokens_per_s:,.0f} tokens/s",
    ]


def _watt_table(answer: WattAnswer, console: Console) -> None:
    print_fitted(console, "output tokens per second and watt", answer.rows, _WATT_COLUMNS)


def _watt_failure(answer: WattAnswer) -> NoFeasible | None:
    if any(row.meets for row in answer.rows):
        return None
    return NoFeasible(f"Nothing meets the limit; the nearest is {answer.rows[0].fleet}.")


VIEWS = {
    DisaggAnswer: View(_disagg_lines, _disagg_table, _disagg_failure),
    FlexAnswer: View(_flex_lines, _flex_table, _flex_failure),
    WattAnswer: View(_watt_lines, _watt_table, _watt_failure),
}
