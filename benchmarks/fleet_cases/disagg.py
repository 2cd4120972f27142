# SPDX-License-Identifier: Apache-2.0
"""Disaggregated fleets: rates and latencies of the phases, all counts, and the best counts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicjax._units import MS_PER_S
from aicjax.fleet.disagg import DisaggEstimate, Limits, Load, disagg_sweep
from aicjax.fleet.fleet_constants import DisaggFleetConstants, FleetConstants, load_fleet_constants
from aicjax.fleet.lengths import constant
from aicjax.fleet.profile import Profile, first_token_s, iteration_s, slots, throughput_per_s
from aicjax.fleet.rules import FLEET_REFERENCE
from benchmarks.fleet_cases import Row, profile_of
from benchmarks.fleet_cases.builder import built

_TIGHT = 1e-12
_SWEEP = (6, 8)
_OPTIMA = {"optimize_32x64": ((32, 64), None), "optimize_8_16_32": ((8, 16), (8, 16, 32))}  # most counts, totals


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every case."""
    constants = load_fleet_constants()
    for at, stated in enumerate(answers["cases"]):
        case = stated["case"]
        prefill, decode = (_profile(answers, case, phase, constants) for phase in ("prefill", "decode"))
        label, isl, osl, context = f"case {at}", case["isl"], case["osl"], case["ctx"]
        ours = [
            throughput_per_s(prefill, isl, 1, context, FLEET_REFERENCE),
            throughput_per_s(decode, 1, osl, context, FLEET_REFERENCE),
            first_token_s(prefill, isl, slots(prefill, context), rules=FLEET_REFERENCE) * MS_PER_S,
            iteration_s(decode, slots(decode, context)) * MS_PER_S,
        ]
        keys = ("prefill_thru", "decode_thru", "prefill_ttft_base_ms", "decode_tpot_ms")
        yield Row(f"{label} rates", ours, [stated[key] for key in keys], tolerance=_TIGHT)
        sweep = _swept(prefill, decode, case, constants, *_SWEEP)
        yield Row(f"{label} sweep", _table(sweep), stated["sweep_6x8"], tolerance=_TIGHT)
        for key, (most, allowed) in _OPTIMA.items():
            sweep = _swept(prefill, decode, case, constants, *most)
            yield from _optimum_rows(f"{label} {key}", sweep, allowed, stated[key])


def _profile(answers: Mapping[str, Any], case: Mapping[str, Any], phase: str, constants: FleetConstants) -> Profile:
    if phase in case:
        key, model, config = case[phase]
        return built(key, model, config, constants)
    return profile_of(answers, case[phase[0]])


def _swept(
    prefill: Profile,
    decode: Profile,
    case: Mapping[str, Any],
    constants: FleetConstants,
    most_prefill: int,
    most_decode: int,
) -> DisaggEstimate:
    usual = constants.disagg
    shares = DisaggFleetConstants(
        prefill_share=case.get("alpha_pre", usual.prefill_share),
        decode_share=case.get("alpha_dec", usual.decode_share),
        ttft_factor=case.get("beta_ttft", usual.ttft_factor),
    )
    load = Load(0.0, constant(case["isl"], case["osl"]), case["ctx"])
    limits = Limits(case["ttft"] / MS_PER_S, case["tpot"] / MS_PER_S)
    return disagg_sweep(prefill, decode, most_prefill, most_decode, load, limits, shares, rules=FLEET_REFERENCE)


def _table(sweep: DisaggEstimate) -> np.ndarray:
    """Columns of the stored sweep, a row for each pair of counts."""
    leaves = (
        sweep.prefill_replicas,
        sweep.decode_replicas,
        sweep.gpus,
        sweep.capacity_per_s,
        sweep.per_gpu_per_s,
        sweep.ttft_s * MS_PER_S,
        sweep.tpot_s * MS_PER_S,
        sweep.usd_per_hour,
        sweep.met,
    )
    return np.stack([np.asarray(leaf, float) for leaf in leaves], axis=-1).reshape(-1, len(leaves))


def _optimum_rows(
    label: str, sweep: DisaggEstimate, allowed: tuple[int, ...] | None, stated: Mapping[str, Any] | None
) -> Iterator[Row]:
    met = np.asarray(sweep.met if allowed is None else sweep.met & np.isin(sweep.gpus, allowed))
    place = np.where(met, sweep.per_gpu_per_s, -np.inf).argmax()
    best = np.unravel_index(place, met.shape) if met.any() else None
    if best is None or stated is None:
        yield Row(label, best, stated, "exact")
        return
    found = _table(sweep).reshape(*np.shape(sweep.met), -1)[best]
    counts = [stated[key] for key in ("n_prefill", "n_decode", "total_gpus")]
    yield Row(f"{label} counts", found[:3].tolist(), counts, "exact")
    keys = ("system_rate", "thru_per_gpu", "ttft_ms", "tpot_ms", "cost_per_hr")
    yield Row(f"{label} numbers", found[3:8], [stated[key] for key in keys], tolerance=_TIGHT)
