# SPDX-License-Identifier: Apache-2.0
"""Experiment files: several searches in one YAML file, with the keys and defaults of AIConfigurator 0.12.0."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicjax._names import nearest, one_of
from aicjax._results import InputError
from aicjax._user_files import read_mapping
from aicjax.explore import experiment_keys as keys
from aicjax.explore.nested_experiments import flatten, is_nested
from aicjax.explore.request import SearchRequest

ORDER = "exps"  # key of the list that selects and orders the experiments
DEFAULTS = {"ttft": 1000.0, "tpot": 50.0}  # where they differ from those of a search


@dataclass(frozen=True)
class Experiments:
    """The experiments of a file.

    Attributes:
        source: The file, or a word for a mapping.
        requests: Searches by name, in the order in which they run.
        skipped: Why others do not run, by name.
    """

    source: str
    requests: Mapping[str, SearchRequest]
    skipped: Mapping[str, str]


def read_experiments(source: Path | str | Mapping[str, Any], **shared: Any) -> Experiments:
    """The experiments of a file or of a mapping with the same content.

    An experiment that states no serving mode, model, system or number of GPUs is skipped, and so is a name in the order
    that is not defined. A file that is one experiment, without a name around it, is called after the file.

    Args:
        source: A YAML file, or what it holds.
        shared: Fields of a `SearchRequest` for all experiments; what an experiment states wins.

    Raises:
        InputError: The file cannot be read, a key is unknown, or a value is bad; names file, experiment and key.
    """
    name = "experiments" if isinstance(source, Mapping) else str(source)
    content = source
    if not isinstance(content, Mapping):
        content = read_mapping("yaml_path", Path(content), "a mapping of names to experiments")
    if isinstance(content.get("serving_mode"), str):
        content = {Path(name).stem: content}
    listed = content.get(ORDER)
    defined = [key for key in content if key != ORDER]
    names = defined if listed is None else listed
    if not isinstance(names, list):
        raise InputError(f"{name}: {ORDER}", names, "a list of names")
    requests, skipped = {}, {}
    for experiment in names:
        if experiment not in defined:
            skipped[experiment] = f"it is not defined, and must be {one_of(experiment, defined)}"
            continue
        stated = content[experiment]
        if not isinstance(stated, Mapping):
            skipped[experiment] = "it is not a mapping"
            continue
        place = f"{name}: {experiment}"
        flat = _checked(place, flatten(place, stated) if is_nested(stated) else dict(stated))
        if lacking := _lacking(flat):
            skipped[experiment] = f"{lacking} is not stated"
        else:
            requests[experiment] = _request(place, flat, shared)
    if not requests:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in skipped.items()) or "it has none"
        raise InputError("yaml_path", name, f"a file with an experiment that can run ({reasons})")
    return Experiments(name, requests, skipped)


def _checked(place: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an experiment that ask for something, after those that do not belong are refused."""
    stated = {key: None if value == "None" else value for key, value in stated.items()}
    mode = stated.get("serving_mode")
    for key, value in stated.items():
        if key not in keys.KNOWN:
            near = nearest(key, keys.KNOWN)
            hint = f"a known key; the nearest is `{near}`" if near else "a known key"
            raise InputError(f"{place}.{key}", value, hint)
        if value not in (None, *keys.ASKS_NOTHING.get(key, (value,))):
            raise InputError(f"{place}.{key}", value, "left out: it asks for what is not modelled")
    if mode is not None and mode not in keys.SERVING_MODES:
        raise InputError(f"{place}.serving_mode", mode, one_of(mode, keys.SERVING_MODES))
    decode_too = [f"decode_{key}" for key in keys.SAME_AS_PREFILL]
    one_worker = (*(key for key in keys.DISAGG_NAMES if key not in keys.NAMES), *decode_too)
    foreign = {"disagg": keys.OF_ONE_WORKER, "agg": one_worker, "afd": one_worker}.get(str(mode), ())
    for key in foreign:
        if stated.get(key) not in (*keys.UNSET, stated.get(_shared_name(key))):
            reason = f"left out where serving_mode is {mode}: {_HINTS[str(mode)]}"
            raise InputError(f"{place}.{key}", stated[key], reason)
    for key, default in keys.SAME_AS_PREFILL.items() if mode == "disagg" else ():
        own, other = stated.get(f"decode_{key}"), stated.get(f"prefill_{key}") or default
        if own and own != other:
            raise InputError(f"{place}.decode_{key}", own, f"that of the prefill workers, {other}")
    dropped: set[str] = {*keys.ASKS_NOTHING, *foreign, *decode_too}
    return {key: value for key, value in stated.items() if value is not None and key not in dropped}


_HINTS = {
    "disagg": "prefill and decode workers have their own",
    **dict.fromkeys(("agg", "afd"), "model, system and engine are stated once"),
}


def _shared_name(key: str) -> str:
    """The key of one worker that a key of a role stands for; none for one that is not of a role."""
    shared = key.removeprefix("prefill_").removeprefix("decode_")
    return shared if shared != key else ""


def _lacking(stated: Mapping[str, Any]) -> str | None:
    """The first key that an experiment needs and does not state."""
    mode = stated.get("serving_mode")
    role = "prefill_" if mode == "disagg" else ""
    needed = ("serving_mode", f"{role}model_path", f"{role}system_name", "total_gpus")
    return next((key for key in needed if key not in stated), None)


def _request(place: str, stated: Mapping[str, Any], shared: Mapping[str, Any]) -> SearchRequest:
    names = keys.DISAGG_NAMES if stated["serving_mode"] == "disagg" else keys.NAMES
    fields = {names.get(key, key): value for key, value in stated.items()}
    if isinstance(policy := fields.get("transfer_policy"), list):
        fields["transfer_policy"] = ",".join(policy)
    try:
        return SearchRequest(**{**DEFAULTS, **shared, **fields})
    except InputError as error:
        raise InputError(f"{place}.{error.argument}", error.value, error.allowed) from None
