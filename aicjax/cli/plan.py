# SPDX-License-Identifier: Apache-2.0
"""`aicjax plan`: a load, its limits and a price in; deployment, replicas and cost out."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli import options
from aicjax.cli.fleet_output import FleetOutput, present
from aicjax.cli.options import flag

_PLAN = "What to plan with"


def command(
    ctx: Context,
    model_path: options.Model = None,
    systems: Annotated[
        str | None,
        flag("--system", "--systems", metavar="NAME,...", text="GPU systems to compare, for example h200_sxm."),
    ] = None,
    workload: fleet.Workload = None,
    trace: fleet.Trace = None,
    trace_format: fleet.TraceFormat = None,
    isl: fleet.Isl = None,
    osl: fleet.Osl = None,
    input_share: fleet.InputShare = None,
    rate_per_s: fleet.RatePerS = None,
    arrival_cv2: fleet.ArrivalCv2 = None,
    ttft_ms: Annotated[
        str | None, flag("--ttft", "--slo", panel="Limits", default="2000", metavar="MS", text="Limit on TTFT.")
    ] = None,
    percentile: fleet.Percentile = None,
    tpot_ms: Annotated[
        str | None, flag("--tpot", panel="Limits", default="30", metavar="MS", text="Limit on the mean TPOT.")
    ] = None,
    price_per_gpu_hour: Annotated[
        str | None,
        flag("--price", panel=_PLAN, default="none", metavar="USD,...", text="Price of a GPU hour, or one per system."),
    ] = None,
    backend: options.Backend = None,
    candidates: Annotated[
        str | None, flag("--candidates", panel=_PLAN, default="3", text="Deployments of each system to size.")
    ] = None,
    max_gpus_per_replica: Annotated[
        str | None, flag("--max-gpus-per-replica", panel=_PLAN, default="8", text="GPUs of the largest replica.")
    ] = None,
    spare_replicas: Annotated[
        str | None, flag("--spare-replicas", panel=_PLAN, default="1", text="Replicas that may fail at once.")
    ] = None,
    availability: fleet.Availability = None,
    max_utilization: fleet.MaxUtilization = None,
    database_mode: options.RecommendMode = None,
    constants: options.ConstantsName = None,
    requests: fleet.Requests = None,
    seeds: fleet.Seeds = None,
    seed: fleet.Seed = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Plan a deployment: how many replicas of what serve a load within its limits, at what cost and risk.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limits, 4 no measured data.
    """
    from aicjax.fleet.plan_request import PlanRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = PlanRequest(**given)

    from aicjax.fleet.answers import plan as answer

    present(request, answer, output)
