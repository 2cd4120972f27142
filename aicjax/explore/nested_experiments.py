# SPDX-License-Identifier: Apache-2.0
"""The older, nested form of an experiment as the flat one.

A `config` section holds sections for workers, replicas and corrections, `profiles` name sets of number formats, and a
disaggregated experiment states its model and engine once for both roles.
"""

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aicjax._names import one_of
from aicjax._results import InputError

_MARKS = ("mode", "config", "profiles")
_ROLES = ("prefill", "decode")
_WORKER = {
    "num_gpu_per_worker": "num_gpu_candidates",
    **{f"{axis}_list": f"{axis}_candidates" for axis in ("tp", "pp", "dp", "moe_tp", "moe_ep")},
}
_FLAT = {
    "max_prefill_worker": "max_prefill_workers",
    "max_decode_worker": "max_decode_workers",
    "prefill_latency_correction_scale": "prefill_latency_correction",
    "decode_latency_correction_scale": "decode_latency_correction",
}
_SECTIONS = ("replica_config", "advanced_tuning_config")
_OF_A_ROLE = ("model_path", "system_name", "backend_name", "backend_version", "enable_wideep", "enable_eplb")
_ACCEPT_RATES = "nextn_accept_rates"
_DEFAULT_ACCEPT_RATES = (0.85, 0.3)
_FORMATS = ("gemm", "moe", "kvcache", "fmha")
_PROFILES = {
    "fp8": ("fp8", "fp8", "fp8", "fp8"),
    "fp8_static": ("fp8_static", "fp8", "fp8", "fp8"),
    "bfloat16": ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    "nvfp4": ("nvfp4", "nvfp4", "fp8", "fp8"),
    "mxfp4": ("bfloat16", "w4a16_mxfp4", "bfloat16", "bfloat16"),
}


def is_nested(stated: Mapping[str, Any]) -> bool:
    """Whether an experiment is written in the older form."""
    return any(mark in stated for mark in _MARKS)


def flatten(place: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment in the flat form; keys that are unknown stay, for the reader to refuse.

    Args:
        place: File and experiment, for errors.
        stated: The experiment.

    Raises:
        InputError: An unknown profile, or more than one.
    """
    config: Mapping[str, Any] = stated.get("config") or {}
    disagg = stated.get("serving_mode") == "disagg"
    flat = {key: value for key, value in stated.items() if key not in _MARKS}
    flat |= _formats(place, stated.get("profiles") or ())
    if disagg:
        flat = dict(_spread(flat))
    for key, value in config.items():
        if key in _SECTIONS:
            flat |= {_FLAT.get(str(name), str(name)): part for name, part in (value or {}).items()}
        elif key.endswith("worker_config"):
            role = key.removesuffix("worker_config")
            flat |= {_worker_key(role, name): part for name, part in (value or {}).items()}
        else:
            flat[key] = value
    rates = flat.pop(_ACCEPT_RATES, _DEFAULT_ACCEPT_RATES)
    if isinstance(nextn := flat.get("nextn"), int) and nextn > 0:
        flat.setdefault("nextn_accepted", _accepted(nextn, rates))
    return flat


def _formats(place: str, profiles: Sequence[str]) -> dict[str, str]:
    if len(profiles) > 1 or any(profile not in _PROFILES for profile in profiles):
        raise InputError(f"{place}.profiles", list(profiles), one_of(profiles[0], _PROFILES))
    found = (zip(_FORMATS, _PROFILES[profile], strict=True) for profile in profiles)
    return {f"{part}_quant_mode": mode for part, mode in itertools.chain.from_iterable(found)}


def _spread(flat: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the older form states once, for both roles; a value that a role states itself comes later and wins."""
    for key, value in flat.items():
        if key in _OF_A_ROLE or key.endswith("_quant_mode"):
            yield from ((f"{role}_{key}", value) for role in _ROLES if f"{role}_{key}" not in flat)
        else:
            yield key, value


def _worker_key(role: str, name: str) -> str:
    """Flat name of a key of a worker's section; `role` is empty for the one kind of worker."""
    return f"{role or 'agg_'}{_WORKER[name]}" if name in _WORKER else f"{role}{name}"


def _accepted(nextn: int, rates: Sequence[float]) -> float:
    """Mean accepted drafts of a step, from the chance of each draft to be accepted after those before it."""
    return math.fsum(itertools.accumulate(rates[:nextn], operator.mul))
