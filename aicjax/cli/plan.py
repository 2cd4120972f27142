# SPDX-License-Identifier: Apache-2.0
"""`aicjax plan`: a load, its limits and a price in; deployment, replicas and cost out."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli import options
from aicjax.cli.flags import flag, takes
from aicjax.cli.fleet_output import FleetOutput, present

_PLAN = "What to plan with"


class _What:
    """Model, and systems to compare."""

    model_path: options.Model
    systems: Annotated[
        str | None,
        flag("--system", "--systems", metavar="NAME,...", text="GPU systems to compare, for example h200_sxm."),
    ]


class _Plan:
    """Limits of a plan, prices, and what it may choose."""

    ttft_ms: Annotated[
        str | None, flag("--ttft", "--slo", panel="Limits", default="2000", metavar="MS", text="Limit on TTFT.")
    ]
    tpot_ms: Annotated[
        str | None, flag("--tpot", panel="Limits", default="30", metavar="MS", text="Limit on the mean TPOT.")
    ]
    price_per_gpu_hour: Annotated[
        str | None,
        flag("--price", panel=_PLAN, default="none", metavar="USD,...", text="Price of a GPU hour, or one per system."),
    ]
    backend: options.Backend
    candidates: Annotated[
        str | None, flag("--candidates", panel=_PLAN, default="3", text="Deployments of each system to size.")
    ]
    max_gpus_per_replica: Annotated[
        str | None, flag("--max-gpus-per-replica", panel=_PLAN, default="8", text="GPUs of the largest replica.")
    ]
    spare_replicas: Annotated[
        str | None, flag("--spare-replicas", panel=_PLAN, default="1", text="Replicas that may fail at once.")
    ]
    availability: fleet.Availability
    max_utilization: fleet.MaxUtilization
    database_mode: options.RecommendMode
    constants: options.ConstantsName


@takes(_What, fleet.Workload, fleet.Load, fleet.Limits, _Plan, fleet.Simulation, fleet.Output, without=("compat",))
def command(ctx: Context) -> None:
    """Plan a deployment: how many replicas of what serve a load within its limits, at what cost and risk.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.fleet.plan_request import PlanRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = PlanRequest(**given)

    from aicjax.fleet.answers import plan as answer

    present(request, answer, output)
