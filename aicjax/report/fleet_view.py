# SPDX-License-Identifier: Apache-2.0
"""What all answers about fleets on a terminal share: the question, and words for fleets, money and intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from aicjax._results import NoFeasible
from aicjax.fleet.answer_parts import Asked, FleetAnswer, Interval, PoolAnswer
from aicjax.report.table import optional


class View(NamedTuple):
    """How a kind of answer is shown.

    Attributes:
        lines: The answer in sentences; the first one stands for all.
        table: Prints its table.
        failure: What keeps it from its limits, or None.
    """

    lines: Callable[[Any], Sequence[str]]
    table: Callable[[Any, Console], None]
    failure: Callable[[Any], NoFeasible | None]


def question(asked: Asked) -> str:
    """What was asked, in a line."""
    work = asked.workload
    rate = "" if asked.rate_per_s is None else f"{asked.rate_per_s:g} req/s of "
    lengths = f"(mean isl {work.mean_isl:,.0f}, osl {work.mean_osl:,.0f}; up to {work.longest_tokens:,} tokens)"
    limit = f"P{asked.percentile:g} TTFT <= {asked.ttft_ms:g} ms"
    rules = "" if asked.compat == "default" else f"; rules of the {asked.compat.replace('-', ' ')}"
    return f"{rate}{work.name} {lengths}, {limit}{rules}"


def fleet_phrase(fleet: FleetAnswer) -> str:
    """A fleet in words: `18 a100 (short) + 6 h100 (long)`."""
    return " + ".join(pool_phrase(pool, alone=len(fleet.pools) == 1) for pool in fleet.pools)


def pool_phrase(pool: PoolAnswer, *, alone: bool = False) -> str:
    """A pool in words."""
    return f"{pool.replicas} {pool.replica}" + ("" if alone else f" ({pool.name})")


def usd(amount: float) -> str:
    """An amount of dollars: cents below 100, thousands grouped."""
    return f"${amount:,.2f}" if abs(amount) < 100 else f"${amount:,.0f}"


def milliseconds(value: float | None) -> str:
    """A time, or a dash."""
    return optional(value, ",.1f")


def interval(value: Interval | None) -> str:
    """A figure of a simulation with the ends of its interval."""
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return f"{value.value:,.1f}"
    return f"{value.value:,.1f} ({value.low:,.1f} to {value.high:,.1f})"


def share(value: float | None) -> str:
    """A share in percent."""
    return optional(value, ".1%")
