# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet size`, `pareto` and `whatif`: how many replicas a load needs."""

from typing import Annotated

from typer import Context

from aicjax.cli import fleet_options as fleet
from aicjax.cli import options
from aicjax.cli.fleet_output import FleetOutput, present
from aicjax.cli.options import flag


def size(
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
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: fleet.Thresholds = None,
    max_tokens: fleet.MaxTokens = None,
    gamma_max: fleet.GammaMax = None,
    compressible: fleet.Compressible = None,
    availability: fleet.Availability = None,
    max_utilization: fleet.MaxUtilization = None,
    spare_replicas: fleet.SpareReplicas = None,
    verify_top: Annotated[
        str | None,
        flag("--verify-top", panel="Simulation", default="3", text="Cheapest fleets to simulate; 0 for none."),
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


def pareto(
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
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: Annotated[
        str | None,
        flag(
            "--thresholds",
            panel="Replicas and pools",
            default="the points of the distribution",
            metavar="TOKENS,...",
            text="Total tokens at which two pools may part.",
        ),
    ] = None,
    max_tokens: fleet.MaxTokens = None,
    gamma_max: Annotated[
        str | None,
        flag(
            "--gamma-max",
            panel="Rules of the sizing",
            default="1",
            metavar="FACTOR",
            text="Requests of up to so many times the threshold may be compressed to it.",
        ),
    ] = None,
    compressible: fleet.Compressible = None,
    availability: fleet.Availability = None,
    max_utilization: fleet.MaxUtilization = None,
    spare_replicas: fleet.SpareReplicas = None,
    compat: fleet.Compat = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Weigh cost against latency over the thresholds between two pools.

    Exit codes: 0 found, 2 bad input, 3 nothing meets the limit, 4 no measured data.
    """
    from aicjax.fleet.requests import ParetoRequest

    given = fleet.given(ctx)
    output = FleetOutput.take(given)
    request = ParetoRequest(**given)

    from aicjax.fleet.answers import pareto as answer

    present(request, answer, output)


def whatif(
    ctx: Context,
    workload: fleet.Workload = None,
    trace: fleet.Trace = None,
    trace_format: fleet.TraceFormat = None,
    isl: fleet.Isl = None,
    osl: fleet.Osl = None,
    input_share: fleet.InputShare = None,
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
    ] = None,
    arrival_cv2: fleet.ArrivalCv2 = None,
    ttft_ms: fleet.TtftMs = None,
    percentile: fleet.Percentile = None,
    compare: Annotated[
        str | None,
        flag(
            "--compare",
            "--gpu-compare",
            panel="Replicas and pools",
            metavar="NAME,...",
            text="Kinds of replica to compare, each in all pools.",
        ),
    ] = None,
    replica: fleet.Replica = None,
    replica_long: fleet.ReplicaLong = None,
    thresholds: fleet.Thresholds = None,
    max_tokens: fleet.MaxTokens = None,
    gamma_max: fleet.GammaMax = None,
    compressible: fleet.Compressible = None,
    availability: fleet.Availability = None,
    max_utilization: fleet.MaxUtilization = None,
    spare_replicas: fleet.SpareReplicas = None,
    compat: fleet.Compat = None,
    out: fleet.Out = None,
    plot: fleet.Plot = None,
    json: options.Json = False,
    quiet: fleet.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
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
