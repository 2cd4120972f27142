# SPDX-License-Identifier: Apache-2.0
"""Which files make up one table, in the order in which their rows win.

1. `primary`: the file of the requested version, listed even when it is not there;
2. `declared_reuse`: versions a maintainer named as donors of the table for that version, older or newer;
3. `fallback`: earlier versions of the same backend, the nearest first;
4. `cross_backend`: other backends that run the same kernels, rows of those kernels only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from aicjax.tables.tree import BACKENDS, COMM, Tree, document, tree

LIBRARY_TABLES = ("nccl_perf", "oneccl_perf")  # one file for the whole system, no donors


@dataclass(frozen=True)
class Source:
    """One file of a table.

    Attributes:
        version: Version whose directory it is in.
        path: The file.
        channel: `primary`, `declared_reuse`, `fallback` or `cross_backend`.
        exists: Whether the file is there; only a primary may be missing.
        kernel_sources: Kernels whose rows count, sorted; None for all rows.
    """

    version: str
    path: Path
    channel: str
    exists: bool = True
    kernel_sources: tuple[str, ...] | None = None


def sources(system: str, backend: str, version: str, table: str, shared: bool = True) -> list[Source]:
    """Sources of a table in the order in which they win.

    Args:
        system: Name of the system.
        backend: Serving framework, or `nccl` or `oneccl` for the tables of these libraries.
        version: Version of the backend.
        table: Name of the table, e.g. `gemm_perf`.
        shared: Whether anything beyond the version's own file counts.

    Raises:
        DataError: A file of the database that declares donors breaks its schema.
    """
    files = tree(system)
    family, path = files.find(backend, version, table)
    found = [Source(version, path, "primary", exists=family is not None)]
    families = {family} if family else files.families(table)
    comm = COMM in families
    if not shared or table in LIBRARY_TABLES or (comm and (len(families) > 1 or backend not in BACKENDS)):
        return found
    if comm:  # the measurements belong to one framework: no reuse across frameworks, no declared donors
        return [*found, *_earlier(files, backend, version, table, set(), COMM)]
    found += _declared(files, system, backend, version, table)
    donors = {source.version for source in found[1:]}
    found += _earlier(files, backend, version, table, donors, None)
    found += _other_backends(files, backend, table)
    return found


def _declared(files: Tree, system: str, backend: str, version: str, table: str) -> Iterator[Source]:
    entries = document("declared_reuse").get(system, {}).get(backend, {}).get(version, [])
    seen = set()
    for entry in entries:
        donor = entry["from_version"]
        if entry["table"] == table and donor not in seen:
            seen.add(donor)
            family, path = files.find(backend, donor, table)
            if family:
                yield Source(donor, path, "declared_reuse")


def _earlier(
    files: Tree, backend: str, version: str, table: str, donors: set[str], family: str | None
) -> Iterator[Source]:
    requested = parse(version)
    if requested is None:
        return
    known = ((parse(name), name) for name in files.versions(backend, family) - donors - {version})
    earlier = sorted(((order, name) for order, name in known if order is not None and order < requested), reverse=True)
    for _, name in earlier:
        home, path = files.find(backend, name, table)
        if home and family in (None, home):
            yield Source(name, path, "fallback")


def _other_backends(files: Tree, backend: str, table: str) -> Iterator[Source]:
    kernels: dict[str, set[str]] = {}
    for kernel, frameworks in document("reuse_groups").get(table, {}).items():
        if backend in frameworks:
            for framework in frameworks:
                kernels.setdefault(framework, set()).add(kernel)
    for framework in sorted(kernels.keys() - {backend}):
        for name in newest_first(files.versions(framework)):
            home, path = files.find(framework, name, table)
            if home:
                yield Source(name, path, "cross_backend", kernel_sources=tuple(sorted(kernels[framework])))


def parse(version: str) -> Version | None:
    """The version in PEP 440 order, None for a name that is not one."""
    try:
        return Version(version)
    except InvalidVersion:
        return None


def newest_first(versions: set[str]) -> list[str]:
    """Versions in descending PEP 440 order, then names that are no version, descending."""
    parsed = [(parse(name), name) for name in versions]
    ordered = sorted(((order, name) for order, name in parsed if order is not None), reverse=True)
    return [name for _, name in ordered] + sorted((name for order, name in parsed if order is None), reverse=True)
