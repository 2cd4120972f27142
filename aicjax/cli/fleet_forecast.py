# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet forecast`: replicas and money over quarters."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli.flags import flag, takes
from aicjax.cli.fleet_output import FleetOutput, present

_GROWTH = "Growth"
_PRICES = "Prices of a replica: one, or one for each kind"


class _Growth:
    """How the rate grows."""

    growths: Annotated[
        str | None,
        flag(
            "--growth",
            panel=_GROWTH,
            metavar="SHARE,...",
            text="Growth of the rate in a quarter, 0.1 for 10 %; several are scenarios.",
        ),
    ]
    chances: Annotated[
        str | None,
        flag("--chances", panel=_GROWTH, default="equal", metavar="SHARE,...", text="Probability of each scenario."),
    ]
    quarters: Annotated[
        str | None, flag("--quarters", panel=_GROWTH, default="8", text="Quarters; the first has today's rate.")
    ]


class _Prices:
    """What a replica costs, bought or rented."""

    buy_usd: Annotated[str | None, flag("--buy", panel=_PRICES, metavar="USD,...", text="Price to buy it.")]
    own_usd_per_hour: Annotated[
        str | None,
        flag("--own", panel=_PRICES, default="0", metavar="USD/H,...", text="Power, space and people once owned."),
    ]
    rent_usd_per_hour: Annotated[
        str | None,
        flag("--rent", panel=_PRICES, default="as the replica", metavar="USD/H,...", text="Price to rent it."),
    ]
    lead_quarters: Annotated[
        str | None, flag("--lead", panel=_PRICES, default="0", metavar="QUARTERS", text="From order to use.")
    ]
    life_quarters: Annotated[
        str | None, flag("--life", panel=_PRICES, default="16", metavar="QUARTERS", text="How long it serves.")
    ]
    resale: Annotated[
        str | None,
        flag("--resale", panel=_PRICES, default="0", metavar="SHARE", text="Of the book value, paid back at the end."),
    ]


@takes(
    fleet.Workload,
    fleet.Load,
    _Growth,
    _Prices,
    fleet.Limits,
    fleet.Pools,
    fleet.Sizing,
    fleet.Output,
    without=("gamma_max", "compressible", "compat"),
)
def forecast(ctx: Context) -> None:
    """Plan replicas over quarters of growth: how many each one needs, which to buy and which to rent.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit in some quarter, 4 no measured data.
    """
    from aicjax.fleet.forecast_request import ForecastRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = ForecastRequest(**given)

    from aicjax.fleet.answers import forecast as answer

    present(request, answer, output)
