# SPDX-License-Identifier: Apache-2.0
"""What the database holds, as a table for a terminal or as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_GROUP = ("system", "family", "backend")


def print_contents(source: Mapping[str, str], tables: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Prints the tables of a database, those of one system, family and backend together.

    Args:
        source: `package`, `version` and `licence` of what was imported.
        tables: Dictionaries with `system`, `family`, `backend`, `version`, `table` and `rows`, in the order to show.
        as_json: Whether to print JSON instead, one record a table.
    """
    total = sum(table["rows"] for table in tables)
    if as_json:
        print(json.dumps({"source": dict(source), "rows": total, "tables": [dict(table) for table in tables]}))
        return
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in (*_GROUP, "versions", "tables", "rows"):
        shown.add_column(header, justify="right" if header == "rows" else "left", no_wrap=header != "tables")
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for table in tables:
        groups.setdefault(tuple(table[name] for name in _GROUP), []).append(table)
    for group, members in groups.items():
        versions, names = (list(dict.fromkeys(member[part] for member in members)) for part in ("version", "table"))
        rows = sum(member["rows"] for member in members)
        shown.add_row(*group, "\n".join(versions), ", ".join(names), f"{rows:,}")
    console = Console()
    console.print(shown)
    console.print(
        f"{len(tables)} tables, {total:,} rows, from {source['package']} {source['version']}, {source['licence']}"
    )
