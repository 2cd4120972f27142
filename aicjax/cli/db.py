# SPDX-License-Identifier: Apache-2.0
"""`aicjax db`: imports published measurements, says what is measured, checks the files."""

from pathlib import Path
from typing import Annotated

import typer

from aicjax.cli import options

app = typer.Typer(help="The database of measurements: import, contents, check.", no_args_is_help=True)

_DEFAULT = "the database in use"
Folder = Annotated[
    Path | None, typer.Option("--database", metavar="DIR", show_default=_DEFAULT, help="Folder of the database.")
]


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Wheel file, unpacked or installed wheel, or folder with data/.")
    ],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", show_default=_DEFAULT, help="Folder to write the database to.")
    ] = None,
) -> None:
    """Import the measurements of a published release: the same release gives the same files.

    A release that breaks the schema is refused, and the database stays as it was.
    """
    from aicjax._paths import perfdb_dir
    from aicjax._units import MIB
    from aicjax.report.progress import shown_when_slow
    from aicjax.tables.importer import import_database

    destination = to or perfdb_dir()
    with shown_when_slow(f"importing {source}"):
        report = import_database(source, destination)
    manifest = report.manifest
    typer.echo(
        f"{manifest.package} {manifest.version} ({manifest.licence}) -> {destination}: {len(manifest.tables)} tables,"
        f" {report.rows:,} of {report.source_rows:,} rows, {report.bytes / MIB:.1f} MiB"
    )
    for name in report.removed:
        typer.echo(f"removed: {name}")
    for name in manifest.skipped:
        typer.echo(f"left out, of an unknown kind, in an unknown place or marked incomplete: {name}")


@app.command("info")
def info(
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", show_default="all", help="GPU system to list.")
    ] = None,
    database: Folder = None,
    json: options.Json = False,
) -> None:
    """List what is measured: systems, families, backends, versions, tables and rows."""
    from aicjax._names import one_of
    from aicjax._paths import perfdb_dir
    from aicjax._results import InputError
    from aicjax.report.database import print_contents
    from aicjax.tables.manifest import contents, load_manifest

    manifest = load_manifest(database or perfdb_dir())
    tables = contents(manifest)
    systems = sorted({table["system"] for table in tables})
    if system is not None and system not in systems:
        raise InputError("system", system, one_of(system, systems))
    print_contents(
        {"package": manifest.package, "version": manifest.version, "licence": manifest.licence},
        [table for table in tables if system in (None, table["system"])],
        as_json=json,
    )


@app.command("verify")
def verify(
    database: Folder = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="Also list tables that timed the host of their benchmark.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check every file of the database: hash, rows, schema. Exit code 2 names the first that is off."""
    from aicjax._paths import perfdb_dir
    from aicjax._results import InputError
    from aicjax.report.progress import shown_when_slow
    from aicjax.tables.verify import verify_database

    if faults and database is not None:
        raise InputError("faults", database, "absent with --database: tables of the database in use are compared")
    if json and not faults:
        raise InputError("json", True, "absent without --faults")
    folder = database or perfdb_dir()
    with shown_when_slow(f"checking {folder}"):
        report = verify_database(folder)
    if not json:
        typer.echo(
            f"{folder}: {report.tables} tables with {report.rows:,} rows and {report.documents} documents are in order"
        )
    if faults:
        from aicjax.report.faults import print_faults
        from aicjax.tables.faults import find_faults
        from aicjax.tables.repair import REPAIRED

        print_faults(find_faults(), REPAIRED, as_json=json)
