# SPDX-License-Identifier: Apache-2.0
"""Closed forms of profiles: iterations, prefill, slots, service, throughput, power and its inverse, decode records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicjax.fleet.decode_efficiency import decode_efficiency
from aicjax.fleet.fleet_constants import load_fleet_constants
from aicjax.fleet.gpu_facts import gpu
from aicjax.fleet.model_facts import reference_model
from aicjax.fleet.power import power_w, running_at
from aicjax.fleet.profile import Profile, iteration_s, prefill_iteration_s, service_s, slots, throughput_per_s
from aicjax.fleet.rules import FLEET_REFERENCE
from benchmarks.fleet_cases import Row, columns, stated_profile
from benchmarks.fleet_cases.builder import built, serving_of

_TIGHT = 1e-12
_RECORD = {
    "iter_latency_s": "iteration_s",
    "tokens_per_s": "tokens_per_s",
    "mem_bytes_per_iter": "read_bytes",
    "kv_frac": "kv_share",
    "flops_per_iter": "flops",
    "arithmetic_intensity": "flops_per_byte",
    "power_w": "power_w",
    "tokens_per_watt": "tokens_per_joule",
}  # fields of the fleet reference's decode record, and ours


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every table of every profile."""
    constants = load_fleet_constants()
    for stated in answers["manual"]:
        profile, label = stated_profile(stated["params"]), stated["profile"]
        yield from _tables(label, profile, stated)
        running, watts = columns(stated["power"])
        yield Row(f"{label} power", power_w(_law(profile), running), watts, tolerance=_TIGHT)
        limits, counts = columns(stated["invert_power"])
        found = running_at(_law(profile), np.asarray(limits), rules=FLEET_REFERENCE)
        yield Row(f"{label} inverse power", np.asarray(found), counts, "exact")
    for stated in answers["computed"]:
        profile = built(stated["hw"], stated["model"], stated["cfg"], constants)
        label = f"{stated['hw']} {profile.name}"
        numbers = [profile.base_s, profile.per_sequence_s, profile.kv_blocks]
        yield Row(label, numbers, [stated["W"], stated["H"], stated["kv"]], tolerance=_TIGHT)
        yield from _tables(label, profile, stated)
        running, context, watts = columns(stated["power"])
        found = power_w(_law(profile), running, _context(profile, context))
        yield Row(f"{label} power", found, watts, tolerance=_TIGHT)
        for record in stated["decode_efficiency"]:
            yield from _records(label, profile, stated, record)


def _tables(label: str, profile: Profile, stated: Mapping[str, Any]) -> Iterator[Row]:
    running, context, seconds = columns(stated["iter_latency"])
    found = iteration_s(profile, running, _context(profile, context))
    yield Row(f"{label} iteration", found, seconds, tolerance=_TIGHT)
    chunk, past, running, context, seconds = columns(stated["prefill_iter_latency"])
    found = prefill_iteration_s(profile, running, _context(profile, context), past, chunk)
    yield Row(f"{label} prefill", found, seconds, tolerance=_TIGHT)
    limit, count = columns(stated["n_slots"])
    yield Row(f"{label} slots", np.asarray(slots(profile, limit)), count, "exact")
    isl, osl, limit, seconds = columns(stated["service_time"])
    found = service_s(profile, isl, osl, limit, rules=FLEET_REFERENCE)
    yield Row(f"{label} service", found, seconds, tolerance=_TIGHT)
    limit, isl, osl, rate = columns(stated["throughput"])
    found = throughput_per_s(profile, isl, osl, limit, FLEET_REFERENCE)
    yield Row(f"{label} throughput", found, rate, tolerance=_TIGHT)


def _records(label: str, profile: Profile, stated: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[Row]:
    found = decode_efficiency(
        gpu(stated["hw"]),
        reference_model(stated["model"]),
        serving_of(stated["cfg"]),
        profile,
        record["n_active"],
        record["mean_ctx"],
        FLEET_REFERENCE,
    )
    ours = [getattr(found, name) for name in _RECORD.values()]
    yield Row(f"{label} decode", ours, [record[key] for key in _RECORD], tolerance=_TIGHT)
    yield Row(f"{label} decode", found.bound, record["roofline_bound"], "exact")


def _context(profile: Profile, stated: np.ndarray) -> np.ndarray:
    """Stated contexts; that of the profile where none is."""
    return np.where(np.isnan(stated), profile.calibration_tokens, stated)


def _law(profile: Profile) -> Any:
    assert profile.power is not None
    return profile.power
