# SPDX-License-Identifier: Apache-2.0
"""`manifest.json` of the database: where its numbers come from, and a hash of every file."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from aicjax._results import DataError
from aicjax.tables.schema import SCHEMA_VERSION, TABLES
from aicjax.tables.sources import newest_first

MANIFEST = "manifest.json"
_PARTS = ("system", "family", "backend", "version", "table")  # of the path of a table


@dataclass(frozen=True)
class TableEntry:
    """One table file.

    Attributes:
        rows: Rows stored.
        source_rows: Rows published; the others repeated one of these.
        order: How the rows are ordered, see `aicjax.tables.schema.Order`.
        sha256: Of the file.
        source_sha256: Of the published file.
        stated_versions: Versions the published rows give themselves, where that is not the version of their folder.
    """

    rows: int
    source_rows: int
    order: str
    sha256: str
    source_sha256: str
    stated_versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What the database holds.

    Attributes:
        package: Name of the package the measurements were published in.
        version: Its version.
        licence: Its licence, an SPDX expression.
        tables: Entry of each table by its path below the database, with forward slashes.
        documents: Hash of each YAML file by name.
        skipped: Published tables that were left out: of an unknown kind, in an unknown place or marked incomplete.
    """

    package: str
    version: str
    licence: str
    tables: dict[str, TableEntry]
    documents: dict[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Text of `manifest.json`, one line a table."""
        head = {
            "schema_version": SCHEMA_VERSION,
            "source": {"package": self.package, "version": self.version, "licence": self.licence},
            "units": {value.name: value.unit for schema in TABLES.values() for value in schema.values},
            "documents": self.documents,
            "skipped": list(self.skipped),
        }
        lines = [f" {json.dumps(name)}: {json.dumps(part)}" for name, part in head.items()]
        tables = ",\n".join(f"  {json.dumps(p)}: {json.dumps(_fields(e))}" for p, e in sorted(self.tables.items()))
        return "{\n" + ",\n".join([*lines, f' "tables": {{\n{tables}\n }}']) + "\n}\n"


def _fields(entry: TableEntry) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(entry).items() if name != "stated_versions" or value}


def load_manifest(database: Path) -> Manifest:
    """The manifest of a database.

    Raises:
        DataError: It is missing or breaks its schema.
    """
    path = database / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise DataError(f"{path}: schema_version must be {SCHEMA_VERSION}, but is {content['schema_version']}")
        for name in (*content["tables"], *content["documents"]):
            if ".." in PurePosixPath(name).parts or len(PurePosixPath(name).parts) not in (1, len(_PARTS)):
                raise DataError(f"{path}: {name!r} is no path of the database")
        tables = {
            name: TableEntry(**{**entry, "stated_versions": tuple(entry.get("stated_versions", ()))})
            for name, entry in content["tables"].items()
        }
        return Manifest(
            **content["source"], tables=tables, documents=content["documents"], skipped=tuple(content["skipped"])
        )
    except FileNotFoundError:
        raise DataError(f"{path}: is missing: `aicjax db import` writes it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is no manifest: {type(error).__name__}: {error}") from None


def sha256(content: bytes) -> str:
    """Hash of a file's bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def contents(manifest: Manifest) -> list[dict[str, Any]]:
    """A record of each table, `system`, `family`, `backend`, `version`, `table` and `rows`, newest version first."""
    records = [
        {**dict(zip(_PARTS, PurePosixPath(path).with_suffix("").parts, strict=True)), "rows": entry.rows}
        for path, entry in manifest.tables.items()
    ]
    rank = {version: place for place, version in enumerate(newest_first({r["version"] for r in records}))}
    return sorted(records, key=lambda r: (r["system"], r["family"], r["backend"], rank[r["version"]], r["table"]))
