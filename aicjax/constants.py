# SPDX-License-Identifier: Apache-2.0
"""Every empirical number of the engine as leaves of one pytree, loaded from `configs/constants/`."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import numpy as np

from aicjax._paths import constants_file
from aicjax._results import DataError, InputError
from aicjax._user_files import read_mapping
from aicjax.compat import DEFAULT_CONSTANTS

Formulas = Literal["steady_state", "closed_loop"]


class OpConstants(eqx.Module):
    """Numbers of single operators; meaning, unit and source in the constants file."""

    context_attention_extra_factor: float
    context_head_size_efficiency: Mapping[int, float]
    gemm_format_efficiency: Mapping[str, float]
    moe_balanced_share: float
    moe_format_efficiency: Mapping[str, float]


class MemoryConstants(eqx.Module):
    """Numbers of the memory model; meaning, unit and source in the constants file."""

    activation_coefficients: Mapping[str, Sequence[float]]
    expert_workspace: Mapping[str, float]
    expert_workspace_bytes: float
    encoder_values_per_patch: float
    encoder_floor_bytes: float
    activation_floor_bytes: float
    activation_overhead: float
    other_overhead: float
    inflight_token_budget: float
    kv_fraction_of_free: float
    kv_fraction: float
    kv_fraction_by_version: Mapping[str, float]
    derived_fraction: Mapping[str, Any] | None
    kv_tolerance: float
    kv_reserved: float


class ServingConstants(eqx.Module):
    """Numbers of the static and in-flight formulas; meaning, unit and source in the constants file."""

    queue_base: float
    queue_per_step: float
    queue_per_doubling: float
    queue_cap: float
    dispatch_ms_per_layer: float
    drain_steps: float


class DisaggConstants(eqx.Module):
    """Numbers of disaggregated serving; meaning, unit and source in the constants file."""

    prefill_latency_correction: float
    decode_latency_correction: float
    prefill_degradation: float
    decode_degradation: float
    encoder_latency_correction: float
    encoder_degradation: float
    pool_degradation: float
    ttft_correction: float
    handover_ms: float


class LoopConstants(eqx.Module):
    """Numbers of a measured closed loop; meaning, unit and source in the constants file."""

    decode_level: float
    host_ms_per_step: float
    host_ms_per_running_request: float
    host_ms_per_prefill: float
    host_ms_per_prefill_layer: float
    prefill_level: float
    request_ms: float
    steps_waited: float
    collision_weight: float
    collisions_per_request: float
    interference_weight: float
    prompts_per_step: float
    prefill_token_budget: float
    mixes_prefill: float
    kv_answer_share: float
    disagg_decode_level: float
    disagg_wide_decode_level: float
    disagg_prefill_level: float
    disagg_request_ms: float
    disagg_steps_waited: float
    disagg_burst_weight: float
    disagg_queue_weight: float
    unknown_waves: float
    ttft_level: float
    tpot_level: float


class Constants(eqx.Module):
    """All empirical numbers for one backend: a traced argument of every kernel that uses one.

    Attributes:
        op: Single operators.
        memory: The memory model.
        serving: Static and in-flight batching.
        disagg: Disaggregated serving.
        loop: Load of a measured closed loop, in-flight and disaggregated.
        formulas: Which serving formulas the numbers belong to: the mean field of section `serving`, or the closed loop
            of section `loop`. Static.
    """

    op: OpConstants
    memory: MemoryConstants
    serving: ServingConstants
    disagg: DisaggConstants
    loop: LoopConstants
    formulas: Formulas = eqx.field(static=True, default="steady_state")


SECTIONS: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(Constants) if f.name != "formulas"}


def load_constants(backend: str, name: str = DEFAULT_CONSTANTS, *, model: str = "", system: str = "") -> Constants:
    """Constants of one backend from `configs/constants/<name>.yaml`, or from a YAML file elsewhere.

    A file may name another as its `base` and state only what differs. Section `levels` of a personal file holds factors
    on TTFT and TPOT of one model on one system and backend, learned from its user's measurements.

    Args:
        backend: Engine.
        name: Name of a bundled file, or path of a `.yaml` file.
        model, system: Whose levels apply, by their names; none where empty or not in the file.

    Raises:
        InputError: No such file, or an unknown backend.
        DataError: A number is missing, unknown or has no unit, meaning or source.

    Examples:
        >>> load_constants("vllm", "reference").disagg.ttft_correction
        1.8
    """
    path = constants_file(name)
    values = _read(path)
    formulas = values.get("formulas", "steady_state")
    if formulas not in get_args(Formulas):
        raise DataError(f"{path}: formulas is {formulas!r}, not one of {get_args(Formulas)}")
    parts: dict[str, Any] = {"formulas": formulas}
    for part, kind in SECTIONS.items():
        section = values.get(part, {})
        wanted = [f.name for f in dataclasses.fields(kind)]
        if set(section) != set(wanted):
            odd = sorted(set(section) ^ set(wanted))
            raise DataError(f"{path}: section {part} lacks or does not know {odd}")
        parts[part] = kind(**{key: _pick(path, key, section[key], backend) for key in wanted})
    if level := levels(name).get((model, system, backend)):
        parts["loop"] = dataclasses.replace(parts["loop"], ttft_level=level.ttft_level, tpot_level=level.tpot_level)
    return Constants(**parts)


class Level(NamedTuple):
    """Factors of one model on one system and backend.

    Attributes:
        ttft_level, tpot_level: Factors on TTFT and TPOT.
        log_covariance: Covariance of their logarithms, two rows of two.
    """

    ttft_level: float
    tpot_level: float
    log_covariance: tuple[tuple[float, float], tuple[float, float]]


def levels(name: str) -> dict[tuple[str, str, str], Level]:
    """Factors that a file holds by (model, system, backend); empty where it has none.

    Raises:
        DataError: An entry lacks a name or a number, or a factor is not above 0.
    """
    path = constants_file(name)
    found = {}
    for entry in _read(path).get("levels", ()):
        try:
            (a, b), (c, d) = entry["log_covariance"]
            covariance = (float(a), float(b)), (float(c), float(d))
            level = Level(float(entry["ttft_level"]), float(entry["tpot_level"]), covariance)
            found[entry["model"], entry["system"], entry["backend"]] = level
        except (KeyError, TypeError, ValueError):
            wanted = "model, system, backend, " + ", ".join(Level._fields)
            raise DataError(f"{path}: an entry of `levels` must have {wanted}") from None
        if not all(0 < factor < float("inf") for factor in level[:2]):
            raise DataError(f"{path}: levels of {entry['model']} on {entry['system']} must be above 0")
    return found


def fitted(name: str) -> dict[str, Any]:
    """What a fit left beside its constants, section `fit` of a file; empty where there is none."""
    return _read(constants_file(name)).get("fit") or {}


def section(name: str, part: str) -> dict[str, Any]:
    """Entries of one section (a field of `Constants`) of a file, each with value, unit, meaning and source."""
    return _read(constants_file(name))[part]


def stated_value(path: Path, key: str, entry: dict[str, Any]) -> Any:
    """The value of an entry, with floats for numbers.

    Raises:
        DataError: The entry has no value, unit, meaning or source.
    """
    if missing := {"value", "unit", "meaning", "source"} - set(entry):
        raise DataError(f"{path}: {key} lacks {sorted(missing)}")
    return _floats(entry["value"])


def _pick(path: Path, key: str, entry: dict[str, Any], backend: str) -> Any:
    value = stated_value(path, key, entry)
    if isinstance(value, dict) and backend not in value:
        raise InputError("backend", backend, f"one of {', '.join(value)}")
    return value[backend] if isinstance(value, dict) else value


def traced(constants: Any) -> Any:
    """The same constants as float32 arrays: a compiled kernel takes them as arguments and holds none of them."""
    return jax.tree.map(lambda value: np.asarray(value, np.float32), constants)


def _floats(value: Any) -> Any:
    """Numbers as floats, at any depth; null stays null."""
    if isinstance(value, dict):
        return {key: _floats(part) for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_floats(part) for part in value)
    return None if value is None else float(value)


def _read(path: Path) -> dict[str, Any]:
    """The content of a file with what its base states and it does not."""
    values = _parsed(path, path.stat().st_mtime_ns)
    if "base" not in values:
        return values
    base = _read(constants_file(values["base"]))
    sections = {name: {**base[name], **values.get(name, {})} for name in SECTIONS}
    kept = {name: base[name] for name in ("formulas", "fit", "levels") if name in base}
    return {**kept, **values, **sections}


@functools.cache
def _parsed(path: Path, changed_ns: int) -> dict[str, Any]:
    return read_mapping("constants", path, "a YAML mapping of sections")
