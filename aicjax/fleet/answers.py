# SPDX-License-Identifier: Apache-2.0
"""Answers to requests about fleets, one function for each command, by the rules that the request states."""

from aicjax.fleet import (
    answer_forecast,
    answer_grid,
    answer_phases,
    answer_power,
    answer_reference,
    answer_reference_phases,
    answer_run,
    answer_size,
)
from aicjax.fleet.answer_parts import ParetoAnswer, SizeAnswer, WhatIfAnswer
from aicjax.fleet.answer_plan import plan as plan
from aicjax.fleet.forecast_answers import ForecastAnswer
from aicjax.fleet.forecast_request import ForecastRequest
from aicjax.fleet.phase_answers import DisaggAnswer, FlexAnswer, WattAnswer
from aicjax.fleet.reference_answers import ReferenceAnswer
from aicjax.fleet.request_fields import Request
from aicjax.fleet.requests import (
    DisaggRequest,
    ParetoRequest,
    PowerRequest,
    RoutersRequest,
    SimulateRequest,
    SizeRequest,
    WhatIfRequest,
)
from aicjax.fleet.run_answers import RoutersAnswer, SimulateAnswer


def size(request: SizeRequest) -> SizeAnswer | ReferenceAnswer:
    """The fewest replicas that serve a rate within a limit."""
    return answer_reference.size(request) if _follows(request) else answer_size.size(request)


def pareto(request: ParetoRequest) -> ParetoAnswer | ReferenceAnswer:
    """Cost against latency of the thresholds between two pools."""
    return answer_reference.pareto(request) if _follows(request) else answer_grid.pareto(request)


def whatif(request: WhatIfRequest) -> WhatIfAnswer | ReferenceAnswer:
    """The sizing at several rates, or on several kinds of replica."""
    return answer_reference.whatif(request) if _follows(request) else answer_grid.whatif(request)


def disagg(request: DisaggRequest) -> DisaggAnswer | ReferenceAnswer:
    """Counts of prefill and decode replicas that serve a rate within both limits."""
    return answer_reference_phases.disagg(request) if _follows(request) else answer_phases.disagg(request)


def power(request: PowerRequest) -> FlexAnswer | WattAnswer | ReferenceAnswer:
    """What a fleet can shed of its power, or tokens per watt."""
    return answer_reference_phases.power(request) if _follows(request) else answer_power.power(request)


def forecast(request: ForecastRequest) -> ForecastAnswer:
    """Replicas and money over quarters, to buy and to rent."""
    return answer_forecast.forecast(request)


def simulate(request: SimulateRequest) -> SimulateAnswer | ReferenceAnswer:
    """A stated fleet, request by request."""
    found = answer_run.simulate(request)
    return answer_reference_phases.summary(request, found) if _follows(request) else found


def routers(request: RoutersRequest) -> RoutersAnswer | ReferenceAnswer:
    """Routing rules on the same requests."""
    found = answer_run.routers(request)
    return answer_reference_phases.routers(request, found) if _follows(request) else found


def _follows(request: Request) -> bool:
    return request.compat == "fleet-reference"
