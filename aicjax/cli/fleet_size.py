# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet size`, `pareto` and `whatif`: how many replicas a load needs."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli.flags import flag, takes
from aicjax.cli.fleet_output import FleetOutput, present


class _Check:
    """The check by simulation."""

    verify_top: Annotated[
        str | None,
        flag("--verify-top", panel="Simulation", default="3", text="Cheapest fleets to simulate; 0 for none."),
    ]


@takes(fleet.Workload, fleet.Load, fleet.Limits, fleet.Pools, fleet.Sizing, _Check, fleet.Simulation, fleet.Output)
def size(ctx: Context) -> None:
    """Find the cheapest fleet that serves a rate within a limit on TTFT, and check it by simulation.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit, 4 no measured data.
    """
    from aicjax.fleet.requests import SizeRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    if given.get("compat") == "fleet-reference":
        given = {"thresholds": "4096", **given}
    request = SizeRequest(**given)

    from aicjax.fleet.answers import size as answer

    present(request, answer, output)


class _Pareto:
    """What differs where thresholds are weighed."""

    thresholds: Annotated[
        str | None,
        flag(
            "--thresholds",
            panel="Replicas and pools",
            default="the points of the distribution",
            metavar="TOKENS,...",
            text="Total tokens at which two pools may part.",
        ),
    ]
    gamma_max: Annotated[
        str | None,
        flag(
            "--gamma-max",
            panel="Rules of the sizing",
            default="1",
            metavar="FACTOR",
            text="Requests of up to so many times the threshold may be compressed to it.",
        ),
    ]


@takes(fleet.Workload, fleet.Load, fleet.Limits, fleet.Pools, fleet.Sizing, _Pareto, fleet.Output)
def pareto(ctx: Context) -> None:
    """Weigh cost against latency over the thresholds between two pools.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit, 4 no measured data.
    """
    from aicjax.fleet.requests import ParetoRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = ParetoRequest(**given)

    from aicjax.fleet.answers import pareto as answer

    present(request, answer, output)


class _Rates:
    """The rates to size for."""

    rates_per_s: Annotated[
        str | None,
        flag(
            "--rates",
            "--lam-range",
            panel="Workload",
            default="50,100,200,500,1000",
            metavar="REQ/S,...",
            text="Rates to size for.",
        ),
    ]


class _Kinds:
    """The kinds of replica to size with."""

    compare: Annotated[
        str | None,
        flag(
            "--compare",
            "--gpu-compare",
            panel="Replicas and pools",
            metavar="NAME,...",
            text="Kinds of replica to compare, each in all pools.",
        ),
    ]


@takes(
    fleet.Workload,
    _Rates,
    fleet.Load,
    fleet.Limits,
    _Kinds,
    fleet.Pools,
    fleet.Sizing,
    fleet.Output,
    without=("rate_per_s",),
)
def whatif(ctx: Context) -> None:
    """Size a fleet for several rates, or compare kinds of replica.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit at some rate, 4 no measured data.
    """
    from aicjax.fleet.requests import WhatIfRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    if given.get("compat") == "fleet-reference":
        given = {"thresholds": "4096", **given}
    request = WhatIfRequest(**given)

    from aicjax.fleet.answers import whatif as answer

    present(request, answer, output)
