# SPDX-License-Identifier: Apache-2.0
"""A hash of everything that decides the answers of a sweep, so that a run is resumed by the same sweep alone."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import aicjax
from aicjax import _paths
from aicjax.sweeps.cases import Case
from aicjax.sweeps.spec import SweepSpec
from aicjax.tables.manifest import MANIFEST

SWEEPS = "sweeps"  # the folder of sweeps: a spec is hashed by its content


def fingerprint(spec: SweepSpec, chunks: Sequence[Sequence[Case]]) -> bytes:
    """SHA-256 of the spec, how it is cut into chunks, the version of the package, and all data under it."""
    digest = hashlib.sha256(aicjax.__version__.encode())
    digest.update(spec.model_dump_json().encode())
    digest.update(repr([(chunk[0].first_point, len(chunk)) for chunk in chunks]).encode())
    for path in _data_files(spec):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.digest()


def _data_files(spec: SweepSpec) -> Iterator[Path]:
    """The manifest of the database, which hashes its tables, and all descriptions of systems, models and constants."""
    yield _paths.perfdb_dir() / MANIFEST
    for directory in (_paths.systems_dir(), _paths.configs_dir()):
        yield from sorted(path for path in directory.rglob("*") if path.is_file() and path.parent.name != SWEEPS)
    yield _paths.constants_file(spec.constants_name)
    for model in spec.models:  # that are no names
        if Path(model).is_file():
            yield Path(model)
        elif Path(model).is_dir():
            yield from sorted(Path(model).glob("*.json"))
