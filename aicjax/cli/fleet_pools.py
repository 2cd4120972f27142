# SPDX-License-Identifier: Apache-2.0
"""A fleet stated on the command line: a file, or counts of replicas with the flags of the pools."""

import json
import math
from pathlib import Path
from typing import Any

from aicjax._results import InputError

_OF_POOLS = ("replicas", "n_s", "n_l", "replica", "replica_long", "thresholds", "max_tokens", "gamma", "router")
NAMES = {1: ("all",), 2: ("short", "long")}  # of one pool and of two
_MAX_TOKENS = 65536
_MOST_DIGITS = 10
_OF_FILE = {"id": "name", "gpu": "replica", "n_gpus": "replicas", "max_ctx": "max_tokens"}  # in files of vllm-sr-sim


def take_fleet(given: dict[str, Any]) -> dict[str, Any]:
    """Takes the flags that state a fleet out of the given flags, and returns the fleet's fields.

    Raises:
        InputError: Flags that contradict each other, or no fleet.
    """
    stated = {name: given.pop(name) for name in _OF_POOLS if name in given}
    path = given.pop("fleet", None)
    if path is None:
        return _from_flags(stated)
    fleet = _from_file(Path(path))
    for name in stated:
        if name != "router":
            raise InputError(name, stated[name], "absent when fleet is given")
    return {**fleet, **stated}


def _from_flags(stated: dict[str, Any]) -> dict[str, Any]:
    from aicjax.fleet.request_fields import check_ascending

    counts = _counts(stated)
    bounds = [*_integers("thresholds", stated.get("thresholds", "")), *_max_tokens(stated)]
    if len(bounds) != len(counts):
        raise InputError("replicas", counts, f"{len(bounds)} counts: one for each pool")
    check_ascending(bounds[:-1], bounds[-1])
    kinds = [stated.get("replica", "a100")] * len(counts)
    if len(counts) > 1:
        kinds[-1] = stated.get("replica_long", kinds[-1])
    names = NAMES.get(len(counts)) or [f"pool{number}" for number in range(1, len(counts) + 1)]
    pools = [
        {"name": name, "replica": kind, "replicas": count, "max_tokens": bound}
        for name, kind, count, bound in zip(names, kinds, counts, bounds, strict=True)
    ]
    fleet: dict[str, Any] = {"pools": pools}
    if len(bounds) == 2:
        fleet["threshold"] = bounds[0]
    gamma = _gamma(stated.get("gamma", "1"))
    if gamma > 1:
        fleet |= {"gamma": gamma, "router": "compress"}
    return fleet | ({"router": stated["router"]} if "router" in stated else {})


def _counts(stated: dict[str, Any]) -> list[int]:
    if "n_s" in stated or "n_l" in stated:
        if "replicas" in stated:
            raise InputError("replicas", stated["replicas"], "absent when n_s and n_l are given")
        stated.setdefault("thresholds", "4096")
        return [count for name in ("n_s", "n_l") for count in _integers(name, stated.get(name, ""))]
    counts = _integers("replicas", stated.get("replicas", ""))
    if not counts:
        raise InputError("replicas", None, "given, or fleet instead")
    return counts


def _max_tokens(stated: dict[str, Any]) -> list[int]:
    return _integers("max_tokens", str(stated.get("max_tokens", _MAX_TOKENS)))


def _gamma(text: str) -> float:
    try:
        gamma = float(text)
    except ValueError:
        gamma = math.nan
    if not 1 <= gamma < math.inf:
        raise InputError("gamma", text, "a number of at least 1")
    return gamma


def _integers(argument: str, text: str) -> list[int]:
    words = [word.strip() for word in str(text).split(",") if word.strip()]
    if not all(word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS for word in words):
        raise InputError(argument, text, f"whole numbers of at most {_MOST_DIGITS} digits with commas between")
    return [int(word) for word in words]


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError("fleet", str(path), "a readable file")
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text if path.suffix == ".json" else json.dumps(yaml.safe_load(text)))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise InputError("fleet", str(path), f"JSON or YAML ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict) or not isinstance(content.get("pools"), list):
        raise InputError("fleet", str(path), "an object with a list of `pools`")
    pools = [
        {_OF_FILE.get(name, name): value for name, value in pool.items()} if isinstance(pool, dict) else pool
        for pool in content["pools"]
    ]
    return {**content, "pools": pools}
