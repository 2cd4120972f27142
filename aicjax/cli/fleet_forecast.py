# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet forecast`: replicas and money over quarters."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli import options
from aicjax.cli.fleet_output import FleetOutput, present
from aicjax.cli.options import flag

_GROWTH = "Growth"
_PRICES = "Prices of a replica: one, or one for each kind"


def forecast(
    ctx: Context,
    workload: fleet.Workload = None,
    trace: fleet.Trace = None,
    trace_format: fleet.TraceFormat = None,
    isl: fleet.Isl = None,
    osl: fleet.Osl = None,
    input_share: fleet.InputShare = None,
    rate_per_s: fleet.RatePerS = None,
    arrival_cv2: fleet.ArrivalCv2 = None,
    growths: Annotated[
        str | None,
        flag(
            "--growth",
            panel=_GROWTH,
            metavar="SHARE,...",
            text="Growth of the rate in a quarter, 0.1 for 10 %; several are scenarios.",
        ),
    ] = None,
    chances: Annotated[
        str | None,
        flag("--chances", panel=_GROWTH, default="equal", metavar="SHARE,...", text="Probability of each scenario."),
    ] = None,
    quarters: Annotated[
        str | None, flag("--quarters", panel=_GROWTH, default="8", text="Quarters; the first has today's rate.")
    ] = None,
    buy_usd: Annotated[str | None, flag("--buy", panel=_PRICES, metavar="USD,...", text="Price to buy it.")] = None,
    own_usd_per_hour: Annotated[
        str | None,
        flag("--own", panel=_PRICES, default="0", metavar="USD/H,...", text="Power, space and people once owned."),
    ] = None,
    rent_usd_per_hour: Annotated[
        str | None,
        flag("--rent", panel=_PRICES, default="as the replica", metavar="USD/H,...", text="Price to rent it."),
    ] = None,
    lead_quarters: Annotated[
        str | None, flag("--lead", panel=_PRICES, default="0", metavar="QUARTERS", text="From order to use.")
    ] = None,
    life_quarters: Annotated[
        str | None, flag("--life", panel=_PRICES, default="16", metavar="QUARTERS", text="How long it serves.")
    ] = None,
    resale: Annotated[
        str | None,
        flag("--resale", panel=_PRICES, default="0", metavar="SHARE", text="Of the book value, paid back at the end."),
    ] = None,
    ttft_ms: fleet.TtftMs = None,
    percentile: fleet.Percentile = None,
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: fleet.Thresholds = None,
    max_tokens: fleet.MaxTokens = None,
    availability: fleet.Availability = None,
    max_utilization: fleet.MaxUtilization = None,
    spare_replicas: fleet.SpareReplicas = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Plan replicas over quarters of growth: how many each one needs, which to buy and which to rent.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit in some quarter, 4 no measured data.
    """
    from aicjax.fleet.forecast_request import ForecastRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = ForecastRequest(**given)

    from aicjax.fleet.answers import forecast as answer

    present(request, answer, output)
