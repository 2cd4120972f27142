# SPDX-License-Identifier: Apache-2.0
"""Reading and checking of `systems/<name>.yaml`: every key known, every number positive, units in the names."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import nearest, one_of
from aicjax._results import DataError, InputError
from aicjax.hardware.system import PEAK_DTYPES, System


def system_names(directory: Path | str | None = None) -> list[str]:
    """Names of the described systems, sorted; those of `directory` instead of ours when given."""
    return sorted(path.stem for path in _directory(directory).glob("*.yaml"))


def load_system(name: str, directory: Path | str | None = None) -> System:
    """The system described in `<directory>/<name>.yaml`.

    Args:
        name: A name of `system_names(directory)`.
        directory: Where the files lie; the package's `systems/` when None.

    Raises:
        InputError: There is no such file; the message lists the names and the nearest one.
        DataError: The file breaks the schema; the message gives file, key and rule.

    Examples:
        >>> load_system("h100_sxm").peak("fp8")
        1978000000000000.0
    """
    names = system_names(directory)
    if name not in names:
        raise InputError("system", name, one_of(name, names))
    path = _directory(directory) / f"{name}.yaml"
    return _system(path, path.stat().st_mtime_ns)


@functools.cache
def _system(path: Path, changed_ns: int) -> System:
    """The system of a file as it was when last changed: a search asks for the same one several times."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise DataError(f"{path}: is not YAML: {error}") from None
    fields = _fields(path, document)
    fields.setdefault("inter_rack_bw_bytes_per_s", fields["inter_node_bw_bytes_per_s"])
    return System(name=path.stem, **(_DEFAULTS | fields))


def _directory(directory: Path | str | None) -> Path:
    if directory is None:
        return _paths.systems_dir()
    if not Path(directory).is_dir():
        raise InputError("directory", str(directory), "a directory of system descriptions")
    return Path(directory)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number")
    try:
        number = float(value)  # YAML reads 3.35e12, without a sign in the exponent, as text
    except ValueError:
        raise ValueError("must be a number") from None
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return number


def _positive(value: Any) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError("must be above zero")
    return number


def _not_negative(value: Any) -> float:
    number = _number(value)
    if number < 0:
        raise ValueError("must not be negative")
    return number


def _share(value: Any) -> float:
    number = _positive(value)
    if number > 1:
        raise ValueError("must not be above 1")
    return number


def _count(value: Any) -> int:
    number = _positive(value)
    if number != int(number):
        raise ValueError("must be a whole number")
    return int(number)


def _size(value: Any) -> int:
    number = _not_negative(value)
    if number != int(number):
        raise ValueError("must be a whole number of bytes")
    return int(number)


def _version(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a quoted version")
    return value


def _peaks(value: Any) -> Mapping[str, float]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"must give a peak by data type ({', '.join(PEAK_DTYPES)})")
    for dtype in value:
        if dtype not in PEAK_DTYPES:
            raise ValueError(f"{dtype} must be {one_of(dtype, PEAK_DTYPES)}")
    return {dtype: _named(dtype, _positive, value[dtype]) for dtype in PEAK_DTYPES if dtype in value}


def _sizes_by_gpus(value: Any) -> Mapping[int, int]:
    if not isinstance(value, dict) or not value:
        raise ValueError("must give bytes by number of GPUs")
    return {_named(key, _count, key): _named(key, _size, size) for key, size in value.items()}


def _named(key: object, rule: Callable[[Any], Any], value: Any) -> Any:
    try:
        return rule(value)
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


_SCHEMA: dict[str, dict[str, tuple[str, Callable[[Any], Any]]]] = {  # section -> key -> field of System, rule
    "gpu": {
        "memory_bandwidth_bytes_per_s": ("mem_bw_bytes_per_s", _positive),
        "memory_bandwidth_scaling": ("mem_bw_scaling", _share),
        "memory_latency_s": ("mem_latency_s", _not_negative),
        "memory_capacity_bytes": ("mem_capacity_bytes", _count),
        "peak_flops_per_s": ("peak_flops", _peaks),
        "sm_version": ("sm_version", _count),
        "power_w": ("power_w", _positive),
    },
    "node": {
        "gpus_per_node": ("gpus_per_node", _count),
        "gpus_per_rack": ("gpus_per_rack", _count),
        "intra_node_bandwidth_bytes_per_s": ("intra_node_bw_bytes_per_s", _positive),
        "inter_node_bandwidth_bytes_per_s": ("inter_node_bw_bytes_per_s", _positive),
        "inter_rack_bandwidth_bytes_per_s": ("inter_rack_bw_bytes_per_s", _positive),
        "point_to_point_latency_s": ("p2p_latency_s", _not_negative),
    },
    "runtime": {
        "nccl_memory_bytes": ("nccl_mem_bytes", _sizes_by_gpus),
        "other_memory_bytes": ("other_mem_bytes", _size),
        "nccl_version": ("nccl_version", _version),
        "oneccl_version": ("oneccl_version", _version),
    },
}
_DEFAULTS = {  # what a file may leave out, besides the inter-rack bandwidth, which is then the inter-node one
    "mem_bw_scaling": 1.0,
    "mem_latency_s": 0.0,
    "sm_version": None,
    "gpus_per_rack": None,
    "p2p_latency_s": 0.0,
    "nccl_version": None,
    "oneccl_version": None,
}
_OPTIONAL = {*_DEFAULTS, "inter_rack_bw_bytes_per_s"}


def _fields(path: Path, document: Any) -> dict[str, Any]:
    """Fields of `System` that the file states, each through its rule."""
    _check_keys(path, "", document, _SCHEMA)
    fields = {}
    for section, rules in _SCHEMA.items():
        values = document.get(section)
        _check_keys(path, f"{section}.", values, rules)
        for key, (name, rule) in rules.items():
            if key in values:
                try:
                    fields[name] = rule(values[key])
                except ValueError as error:
                    raise DataError(f"{path}: {section}.{key}: {error}, but is {values[key]!r}") from None
            elif name not in _OPTIONAL:
                raise DataError(f"{path}: {section}.{key} is missing")
    return fields


def _check_keys(path: Path, prefix: str, values: Any, known: Mapping[str, Any]) -> None:
    if not isinstance(values, dict):
        raise DataError(f"{path}: {prefix.rstrip('.') or 'the file'} must be a mapping with {', '.join(known)}")
    for key in values:
        if key not in known:
            guess = nearest(key, known)
            raise DataError(f"{path}: {prefix}{key} is not a known key{f'; did you mean {guess}?' if guess else ''}")
