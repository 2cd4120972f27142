# SPDX-License-Identifier: Apache-2.0
"""Answers to requests about fleets, one function for each command."""

from aicjax.fleet.answer_grid import pareto as pareto
from aicjax.fleet.answer_grid import whatif as whatif
from aicjax.fleet.answer_phases import disagg as disagg
from aicjax.fleet.answer_plan import plan as plan
from aicjax.fleet.answer_power import power as power
from aicjax.fleet.answer_run import routers as routers
from aicjax.fleet.answer_run import simulate as simulate
from aicjax.fleet.answer_size import size as size
