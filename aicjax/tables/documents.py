# SPDX-License-Identifier: Apache-2.0
"""The database's small YAML files: what maintainers decided beside the tables, from the published ones."""

from pathlib import PurePosixPath
from typing import Any

import yaml

from aicjax._results import DataError
from aicjax.tables.schema import SCHEMA_VERSION
from aicjax.tables.upstream import DATA, Upstream

SIDECAR, INCOMPLETE, REUSE = "collection_meta.yaml", "INCOMPLETE.txt", "reuse.yaml"
_ADMITTED_TIERS = ("shared", "shared_fallback")
_REUSE_FIELDS = ("table", "from_version", "reason", "approved_by")
_TITLES = {
    "version_slots": "Versions a request may name, per backend; overrides replace the default of a system.",
    "attention_lanes": "Default attention kernel: backend, version from which it holds, SM version.",
    "reuse_groups": "Backends that run the same kernel: table, kernel_source, backends whose rows answer one another.",
    "declared_reuse": "Versions whose table answers for another: system, backend, version that lacks it.",
    "collections": "Every measured version: how its tables were obtained and which of them are partial.",
}


def version_directories(upstream: Upstream) -> dict[str, set[str]]:
    """Names of the files in each `<system>/<family>/<backend>/<version>` folder of the published tables."""
    found: dict[str, set[str]] = {}
    for name in upstream.names:
        parts = PurePosixPath(name).parts
        if len(parts) == 6 and parts[0] == DATA and not any(part.startswith((".", "_")) for part in parts[1:]):
            found.setdefault("/".join(parts[1:5]), set()).add(parts[5])
    return found


def is_vetoed(files: set[str]) -> bool:
    """Whether a version folder is marked as incomplete and nothing says how its tables were collected."""
    return INCOMPLETE in files and SIDECAR not in files


def documents(upstream: Upstream) -> dict[str, bytes]:
    """Name and bytes of each YAML file of the database.

    Raises:
        DataError: A published file breaks its schema; the message names it.
    """
    folders = version_directories(upstream)
    contents = {
        "version_slots": _version_slots(upstream),
        "attention_lanes": _load(upstream, "attention_lane_defaults.yaml"),
        "reuse_groups": _reuse_groups(upstream),
        "declared_reuse": _declared_reuse(upstream, folders),
        "collections": _collections(upstream, folders),
    }
    return {f"{name}.yaml": _dump(_TITLES[name], content) for name, content in contents.items()}


def _version_slots(upstream: Upstream) -> dict[str, Any]:
    published = _load(upstream, "query_versions.yaml")
    return {part: published.get(part) or {} for part in ("defaults", "overrides")}


def _reuse_groups(upstream: Upstream) -> dict[str, dict[str, list[str]]]:
    name = "perf_data_reuse_manifest.yaml"
    groups: dict[str, dict[str, list[str]]] = {}
    for number, group in enumerate(_load(upstream, name).get("groups") or []):
        try:
            table, kernel, tier, frameworks = (group[f] for f in ("op_file", "kernel_source", "tier", "frameworks"))
        except (KeyError, TypeError):
            raise DataError(f"{name}: groups[{number}] must have op_file, kernel_source, tier, frameworks") from None
        kernels = groups.setdefault(PurePosixPath(table).stem, {})
        if kernel in kernels:
            raise DataError(f"{name}: groups[{number}] repeats {table}, {kernel}")
        if tier in _ADMITTED_TIERS:
            kernels[kernel] = list(frameworks)
    return groups


def _declared_reuse(upstream: Upstream, folders: dict[str, set[str]]) -> dict[str, dict[str, dict[str, list[dict]]]]:
    declared: dict[str, dict[str, dict[str, list[dict]]]] = {}
    for folder in (folder for folder, files in sorted(folders.items()) if REUSE in files):
        name = f"{DATA}/{folder}/{REUSE}"
        system, _, backend, version = folder.split("/")
        entries = declared.setdefault(system, {}).setdefault(backend, {}).setdefault(version, [])
        for number, entry in enumerate(_load(upstream, name).get("reuse") or []):
            for field in _REUSE_FIELDS:
                if not isinstance(entry, dict) or not isinstance(entry.get(field), str) or not entry[field].strip():
                    raise DataError(f"{name}: reuse[{number}].{field} must be a text that is not empty")
            entries.append({field: entry[field] for field in _REUSE_FIELDS if field != "reason"})
    return declared


def _collections(upstream: Upstream, folders: dict[str, set[str]]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    for folder, files in sorted(folders.items()):
        entry: dict[str, Any] = {}
        if SIDECAR in files:
            sidecar = _load(upstream, f"{DATA}/{folder}/{SIDECAR}")
            entry["provenance"] = sidecar.get("provenance") or "unstated"
            tables = sidecar.get("tables") or {}
            partial = sorted(table for table, facts in tables.items() if (facts or {}).get("status") == "partial")
            if partial:
                entry["partial"] = partial
        if is_vetoed(files):
            entry["vetoed"] = True
        found[folder] = entry
    return {"collections": found}


def _load(upstream: Upstream, name: str) -> dict[str, Any]:
    """A published YAML file; empty when there is none."""
    if name not in upstream.names:
        return {}
    try:
        content = yaml.load(upstream.read(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise DataError(f"{name}: is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{name}: must be a mapping")
    content.pop("schema_version", None)
    return content


def _dump(title: str, content: dict[str, Any]) -> bytes:
    body = yaml.safe_dump({"schema_version": SCHEMA_VERSION, **content}, sort_keys=False, width=120, allow_unicode=True)
    return f"# {title}\n{body}".encode()
