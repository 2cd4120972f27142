# SPDX-License-Identifier: Apache-2.0
"""Replica profiles stated by hand: those of `configs/fleet/profiles.yaml`, and a user's own."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from aicjax._names import one_of
from aicjax._paths import configs_dir
from aicjax._results import DataError, InputError
from aicjax.fleet.power import Evidence, PowerLaw, linear_power
from aicjax.fleet.profile import Profile


def preset(name: str) -> Profile:
    """A bundled profile by its key in `configs/fleet/profiles.yaml`.

    Raises:
        InputError: No such profile.
    """
    stated = _presets()
    if name not in stated:
        raise InputError("profile", name, one_of(name, stated))
    return stated[name]


def preset_names() -> list[str]:
    """Keys of the bundled profiles."""
    return list(_presets())


def manual_profile(
    name: str,
    *,
    base_s: float,
    per_sequence_s: float,
    price_per_hour: float,
    calibration_tokens: float = 8192,
    chunk_tokens: int = 512,
    block_tokens: int = 16,
    kv_blocks: int = 65536,
    linear_slots: float = 128,
    gpus: int = 1,
    power: PowerLaw | None = None,
) -> Profile:
    """A profile from measured times; room and limits as of a card of 80 GB unless stated.

    Args:
        name: What it is called.
        base_s, per_sequence_s: Time of an iteration without requests, and what each adds at `calibration_tokens`.
        price_per_hour: Price of the replica.
        calibration_tokens: Context at which the times were measured.
        chunk_tokens: Prompt tokens of an iteration.
        block_tokens, kv_blocks: Tokens of a KV block, and blocks.
        linear_slots: Requests of `calibration_tokens` that run at most; shorter ones in proportion more.
        gpus: GPUs of the replica.
        power: Power of one of its GPUs.

    Raises:
        InputError: A number that no replica has.
    """
    times = {"base_s": base_s, "per_sequence_s": per_sequence_s, "price_per_hour": price_per_hour}
    sizes = {
        "calibration_tokens": calibration_tokens,
        "chunk_tokens": chunk_tokens,
        "block_tokens": block_tokens,
        "kv_blocks": kv_blocks,
        "linear_slots": linear_slots,
        "gpus": gpus,
    }
    for argument, value in times.items():
        if not 0 <= value < float("inf"):
            raise InputError(argument, value, "0 or above, and finite")
    for argument, value in sizes.items():
        if not 0 < value < float("inf"):
            raise InputError(argument, value, "above 0, and finite")
    if not base_s + per_sequence_s > 0:
        raise InputError("base_s", base_s, "above 0 where per_sequence_s is 0")
    return Profile(
        base_s=float(base_s),
        per_sequence_s=float(per_sequence_s),
        calibration_tokens=float(calibration_tokens),
        chunk_tokens=float(chunk_tokens),
        block_tokens=float(block_tokens),
        kv_blocks=float(kv_blocks),
        price_per_hour=float(price_per_hour),
        gpus=float(gpus),
        max_slot_tokens=float(linear_slots * calibration_tokens),
        power=power,
        name=name,
    )


def manual_power(
    *,
    idle_w: float,
    nominal_w: float,
    most_running: float,
    steepness: float = 0.0,
    midpoint: float = 0.0,
    evidence: Evidence = "low",
) -> PowerLaw:
    """The power law of a card: logistic where `steepness` is above 0, else linear up to `most_running`.

    Raises:
        InputError: Full load draws no more than none, or a number is out of range.
    """
    if not 0 < idle_w < nominal_w < float("inf"):
        raise InputError("nominal_w", nominal_w, f"above idle_w ({idle_w:g}), which must be above 0")
    if not most_running >= 1:
        raise InputError("most_running", most_running, "1 or above")
    if steepness < 0:
        raise InputError("steepness", steepness, "0 or above")
    if steepness == 0:
        return linear_power(float(idle_w), float(nominal_w), float(most_running))
    return PowerLaw(
        float(idle_w),
        float(nominal_w),
        float(steepness),
        float(midpoint),
        most_running=float(most_running),
        evidence=evidence,
    )


@functools.cache
def _presets() -> Mapping[str, Profile]:
    path = configs_dir() / "fleet" / "profiles.yaml"
    stated: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    profiles = {}
    for key, facts in stated.items():
        try:
            law = manual_power(most_running=facts["linear_slots"], **facts.pop("power"))
            profiles[key] = manual_profile(facts.pop("name"), power=law, **facts)
        except (KeyError, TypeError, InputError) as error:
            raise DataError(f"{path}: profile {key}: {error}") from None
    return profiles
