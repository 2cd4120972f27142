# SPDX-License-Identifier: Apache-2.0
"""Computed profiles: GPUs, models, iteration times, KV blocks, prices, names and slots."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicjax.fleet.computed import Serving, computed_profile
from aicjax.fleet.fleet_constants import FleetConstants, load_fleet_constants
from aicjax.fleet.gpu_facts import gpu, gpu_names
from aicjax.fleet.model_facts import reference_model
from aicjax.fleet.profile import Profile, slots
from aicjax.fleet.rules import FLEET_REFERENCE
from benchmarks.fleet_cases import Row

_TIGHT = 1e-12


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every number of the file that this project holds; links and buses of a GPU are read by no formula of either."""
    constants = load_fleet_constants()
    yield Row("GPU names", gpu_names(), sorted(stated["name"] for stated in answers["hardware"]), "exact")
    for stated in answers["hardware"]:
        yield from _gpu_rows(stated, constants)
    for stated in answers["models"]:
        yield from _model_rows(stated)
    for stated in answers["profiles"]:
        label = f"{stated['hw']} {stated['name']}"
        profile = built(stated["hw"], stated["model"], stated["cfg"], constants)
        wanted = [stated["W"], stated["H"], stated["cost_per_hr"]]
        yield Row(label, [profile.base_s, profile.per_sequence_s, profile.price_per_hour], wanted, tolerance=_TIGHT)
        yield Row(label, profile.name, stated["name"], "exact")
        found = [int(profile.kv_blocks), int(profile.calibration_tokens)]
        yield Row(label, found, [stated["total_kv_blks"], stated["calibration_ctx"]], "exact")
        contexts = np.array([int(context) for context in stated["n_slots"]])
        yield Row(label, np.asarray(slots(profile, contexts)), list(stated["n_slots"].values()), "exact")


def built(key: str, model: str, config: Mapping[str, Any], constants: FleetConstants) -> Profile:
    """The profile that the fleet reference's builder would make."""
    return computed_profile(gpu(key), reference_model(model), serving_of(config), constants, FLEET_REFERENCE)


def serving_of(config: Mapping[str, Any]) -> Serving:
    """How it serves, from the fields of the fleet reference."""
    return Serving(
        tp=config["tp"],
        dtype_bytes=config["dtype_bytes"],
        chunk_tokens=config["chunk"],
        block_tokens=config["blk_size"],
        max_slots=config["max_slots"] or None,
        mean_tokens=config["mean_ctx_tokens"],
        memory_share=config["gpu_memory_utilization"],
    )


def _gpu_rows(stated: Mapping[str, Any], constants: FleetConstants) -> Iterator[Row]:
    found = gpu(stated["name"])
    ours = {
        "mem_bw": found.memory_bandwidth_bytes_per_s,
        "mem_capacity": found.memory_bytes,
        "fp16_tc_flops": found.fp16_flops_per_s,
        "fp8_tc_flops": found.fp8_flops_per_s,
        "power": found.power_w,
        "cost_per_hr": found.price_per_hour,
        "mem_bw_scale": constants.computed.memory_bandwidth_share,
        "mem_const_lat": constants.computed.memory_latency_s,
        "other_mem": found.other_memory_bytes,
        "effective_mem_bw": constants.computed.memory_bandwidth_share * found.memory_bandwidth_bytes_per_s,
    }
    yield Row(stated["name"], list(ours.values()), [stated[key] for key in ours], tolerance=_TIGHT)
    groups = {int(gpus): size for gpus, size in stated["nccl_mem"].items()}
    yield Row(stated["name"], [found.nccl_bytes(gpus) for gpus in groups], list(groups.values()), "exact")


def _model_rows(stated: Mapping[str, Any]) -> Iterator[Row]:
    model = reference_model(stated["name"])
    names = [model.name, bool(model.experts)]
    yield Row(stated["name"], names, [stated["display"], stated["is_moe"]], "exact")
    sizes = [model.params, model.active_params, model.kv_bytes_per_token(2), model.kv_bytes_per_token(1)]
    keys = ("params", "active", "kv_bytes_tok_fp16", "kv_bytes_tok_fp8")
    yield Row(stated["name"], sizes, [stated[key] for key in keys], "exact")
