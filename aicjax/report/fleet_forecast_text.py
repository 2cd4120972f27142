# SPDX-License-Identifier: Apache-2.0
"""Forecasts on a terminal: replicas and money by quarter."""

from rich.console import Console

from aicjax._results import NoFeasible
from aicjax.fleet.forecast_answers import ForecastAnswer, KindForecast
from aicjax.report.fleet_view import View, share, usd
from aicjax.report.table import Column, print_fitted


def _lines(answer: ForecastAnswer) -> list[str]:
    saved = answer.rent_only_usd - answer.usd
    first, last = (sum(kind.quarters[place].needed for kind in answer.kinds) for place in (0, -1))
    scenarios = ", ".join(
        f"{growth:+.1%} a quarter" + ("" if len(answer.growths) == 1 else f" (chance {chance:.0%})")
        for growth, chance in zip(answer.growths, answer.chances, strict=True)
    )
    return [
        f"{_number(first)} replicas now, {_number(last)} in quarter {len(answer.rates_per_s)}: "
        f"{usd(answer.usd)} in all, {usd(saved)} less than renting all",
        f"load: {scenarios}",
        *(_kind_line(kind) for kind in answer.kinds),
    ]


def _kind_line(kind: KindForecast) -> str:
    bought = sum(quarter.bought for quarter in kind.quarters)
    back = f", {usd(kind.resale_usd)} back at the end" if kind.resale_usd > 0 else ""
    pays = kind.breakeven_in_use
    rule = f"owning pays from {pays:.0%} of its life in use on" if pays <= 1 else "owning never pays"
    plan = f"buy {bought} at {usd(kind.buy_usd)}{back}, rent others at {usd(kind.rent_usd_per_hour)}/h"
    return f"{kind.replica}: {plan}; {rule}"


def _number(value: float) -> str:
    """A mean of counts: whole where it is."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _rate(rates_per_s: tuple[float, ...]) -> str:
    low, high = min(rates_per_s), max(rates_per_s)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


_COLUMNS = (
    Column("quarter", lambda row: str(row[0])),
    Column("req/s", lambda row: _rate(row[1])),
    Column("replica", lambda row: row[2], "left"),
    Column("needed", lambda row: _number(row[3].needed)),
    Column("most", lambda row: str(row[3].most_needed)),
    Column("bought", lambda row: str(row[3].bought)),
    Column("owned", lambda row: str(row[3].owned)),
    Column("in use", lambda row: share(row[3].in_use) if row[3].owned else "-"),
    Column("rented", lambda row: _number(row[3].rented)),
    Column("$ buy", lambda row: usd(row[3].buy_usd)),
    Column("$ own", lambda row: usd(row[3].own_usd)),
    Column("$ rent", lambda row: usd(row[3].rent_usd)),
    Column("$ in all", lambda row: usd(row[3].usd)),
)


def _table(answer: ForecastAnswer, console: Console) -> None:
    rows = [
        (place + 1, rates, kind.replica, kind.quarters[place])
        for place, rates in enumerate(answer.rates_per_s)
        for kind in answer.kinds
    ]
    columns = [column for column in _COLUMNS if column.header != "most" or len(answer.growths) > 1]
    print_fitted(console, "quarters", rows, columns, ("in use", "replica"), bold_first=False)


def _failure(answer: ForecastAnswer) -> NoFeasible | None:
    return None if answer.binding is None else NoFeasible(f"Nothing meets the limit; binding: {answer.binding}.")


VIEWS = {ForecastAnswer: View(_lines, _table, _failure)}
