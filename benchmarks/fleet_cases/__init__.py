# SPDX-License-Identifier: Apache-2.0
"""What is asked of the fleets for each file of stored answers: one module per schema, named `fleet_<schema>.json`.

A module has `rows(answers, path)`: our answers beside the stored ones, for the parsed file and its place (what belongs
to it may lie beside it). It runs in float64 unless the caller asks otherwise.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from aicjax.fleet.presets import manual_power, manual_profile, preset
from aicjax.fleet.profile import Profile

Kind = Literal["exact", "relative", "absolute"]


class Row(NamedTuple):
    """One number or array of numbers, answered twice.

    Attributes:
        label: What it is.
        ours, theirs: The answers; None and texts may stand in exact rows, "inf" and "nan" are numbers.
        kind: How they must agree.
        tolerance: Largest error allowed, in float64; float32 has its own floor.
    """

    label: str
    ours: Any
    theirs: Any
    kind: Kind = "relative"
    tolerance: float = 1e-9

    def error(self) -> float:
        """Largest error over the row; infinite where one answer is no finite number and the other is."""
        if self.kind == "exact":
            return 0.0 if self.numbers() and _plain(self.ours) == _plain(self.theirs) else np.inf
        ours, theirs = np.asarray(self.ours, float), np.asarray(self.theirs, float)
        if ours.shape != theirs.shape:
            return np.inf
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(all="ignore"):
            difference = np.abs(ours - theirs) / (np.abs(theirs) if self.kind == "relative" else 1.0)
        error = np.where(same, 0.0, np.where(np.isfinite(difference), difference, np.inf))
        return float(error.max(initial=0.0))

    def numbers(self) -> int:
        """How many answers the row holds."""
        return max(int(np.size(self.theirs)), 1)


_KEYS: Mapping[str, set[str]] = {
    "builder": {"hardware", "models", "profiles"},
    "latency": {"manual", "computed"},
    "queueing": {"erlang_c", "p99_wait", "min_gpus"},
    "sizing": {"optimize", "threshold_pareto", "whatif"},
    "power": {"grid_flex", "tok_per_watt"},
    "slot_des": {"optimizer_des", "fcfs_replay"},
    "routers": {"requests", "routers"},
    "cli_api": {"cli", "api"},
}  # what tells a schema whatever the file is called
SCHEMAS = (*_KEYS, "des", "disagg", "workload")  # the last three are known by name only


def schema_of(path: Path, answers: Mapping[str, Any]) -> str | None:
    """The schema of a file by its name, else by its keys; None for another kind of file."""
    named = path.stem.removeprefix("fleet_")
    if named in SCHEMAS:
        return named
    return next((schema for schema, keys in _KEYS.items() if keys <= set(answers)), None)


def checker(schema: str) -> Callable[[Mapping[str, Any], Path], Iterable[Row]]:
    """The function `rows` of a schema's module."""
    return importlib.import_module(f"{__name__}.{schema}").rows


def read_answers(path: Path) -> dict[str, Any]:
    """A file of stored answers."""
    return json.loads(path.read_text(encoding="utf-8"))


def profile_of(answers: Mapping[str, Any], key: str) -> Profile:
    """A profile that answers name: one of the file's own, else a preset."""
    own = answers.get("custom_profiles", {})
    return stated_profile(own[key]) if key in own else preset(key)


def stated_profile(facts: Mapping[str, Any]) -> Profile:
    """A profile from the fields of the fleet reference."""
    return manual_profile(
        facts["name"],
        base_s=facts["W"],
        per_sequence_s=facts["H"],
        price_per_hour=facts["cost_per_hr"],
        calibration_tokens=facts["calibration_ctx"],
        chunk_tokens=facts["chunk"],
        block_tokens=facts["blk_size"],
        kv_blocks=facts["total_kv_blks"],
        linear_slots=facts["max_slots"],
        power=manual_power(
            idle_w=facts["power_idle_w"],
            nominal_w=facts["power_nominal_w"],
            most_running=facts["max_slots"],
            steepness=facts.get("power_logistic_k", 0.0),
            midpoint=facts.get("power_logistic_x0", 0.0),
        ),
    )


def columns(rows: Iterable[Iterable[Any]]) -> list[np.ndarray]:
    """Columns of a table of numbers; null is NaN."""
    return [np.asarray([np.nan if x is None else x for x in column], float) for column in zip(*rows, strict=True)]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
