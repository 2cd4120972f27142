# SPDX-License-Identifier: Apache-2.0
"""A DynamoGraphDeploymentRequest as a search: which field of the resource asks for what, by `configs/compat/`."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths
from aicjax._names import nearest, one_of
from aicjax._results import InputError
from aicjax._user_files import read_mapping
from aicjax.hardware import load_system

TABLE = "compat/dynamo_request.yaml"
_UNSET: tuple[Any, ...] = (None, "", {}, [])


@dataclass(frozen=True)
class DynamoRequest:
    """What a resource asks for.

    Attributes:
        fields: Fields of a `SearchRequest`.
        name: Of the deployment; None where it has none.
        site: What the user's cluster is called and has, by field of `aicjax.deploy.record.Site`.
        notes: Fields that change nothing, each with the reason.
    """

    fields: Mapping[str, Any]
    name: str | None
    site: Mapping[str, str]
    notes: tuple[str, ...]


def read_dynamo_request(path: Path, **given: Any) -> DynamoRequest:
    """The search that a resource asks for.

    Args:
        path: A YAML file with one resource of API version v1beta1 or v1alpha1.
        given: Fields of a `SearchRequest` that win; those that a cluster would be asked for must be in one or the
            other: system, and total_gpus unless a load is stated.

    Raises:
        InputError: The file cannot be read, or a field is unknown, bad or refused; names file and field.
    """
    place, content = str(path), read_mapping("request", path, f"a {table()['kind']}")
    versions = table()["versions"]
    version = content.get("apiVersion")
    if content.get("kind") != table()["kind"]:
        raise InputError(f"{place}: kind", content.get("kind"), table()["kind"])
    if version not in versions:
        raise InputError(f"{place}: apiVersion", version, one_of(version, versions))
    fates = versions[version]
    fields: dict[str, Any] = {"backend": "auto"}
    cluster: dict[str, str] = {}
    notes = {}
    stated = {name: part for name, part in content.items() if name not in ("apiVersion", "kind")}
    for field, value in _flat(stated, fates):
        if value in _UNSET:
            continue
        fate = _fate(place, field, value, fates)
        if value in fate.get("quiet", ()):
            continue
        if "instead" in fate:
            raise InputError(f"{place}: {field}", value, fate["instead"])
        if "no_effect" in fate:
            notes[field] = f"{field} changes nothing: {fate['no_effect']}"
        elif "cluster" in fate:
            cluster[fate["cluster"]] = str(value)
        elif "field" in fate:
            fields[fate["field"]] = _system(place, field, value) if fate["field"] == "system" else value
    fields |= given
    _check_node(place, fields)
    for name in ("model_path", "system"):
        if fields.get(name) is None:
            raise InputError(f"{place}: {name.removesuffix('_path')}", None, "stated in the file or given as a flag")
    return DynamoRequest(fields, cluster.pop("name", None), cluster, tuple(notes.values()))


@functools.cache
def table() -> Mapping[str, Any]:
    """The fields as they are written."""
    return yaml.safe_load((_paths.configs_dir() / TABLE).read_text(encoding="utf-8"))


def _flat(content: Mapping[str, Any], fates: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields by their path, down to those that the table lists or that hold no further ones."""
    for name, value in content.items():
        field = f"{prefix}{name}"
        below = any(listed.startswith(f"{field}.") for listed in fates)
        if isinstance(value, Mapping) and below:
            yield from _flat(value, fates, f"{field}.")
        else:
            yield field, value


def _fate(place: str, field: str, value: Any, fates: Mapping[str, Any]) -> Mapping[str, Any]:
    """What becomes of a field: its own entry, or that of the nearest field around it."""
    inside = field
    while inside not in fates and "." in inside:
        inside = inside.rpartition(".")[0]
    if inside not in fates:
        near = nearest(field, fates)
        raise InputError(f"{place}: {field}", value, f"a known field{f'; the nearest is {near}' if near else ''}")
    return fates[inside]


def _system(place: str, field: str, value: Any) -> str:
    systems = table()["systems"]
    value = str(value)
    if value not in systems:
        raise InputError(f"{place}: {field}", value, one_of(value, systems))
    if systems[value] is None:
        known = [sku for sku, system in systems.items() if system is not None]
        raise InputError(f"{place}: {field}", value, f"one that is described here: {', '.join(known)}")
    return systems[value]


def _check_node(place: str, fields: dict[str, Any]) -> None:
    """Takes the GPUs of a node, which are those of the system, out of the fields."""
    stated = fields.pop("gpus_per_node", None)
    if stated is not None and fields.get("system") is not None:
        system = load_system(fields["system"])
        if stated != system.gpus_per_node:
            raise InputError(f"{place}: GPUs of a node", stated, f"{system.gpus_per_node}, as {system.name} has")
