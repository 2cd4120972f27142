# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet simulate` and `routers`: a stated fleet, request by request."""

from typing import Annotated

from typer import Argument, Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli import options
from aicjax.cli.fleet_output import FleetOutput, present
from aicjax.cli.fleet_pools import take_fleet
from aicjax.cli.options import flag

_POOLS = "Replicas and pools"
_SIMULATION = "Simulation"

FleetFile = Annotated[
    str | None, flag("--fleet", panel=_POOLS, metavar="FILE", text="Pools and router, as JSON or YAML.")
]
Replicas = Annotated[
    str | None, flag("--replicas", panel=_POOLS, metavar="N,...", text="Replicas of each pool, short requests first.")
]
ShortReplicas = Annotated[str | None, flag("--n-s", panel=_POOLS, text="Replicas of the short of two pools.")]
Horizon = Annotated[
    str | None,
    flag(
        "--horizon",
        panel=_SIMULATION,
        default="the long run",
        metavar="SECONDS",
        text="Simulate what arrives in this time; all of it counts.",
    ),
]
Start = Annotated[
    str | None,
    flag(
        "--start",
        panel=_SIMULATION,
        default="empty",
        metavar="empty|settled",
        text="Requests under way when a horizon begins: none, or as many as the load keeps in service.",
    ),
]
EnoughProbability = Annotated[
    str | None,
    flag(
        "--enough-probability",
        panel=_POOLS,
        default="0.999",
        metavar="SHARE",
        text="Probability with which enough replicas are to be up, for the spares (with --availability).",
    ),
]
LongReplicas = Annotated[str | None, flag("--n-l", panel=_POOLS, text="Replicas of the long of two pools.")]
ROUTERS = "length|spillover|compress|least_loaded|round_robin|random"


def simulate(
    ctx: Context,
    workload: fleet.Workload = None,
    trace: fleet.Trace = None,
    trace_format: fleet.TraceFormat = None,
    isl: fleet.Isl = None,
    osl: fleet.Osl = None,
    input_share: fleet.InputShare = None,
    rate_per_s: fleet.RatePerS = None,
    arrival_cv2: fleet.ArrivalCv2 = None,
    ttft_ms: fleet.TtftMs = None,
    percentile: fleet.Percentile = None,
    fleet_file: FleetFile = None,
    replicas: Replicas = None,
    n_s: ShortReplicas = None,
    n_l: LongReplicas = None,
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: fleet.Thresholds = None,
    max_tokens: fleet.MaxTokens = None,
    router: Annotated[
        str | None, flag("--router", panel=_POOLS, default="length", metavar=ROUTERS, text="Rule of the routing.")
    ] = None,
    gamma: Annotated[
        str | None,
        flag(
            "--gamma",
            panel=_POOLS,
            default="1",
            metavar="FACTOR",
            text="Compress requests of up to so many times the threshold to it (two pools).",
        ),
    ] = None,
    availability: fleet.Availability = None,
    enough_probability: EnoughProbability = None,
    horizon_s: Horizon = None,
    start: Start = None,
    requests: fleet.Requests = None,
    seeds: fleet.Seeds = None,
    seed: fleet.Seed = None,
    compat: fleet.Compat = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Simulate a stated fleet: time to first token, waits and utilisation, with confidence intervals; in closed form
    the rate at which it breaks and its state with replicas down.

    Exit codes: 0 the limit is met, 2 bad input, 3 it is missed, 4 no measured data.
    """
    from aicjax.fleet.requests import SimulateRequest

    given = fleet.given(ctx, {"fleet_file": "fleet"})
    output = FleetOutput.take(given)
    given["fleet"] = take_fleet(given)
    request = SimulateRequest(**given)

    from aicjax.fleet.answers import simulate as answer

    present(request, answer, output)


def simulate_fleet(
    ctx: Context,
    fleet_file: Annotated[str, Argument(metavar="FILE", help="Pools and router, as JSON or YAML.")],
    workload: fleet.Workload = None,
    rate_per_s: fleet.RatePerS = None,
    ttft_ms: fleet.TtftMs = None,
    requests: fleet.Requests = None,
    seeds: fleet.Seeds = None,
    seed: fleet.Seed = None,
    compat: fleet.Compat = None,
    out: fleet.Out = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Simulate the fleet of a file; `simulate --fleet FILE` has more flags."""
    from aicjax.fleet.requests import SimulateRequest

    given = fleet.given(ctx, {"fleet_file": "fleet"})
    output = FleetOutput.take(given)
    given["fleet"] = take_fleet(given)
    request = SimulateRequest(**given)

    from aicjax.fleet.answers import simulate as answer

    present(request, answer, output)


def routers(
    ctx: Context,
    workload: fleet.Workload = None,
    trace: fleet.Trace = None,
    trace_format: fleet.TraceFormat = None,
    isl: fleet.Isl = None,
    osl: fleet.Osl = None,
    input_share: fleet.InputShare = None,
    rate_per_s: fleet.RatePerS = None,
    arrival_cv2: fleet.ArrivalCv2 = None,
    ttft_ms: fleet.TtftMs = None,
    percentile: fleet.Percentile = None,
    fleet_file: FleetFile = None,
    replicas: Replicas = None,
    n_s: ShortReplicas = None,
    n_l: LongReplicas = None,
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: fleet.Thresholds = None,
    max_tokens: fleet.MaxTokens = None,
    chosen: Annotated[
        str | None,
        flag("--routers", panel=_POOLS, default="all", metavar="NAME,...", text="Rules to compare."),
    ] = None,
    gamma: Annotated[
        str | None,
        flag("--gamma", panel=_POOLS, default="1.5", metavar="FACTOR", text="Factor of the rule `compress`."),
    ] = None,
    requests: fleet.Requests = None,
    seeds: fleet.Seeds = None,
    seed: fleet.Seed = None,
    compat: fleet.Compat = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Compare routing rules on the same requests.

    Exit codes: 0 compared, 2 bad input, 4 no measured data.
    """
    from aicjax.fleet.requests import RoutersRequest

    given = fleet.given(ctx, {"fleet_file": "fleet", "chosen": "routers"})
    output = FleetOutput.take(given)
    if given.get("compat") == "fleet-reference":
        given = {"routers": "length,compress,random", **given}
    given["fleet"] = take_fleet(given)
    request = RoutersRequest(**given)

    from aicjax.fleet.answers import routers as answer

    present(request, answer, output)
