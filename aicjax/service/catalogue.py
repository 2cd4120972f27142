# SPDX-License-Identifier: Apache-2.0
"""Endpoints of what the service knows: kinds of replica, and distributions of lengths."""

from typing import Any

import numpy as np
from fastapi import APIRouter

from aicjax._names import one_of
from aicjax._units import MS_PER_S
from aicjax.fleet.cdf import bundled_lengths, load_lengths
from aicjax.fleet.inputs import profile_of
from aicjax.fleet.lengths import from_data
from aicjax.fleet.presets import preset_names
from aicjax.fleet.replica_spec import ComputedReplica, PresetReplica, Replica, parsed
from aicjax.service.state import NotFound
from aicjax.service.statistics import OF_A_LAW, statistics

CATALOGUE_MODEL, CATALOGUE_TP = "llama-3.1-70b", 8  # of GPUs that are stated by their name alone

router = APIRouter(prefix="/api", tags=["catalogue"])


def replica_of(gpu: str) -> Replica:
    """The replica that a client names: a preset, fields, or a GPU of the catalogue with a 70B model over eight."""
    if "=" in gpu:
        return parsed(gpu)  # pyright: ignore[reportReturnType]
    if gpu in preset_names():
        return PresetReplica(preset=gpu)
    return ComputedReplica(hardware=gpu, model=CATALOGUE_MODEL, tp=CATALOGUE_TP)


@router.get("/gpu-profiles", summary="Kinds of replica by name")
def gpu_profiles() -> list[dict[str, Any]]:
    """The presets, with the constants that answers use."""
    return [_profile_row(name) for name in preset_names()]


@router.get("/workloads", summary="Built-in distributions of lengths")
def workloads() -> list[dict[str, Any]]:
    """Names and sources."""
    loaded = {name: load_lengths(name) for name in bundled_lengths()}
    return [{"name": name, "description": data.source, "stats": None} for name, data in loaded.items()]


@router.get("/workloads/{name}/cdf", summary="Points of a distribution of total tokens")
def workload_cdf(name: str) -> list[dict[str, float]]:
    """Total tokens, and the share of requests that are not longer."""
    knots = _known(name).knots
    pairs = zip(knots.tokens, knots.shares, strict=True)
    return [{"threshold": int(tokens), "cumulative_frac": float(share)} for tokens, share in pairs]


@router.get("/workloads/{name}/stats", summary="Percentiles and histograms of a distribution")
def workload_stats(name: str) -> dict[str, Any]:
    """Exact percentiles; histograms of a thousand requests. A distribution has no times: rates are 0."""
    law = from_data(_known(name))
    figures = statistics(np.asarray(law.isl), np.asarray(law.osl), np.asarray(law.weight), OF_A_LAW)
    return {**figures, "duration_s": 0.0, "arrival_rate_rps": 0.0, "routing_distribution": {}}


def _known(name: str) -> Any:
    if name not in bundled_lengths():  # a path is no name: clients read no files
        raise NotFound(f"Workload {name!r} not found: it must be {one_of(name, bundled_lengths())}")
    return load_lengths(name)


def _profile_row(name: str) -> dict[str, Any]:
    profile = profile_of(PresetReplica(preset=name))
    return {
        "name": profile.name,
        "key": name,
        "W_ms": float(profile.base_s) * MS_PER_S,
        "H_ms_per_slot": float(profile.per_sequence_s) * MS_PER_S,
        "calibration_ctx": int(profile.calibration_tokens),
        "chunk": int(profile.chunk_tokens),
        "blk_size": int(profile.block_tokens),
        "total_kv_blks": int(profile.kv_blocks),
        "max_slots": int(profile.max_slot_tokens // profile.calibration_tokens),
        "cost_per_hr": float(profile.price_per_hour),
    }
