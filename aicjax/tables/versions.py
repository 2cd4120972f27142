# SPDX-License-Identifier: Apache-2.0
"""Which version of a backend answers: the maintained slots `current`, `previous` and `next`, and what is measured."""

import functools
import re
from pathlib import Path

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.tables.sources import newest_first
from aicjax.tables.tree import Tree, document, measured_systems, require_backend, tree

ALIASES = ("current", "previous", "next")


def resolve_version(system: str, backend: str, version: str | None, *, allow_unlisted: bool = False) -> str:
    """The literal version that a request means.

    Args:
        system: Name of the system.
        backend: Serving framework.
        version: A slot's alias or its literal version; None means `current`.
        allow_unlisted: Whether a measured version outside the slots is accepted, e.g. to compare an old measurement.

    Returns:
        The version. `next` may be measured on other systems only: earlier versions then answer for it.

    Raises:
        InputError: The backend is not measured on the system, or the version is neither slot nor alias; the message
            lists what is.

    Examples:
        >>> resolve_version("h200_sxm", "vllm", "current")
        '0.24.0'
    """
    require_backend(backend)
    slots = version_slots(system, backend)
    if not slots:
        return _without_slots(system, backend, version)
    asked = version or "current"
    resolved = slots.get(asked, asked)
    measured = tree(system).versions(backend)
    if resolved in slots.values():
        if resolved in measured or resolved == slots.get("next"):
            return resolved
        raise InputError("version", version, f"{one_of(resolved, newest_first(measured))}: what {system} has")
    if allow_unlisted and resolved in measured:
        return resolved
    listed = ", ".join(f"{alias} ({literal})" for alias, literal in slots.items())
    raise InputError("version", version, f"for {backend} on {system} one of {listed}")


def version_slots(system: str, backend: str) -> dict[str, str]:
    """Literal version of each slot that (system, backend) has; empty when nothing is measured or no slot is set."""
    slots = document("version_slots")
    own = slots.get("overrides", {}).get(system, {}).get(backend)
    entry = own or slots.get("defaults", {}).get(backend) or {}
    if not entry.get("current") or not tree(system).versions(backend):
        return {}
    found = {alias: str(entry[alias]) for alias in ("current", "previous") if entry.get(alias)}
    if own is None and (newer := _fleet_next(backend, found["current"])):
        found["next"] = newer
    return found


def available(system: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Tables measured on a system: backend to version, newest first, to the sorted names of its tables."""
    files = tree(system)
    return {
        backend: {version: _tables(files, backend, version) for version in newest_first(files.versions(backend))}
        for backend in files.backends()
    }


@functools.lru_cache(maxsize=64)
def newest_versions(system: str) -> dict[str, str]:
    """The version that answers for each backend measured on a system when none is asked for."""
    found = {}
    for backend in tree(system).backends():
        current = version_slots(system, backend).get("current")
        found[backend] = current or newest_first(tree(system).versions(backend))[0]
    return found


def _without_slots(system: str, backend: str, version: str | None) -> str:
    files = tree(system)
    measured = newest_first(files.versions(backend))
    if version is not None and version not in ALIASES:
        return version
    if not measured:
        having = ", ".join(files.backends())
        raise InputError(
            "backend", backend, f"one with measured tables on {system} ({having})" if having else _UNMEASURED
        )
    raise InputError("version", version, f"{one_of(version, measured)} ({backend} on {system} has no slots)")


_UNMEASURED = "given with a literal `version`, since the system has no measured tables"


def _fleet_next(backend: str, current: str) -> str | None:
    """The greatest version above `current` that is measured on any system which follows the default slots."""
    return _newest(_paths.perfdb_dir(), backend, current)


@functools.cache
def _newest(database: Path, backend: str, current: str) -> str | None:
    overrides = document("version_slots").get("overrides", {})
    newer = {
        version
        for system in measured_systems()
        if backend not in overrides.get(system, {})
        for version in tree(system).versions(backend)
        if slot_order(version) > slot_order(current) and _tables(tree(system), backend, version)
    }
    return max(newer, key=slot_order, default=None)


def _tables(files: Tree, backend: str, version: str) -> tuple[str, ...]:
    return tuple(sorted({t for (_, b, v), names in files.files.items() if (b, v) == (backend, version) for t in names}))


def slot_order(version: str) -> tuple[int, ...]:
    """Order of slots: major, minor, patch, final after candidate, candidate, last number after the patch."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if not match:
        return (0, 0, 0, 0, 0, 0)
    major, minor, patch = (int(part or 0) for part in match.groups())
    candidate = re.search(r"rc(\d*)", version.lower())
    number = int(candidate[1] or 0) if candidate else 0
    trailing = re.findall(r"\d+", version[match.end() :]) or ["0"]
    return (major, minor, patch, int(candidate is None), number, int(trailing[-1]))
