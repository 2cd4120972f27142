# SPDX-License-Identifier: Apache-2.0
"""From what a user states to what the formulas take: profiles of replicas and laws of lengths."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from aicjax._results import InputError
from aicjax._units import MS_PER_S
from aicjax.fleet import lengths
from aicjax.fleet.capacity import Target
from aicjax.fleet.cdf import load_lengths
from aicjax.fleet.computed import Serving, computed_profile
from aicjax.fleet.engine_profile import engine_run
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.gpu_facts import gpu
from aicjax.fleet.lengths import Lengths, from_cdf
from aicjax.fleet.model_facts import published_model, reference_model
from aicjax.fleet.presets import manual_power, manual_profile, preset
from aicjax.fleet.profile import Profile
from aicjax.fleet.replica_spec import ComputedReplica, EngineReplica, ManualReplica, PresetReplica, Replica
from aicjax.fleet.request_fields import RATE_PER_S, LimitFields, ReserveFields, WorkloadFields
from aicjax.fleet.rules import FLEET_REFERENCE, SANE, Rules
from aicjax.fleet.traces import Trace, load_trace


def profile_of(replica: Replica, rules: Rules = SANE) -> Profile:
    """The profile of a stated replica.

    Raises:
        InputError: A name that is not known.
        MissingData: The deployment of an engine has no measured data.
    """
    match replica:
        case PresetReplica():
            return _priced(preset(replica.preset), replica.price_per_hour)
        case ManualReplica():
            return _manual(replica)
        case ComputedReplica():
            return _computed(replica, rules)
        case EngineReplica():
            return _engine(replica.model_dump_json())


def law_of(workload: WorkloadFields) -> Lengths:
    """The law of the lengths of a stated workload.

    Raises:
        InputError: No such distribution or file.
        DataError: The file breaks its rules.
    """
    if workload.isl is not None and workload.osl is not None:
        return lengths.constant(float(workload.isl), float(workload.osl))
    if workload.workload is None:
        return trace_of(workload).lengths()
    data = load_lengths(workload.workload)
    return lengths.from_data(data) if workload.input_share is None else from_cdf(data.knots, workload.input_share)


def trace_of(workload: WorkloadFields) -> Trace:
    """The trace of a workload that states one.

    Raises:
        InputError: No such file.
        DataError: No row of it can be read.
    """
    path = Path(str(workload.trace))
    return _trace(path, workload.trace_format, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.lru_cache(maxsize=2)
def _trace(path: Path, layout: str, _changed_ns: int) -> Trace:
    """A file as it was when it was changed last: an answer asks for its requests several times."""
    return load_trace(path, layout)


def load_of(request: Any) -> tuple[float, float]:
    """Rate of the arrivals [1/s] and squared coefficient of variation of their gaps; stated, or of the trace."""
    rate_per_s, cv2 = getattr(request, "rate_per_s", None), request.arrival_cv2
    if request.trace is not None and None in (rate_per_s, cv2):
        trace = trace_of(request)
        if not trace.rate_per_s > 0:
            raise InputError("trace", str(request.trace), "requests at more than one time")
        rate_per_s = trace.rate_per_s if rate_per_s is None else rate_per_s
        cv2 = trace.gap_cv2 if cv2 is None else cv2
    return (RATE_PER_S if rate_per_s is None else rate_per_s), (1.0 if cv2 is None else cv2)


def target_of(request: LimitFields) -> Target:
    """The limit on the time to first token, and how much of the capacity may be used: all where no share is stated."""
    most_used = request.max_utilization if isinstance(request, ReserveFields) else 1.0
    return Target(request.ttft_ms / MS_PER_S, request.quantile, most_used)


def _computed(replica: ComputedReplica, rules: Rules) -> Profile:
    listed = "/" not in replica.model and not Path(replica.model).exists()
    facts = reference_model(replica.model) if rules == FLEET_REFERENCE or listed else published_model(replica.model)
    serving = Serving(
        tp=replica.tp,
        dtype_bytes=replica.dtype_bytes,
        chunk_tokens=replica.chunk_tokens,
        block_tokens=replica.block_tokens,
        max_slots=replica.max_slots or None,
        mean_tokens=replica.mean_tokens,
        memory_share=replica.memory_utilization,
    )
    profile = computed_profile(gpu(replica.hardware), facts, serving, load_fleet_constants(), rules)
    return _priced(profile, replica.price_per_hour)


@functools.lru_cache(maxsize=64)
def _engine(replica: str) -> Profile:
    """The profile of a deployment as JSON, which tells deployments apart."""
    return engine_run(EngineReplica(**json.loads(replica))).profile


def _priced(profile: Profile, price_per_hour: float | None) -> Profile:
    return profile if price_per_hour is None else dataclasses.replace(profile, price_per_hour=price_per_hour)


def _manual(replica: ManualReplica) -> Profile:
    power = None
    if replica.idle_w is not None and replica.nominal_w is not None:
        power = manual_power(
            idle_w=replica.idle_w,
            nominal_w=replica.nominal_w,
            most_running=replica.max_slots,
            steepness=replica.power_slope,
            midpoint=replica.power_midpoint,
        )
    return manual_profile(
        replica.name,
        base_s=replica.base_ms / MS_PER_S,
        per_sequence_s=replica.per_sequence_ms / MS_PER_S,
        price_per_hour=replica.price_per_hour,
        calibration_tokens=replica.calibration_tokens,
        chunk_tokens=replica.chunk_tokens,
        block_tokens=replica.block_tokens,
        kv_blocks=replica.kv_blocks,
        linear_slots=replica.max_slots,
        gpus=replica.gpus,
        power=power,
    )
