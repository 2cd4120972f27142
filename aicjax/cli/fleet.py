# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet`: how many replicas, at which percentile, at what cost and power."""

import typer

from aicjax.cli import fleet_forecast, fleet_phases, fleet_run, fleet_serve, fleet_size

app = typer.Typer(
    name="fleet",
    help="Size, simulate and compare fleets of replicas.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("size")(fleet_size.size)
app.command("simulate")(fleet_run.simulate)
app.command("pareto")(fleet_size.pareto)
app.command("whatif")(fleet_size.whatif)
app.command("routers")(fleet_run.routers)
app.command("disagg")(fleet_phases.disagg)
app.command("power")(fleet_phases.power)
app.command("forecast")(fleet_forecast.forecast)
app.command("serve")(fleet_serve.serve)

# The names of vllm-sr-sim's commands.
app.command("optimize", hidden=True)(fleet_size.size)
app.command("simulate-fleet", hidden=True)(fleet_run.simulate_fleet)
app.command("compare-routers", hidden=True)(fleet_run.routers)
app.command("grid-flex", hidden=True)(fleet_phases.power)
app.command("tok-per-watt", hidden=True)(fleet_phases.power)
