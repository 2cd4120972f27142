# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet simulate` and `routers`: a stated fleet, request by request."""

from typing import Annotated

from typer import Argument, Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli.flags import flag, takes
from aicjax.cli.fleet_output import FleetOutput, present
from aicjax.cli.fleet_pools import take_fleet

_POOLS = "Replicas and pools"
_SIMULATION = "Simulation"

ROUTERS = "length|spillover|compress|least_loaded|round_robin|random"


class _Fleet:
    """The fleet: a file, or counts."""

    fleet_file: Annotated[
        str | None, flag("--fleet", panel=_POOLS, metavar="FILE", text="Pools and router, as JSON or YAML.")
    ]
    replicas: Annotated[
        str | None,
        flag("--replicas", panel=_POOLS, metavar="N,...", text="Replicas of each pool, short requests first."),
    ]
    n_s: Annotated[str | None, flag("--n-s", panel=_POOLS, text="Replicas of the short of two pools.")]
    n_l: Annotated[str | None, flag("--n-l", panel=_POOLS, text="Replicas of the long of two pools.")]


class _Run:
    """How it routes, fails and runs."""

    router: Annotated[
        str | None, flag("--router", panel=_POOLS, default="length", metavar=ROUTERS, text="Rule of the routing.")
    ]
    gamma: Annotated[
        str | None,
        flag(
            "--gamma",
            panel=_POOLS,
            default="1",
            metavar="FACTOR",
            text="Compress requests of up to so many times the threshold to it (two pools).",
        ),
    ]
    availability: fleet.Availability
    enough_probability: Annotated[
        str | None,
        flag(
            "--enough-probability",
            panel=_POOLS,
            default="0.999",
            metavar="SHARE",
            text="Probability with which enough replicas are to be up, for the spares (with --availability).",
        ),
    ]
    horizon_s: Annotated[
        str | None,
        flag(
            "--horizon",
            panel=_SIMULATION,
            default="the long run",
            metavar="SECONDS",
            text="Simulate what arrives in this time; all of it counts.",
        ),
    ]
    start: Annotated[
        str | None,
        flag(
            "--start",
            panel=_SIMULATION,
            default="empty",
            metavar="empty|settled",
            text="Requests under way when a horizon begins: none, or as many as the load keeps in service.",
        ),
    ]


@takes(fleet.Workload, fleet.Load, fleet.Limits, _Fleet, fleet.Pools, _Run, fleet.Simulation, fleet.Output)
def simulate(ctx: Context) -> None:
    """Simulate a stated fleet: time to first token, waits and utilisation, with confidence intervals; in closed form
    the rate at which it breaks and its state with replicas down.

    Exit codes: 0 the limit is met, 2 bad input, 3 it is missed, 4 no measured data.
    """
    _simulate(ctx)


@takes(
    fleet.Workload,
    fleet.Load,
    fleet.Limits,
    fleet.Simulation,
    fleet.Output,
    without=("trace", "trace_format", "isl", "osl", "input_share", "arrival_cv2", "percentile", "report"),
)
def simulate_fleet(
    ctx: Context, fleet_file: Annotated[str, Argument(metavar="FILE", help="Pools and router, as JSON or YAML.")]
) -> None:
    """Simulate the fleet of a file; `simulate --fleet FILE` has more flags."""
    _simulate(ctx)


def _simulate(ctx: Context) -> None:
    from aicjax.fleet.requests import SimulateRequest

    given = fleet.given(ctx, {"fleet_file": "fleet"})
    output = FleetOutput.take(given)
    given["fleet"] = take_fleet(given)
    request = SimulateRequest(**given)

    from aicjax.fleet.answers import simulate as answer

    present(request, answer, output)


class _Routers:
    """What is compared."""

    chosen: Annotated[
        str | None,
        flag("--routers", panel=_POOLS, default="all", metavar="NAME,...", text="Rules to compare."),
    ]
    gamma: Annotated[
        str | None,
        flag("--gamma", panel=_POOLS, default="1.5", metavar="FACTOR", text="Factor of the rule `compress`."),
    ]


@takes(fleet.Workload, fleet.Load, fleet.Limits, _Fleet, fleet.Pools, _Routers, fleet.Simulation, fleet.Output)
def routers(ctx: Context) -> None:
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
