# SPDX-License-Identifier: Apache-2.0
"""Fleets of replicas: queueing, event simulation, routing, sizing, cost and power. Times are seconds in this room.

The names below are what programs use most; each is imported from its module when first used, so that requests can be
read without jax. Whole answers, as of the commands, are in `aicjax.fleet.answers`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicjax.fleet.arrivals import RatePattern as RatePattern
    from aicjax.fleet.arrivals import gamma_gaps as gamma_gaps
    from aicjax.fleet.arrivals import patterned_gaps as patterned_gaps
    from aicjax.fleet.arrivals import poisson_gaps as poisson_gaps
    from aicjax.fleet.arrivals import sine_pattern as sine_pattern
    from aicjax.fleet.capacity import PoolLoad as PoolLoad
    from aicjax.fleet.capacity import Target as Target
    from aicjax.fleet.capacity import Verdict as Verdict
    from aicjax.fleet.capacity import least_replicas as least_replicas
    from aicjax.fleet.capacity import pool_load as pool_load
    from aicjax.fleet.closed_queue import ClosedLoop as ClosedLoop
    from aicjax.fleet.closed_queue import closed_loop as closed_loop
    from aicjax.fleet.closed_queue import closed_wait_law as closed_wait_law
    from aicjax.fleet.continuous import continuous_optimum as continuous_optimum
    from aicjax.fleet.continuous import rounded as rounded
    from aicjax.fleet.erlang import erlang_c as erlang_c
    from aicjax.fleet.forecast import GrowthPlan as GrowthPlan
    from aicjax.fleet.forecast import Terms as Terms
    from aicjax.fleet.forecast import breakeven_utilization as breakeven_utilization
    from aicjax.fleet.forecast import growth_plan as growth_plan
    from aicjax.fleet.forecast import rates_per_s as rates_per_s
    from aicjax.fleet.lengths import Lengths as Lengths
    from aicjax.fleet.objective import Design as Design
    from aicjax.fleet.objective import Problem as Problem
    from aicjax.fleet.objective import Softness as Softness
    from aicjax.fleet.objective import excess as excess
    from aicjax.fleet.pool_queue import QueueSample as QueueSample
    from aicjax.fleet.pool_queue import simulate_queues as simulate_queues
    from aicjax.fleet.pools import Compression as Compression
    from aicjax.fleet.pools import Pool as Pool
    from aicjax.fleet.pools import only_pool as only_pool
    from aicjax.fleet.pools import service_of as service_of
    from aicjax.fleet.pools import split as split
    from aicjax.fleet.posterior import Measured as Measured
    from aicjax.fleet.posterior import TimesPosterior as TimesPosterior
    from aicjax.fleet.posterior import drawn_profiles as drawn_profiles
    from aicjax.fleet.posterior import times_posterior as times_posterior
    from aicjax.fleet.presets import manual_profile as manual_profile
    from aicjax.fleet.presets import preset as preset
    from aicjax.fleet.presets import preset_names as preset_names
    from aicjax.fleet.profile import Profile as Profile
    from aicjax.fleet.profile import first_token_s as first_token_s
    from aicjax.fleet.profile import fitted as fitted
    from aicjax.fleet.profile import iteration_s as iteration_s
    from aicjax.fleet.profile import service_s as service_s
    from aicjax.fleet.profile import slots as slots
    from aicjax.fleet.profile import stacked as stacked
    from aicjax.fleet.robust import RobustSizing as RobustSizing
    from aicjax.fleet.robust import mixtures_within as mixtures_within
    from aicjax.fleet.robust import robust_sizing as robust_sizing
    from aicjax.fleet.rules import FLEET_REFERENCE as FLEET_REFERENCE
    from aicjax.fleet.rules import SANE as SANE
    from aicjax.fleet.rules import Rules as Rules
    from aicjax.fleet.service_times import ServiceLaw as ServiceLaw
    from aicjax.fleet.service_times import mean_prefill_s as mean_prefill_s
    from aicjax.fleet.service_times import moments as moments
    from aicjax.fleet.service_times import service_law as service_law
    from aicjax.fleet.sizing import Demand as Demand
    from aicjax.fleet.sizing import Sizing as Sizing
    from aicjax.fleet.sizing import sized as sized
    from aicjax.fleet.sizing import stated as stated
    from aicjax.fleet.sizing import thinned as thinned
    from aicjax.fleet.slot_queue import slot_waits as slot_waits
    from aicjax.fleet.statistics import Interval as Interval
    from aicjax.fleet.statistics import after_warm_up as after_warm_up
    from aicjax.fleet.statistics import mean_interval as mean_interval
    from aicjax.fleet.statistics import nearest_rank as nearest_rank
    from aicjax.fleet.statistics import quantile_interval as quantile_interval
    from aicjax.fleet.transient import Transient as Transient
    from aicjax.fleet.transient import transient_queue as transient_queue
    from aicjax.fleet.ttft import ttft_quantile_s as ttft_quantile_s
    from aicjax.fleet.two_pool import gamma_sweep as gamma_sweep
    from aicjax.fleet.waiting import WaitLaw as WaitLaw
    from aicjax.fleet.waiting import mean_wait_s as mean_wait_s
    from aicjax.fleet.waiting import wait_law as wait_law
    from aicjax.fleet.waiting import wait_quantile_s as wait_quantile_s

_MODULES = {
    "arrivals": ("RatePattern", "gamma_gaps", "patterned_gaps", "poisson_gaps", "sine_pattern"),
    "capacity": ("PoolLoad", "Target", "Verdict", "least_replicas", "pool_load"),
    "closed_queue": ("ClosedLoop", "closed_loop", "closed_wait_law"),
    "continuous": ("continuous_optimum", "rounded"),
    "erlang": ("erlang_c",),
    "forecast": ("GrowthPlan", "Terms", "breakeven_utilization", "growth_plan", "rates_per_s"),
    "lengths": ("Lengths",),
    "objective": ("Design", "Problem", "Softness", "excess"),
    "pool_queue": ("QueueSample", "simulate_queues"),
    "pools": ("Compression", "Pool", "only_pool", "service_of", "split"),
    "posterior": ("Measured", "TimesPosterior", "drawn_profiles", "times_posterior"),
    "presets": ("manual_profile", "preset", "preset_names"),
    "profile": ("Profile", "fitted", "first_token_s", "iteration_s", "service_s", "slots", "stacked"),
    "robust": ("RobustSizing", "mixtures_within", "robust_sizing"),
    "rules": ("FLEET_REFERENCE", "SANE", "Rules"),
    "service_times": ("ServiceLaw", "mean_prefill_s", "moments", "service_law"),
    "sizing": ("Demand", "Sizing", "sized", "stated", "thinned"),
    "slot_queue": ("slot_waits",),
    "statistics": ("Interval", "after_warm_up", "mean_interval", "nearest_rank", "quantile_interval"),
    "transient": ("Transient", "transient_queue"),
    "ttft": ("ttft_quantile_s",),
    "two_pool": ("gamma_sweep",),
    "waiting": ("WaitLaw", "mean_wait_s", "wait_law", "wait_quantile_s"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """The name, imported from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'aicjax.fleet' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"aicjax.fleet.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names, imported or not."""
    return sorted(_HOME)
