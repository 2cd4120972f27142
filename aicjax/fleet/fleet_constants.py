# SPDX-License-Identifier: Apache-2.0
"""Empirical numbers of fleets as leaves of one pytree, loaded from `configs/constants/fleet.yaml`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx

from aicjax._paths import constants_file
from aicjax._results import DataError
from aicjax.constants import section, stated_value


class ComputedConstants(eqx.Module):
    """Numbers of computed profiles; meaning, unit and source in the constants file."""

    memory_latency_s: float
    memory_bandwidth_share: float
    expert_bandwidth_exponent: float
    expert_tokens: float


class PowerConstants(eqx.Module):
    """Numbers of computed power; meaning, unit and source in the constants file."""

    idle_share: float
    active_share: float


class DisaggFleetConstants(eqx.Module):
    """Numbers of disaggregated fleets; meaning, unit and source in the constants file."""

    prefill_share: float
    decode_share: float
    ttft_factor: float


class CompressionConstants(eqx.Module):
    """Numbers of prompt compression; meaning, unit and source in the constants file."""

    success: float
    latency_s: float


class WaitConstants(eqx.Module):
    """Numbers of the law of the wait; meaning, unit and source in the constants file."""

    delay_by_variability: float


class EngineConstants(eqx.Module):
    """Settings of engines that a deployment does not state; meaning, unit and source in the constants file."""

    block_tokens: Mapping[str, float]
    step_tokens: Mapping[str, float]


class FleetConstants(eqx.Module):
    """Every empirical number of a fleet: traced, so that a fit can take gradients.

    Attributes:
        computed: Profiles computed from hardware and model.
        power: Power computed from the power limit of a GPU.
        disagg: Disaggregated fleets.
        compression: Prompts shortened to fit a pool.
        waiting: Law of the wait for a slot.
        engine: Settings of engines, by engine.
    """

    computed: ComputedConstants
    power: PowerConstants
    disagg: DisaggFleetConstants
    compression: CompressionConstants
    waiting: WaitConstants
    engine: EngineConstants


def load_fleet_constants(name: str = "fleet") -> FleetConstants:
    """Constants of fleets from `configs/constants/<name>.yaml`, or from a YAML file elsewhere.

    Args:
        name: Name of a bundled file, or path of a `.yaml` file.

    Raises:
        InputError: No such file.
        DataError: A section or a number is missing or unknown, or has no unit, meaning or source.
    """
    path = constants_file(name)
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(FleetConstants):
        kind: Any = field.type
        wanted = {f.name for f in dataclasses.fields(kind)}
        try:
            entries = section(name, field.name)
        except KeyError:
            raise DataError(f"{path}: section {field.name} is missing") from None
        if set(entries) != wanted:
            raise DataError(f"{path}: section {field.name} lacks or does not know {sorted(set(entries) ^ wanted)}")
        parts[field.name] = kind(**{key: stated_value(path, key, entry) for key, entry in entries.items()})
    return FleetConstants(**parts)
