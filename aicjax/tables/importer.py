# SPDX-License-Identifier: Apache-2.0
"""Imports published measurements into the database: the same input gives the same bytes."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aicjax._results import DataError, InputError
from aicjax.tables.canonical import canonical_table
from aicjax.tables.documents import documents, is_vetoed, version_directories
from aicjax.tables.encoding import decode, encode
from aicjax.tables.manifest import MANIFEST, Manifest, TableEntry, load_manifest, sha256
from aicjax.tables.schema import TABLES
from aicjax.tables.upstream import DATA, Upstream, open_upstream

SUFFIX = ".parquet"


@dataclass(frozen=True)
class ImportReport:
    """What an import wrote.

    Attributes:
        manifest: Its manifest.
        bytes: Size of all files.
        largest_bytes: Size of the largest file.
        removed: Tables of the import before that the new one has not, now deleted.
    """

    manifest: Manifest
    bytes: int
    largest_bytes: int
    removed: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows stored."""
        return sum(entry.rows for entry in self.manifest.tables.values())

    @property
    def source_rows(self) -> int:
        """Rows published, those that repeat another included."""
        return sum(entry.source_rows for entry in self.manifest.tables.values())


def import_database(source: Path, destination: Path) -> ImportReport:
    """Writes the database from published measurements.

    Everything is checked and written beside the destination first: a refused import leaves it as it was. Tables of
    an import before are deleted when the new one has not got them; other files are left alone.

    Args:
        source: A folder in the published layout, an unpacked or installed wheel, or a wheel file.
        destination: The database's folder, made when it is not there.

    Raises:
        InputError: The source has no measured tables.
        DataError: A published file breaks its schema; the message gives file, row and column.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    with (
        open_upstream(source) as upstream,
        tempfile.TemporaryDirectory(dir=destination.parent, prefix=".import-") as staged,
    ):
        root = Path(staged)
        manifest = _stage(upstream, root)
        if not manifest.tables:
            raise InputError("source", str(source), f"a package with measured tables below {DATA}/")
        sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
        removed = _replace(destination, root, manifest)
    return ImportReport(manifest, sum(sizes), max(sizes), removed)


def _stage(upstream: Upstream, root: Path) -> Manifest:
    """Writes the database below `root`."""
    contents = documents(upstream)
    for name, content in contents.items():
        (root / name).write_bytes(content)
    tables, skipped = _tables(upstream)
    manifest = Manifest(
        package=upstream.package,
        version=upstream.version,
        licence=upstream.licence,
        tables={name: _import_table(upstream, name, root) for name in tables},
        documents={name: sha256(content) for name, content in contents.items()},
        skipped=tuple(skipped),
    )
    (root / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _tables(upstream: Upstream) -> tuple[list[str], list[str]]:
    """Published tables to import and those to leave out, as paths below the folder of tables."""
    folders = version_directories(upstream)
    published = [name.removeprefix(f"{DATA}/") for name in upstream.names if _is_table(name)]
    admitted = {folder for folder, files in folders.items() if not is_vetoed(files)}
    taken = [p for p in published if str(PurePosixPath(p).parent) in admitted and PurePosixPath(p).stem in TABLES]
    return taken, sorted(set(published) - set(taken))


def _is_table(name: str) -> bool:
    return name.startswith(f"{DATA}/") and name.endswith(SUFFIX)


def _import_table(upstream: Upstream, name: str, root: Path) -> TableEntry:
    path = PurePosixPath(name)
    content = upstream.read(f"{DATA}/{name}")
    table = canonical_table(decode(content, name), TABLES[path.stem], path.parent.name, name)
    encoded = encode(table.rows)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(encoded)
    return TableEntry(
        rows=table.rows.num_rows,
        source_rows=table.source_rows,
        order=table.order.value,
        sha256=sha256(encoded),
        source_sha256=sha256(content),
        stated_versions=table.stated_versions,
    )


def _replace(destination: Path, staged: Path, manifest: Manifest) -> tuple[str, ...]:
    """Moves the staged files into place and deletes tables of the import before that are gone."""
    try:
        before = load_manifest(destination).tables
    except DataError:
        before = {}
    gone = tuple(sorted(before.keys() - manifest.tables.keys()))
    for name in gone:
        (destination / name).unlink(missing_ok=True)
        for folder in (destination / name).parents:
            if folder == destination or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()
    for path in (path for path in staged.rglob("*") if path.is_file()):
        target = destination / path.relative_to(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    return gone
