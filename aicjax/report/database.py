# SPDX-License-Identifier: Apache-2.0
"""What the database holds, as tables for a terminal or as JSON."""

import itertools
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_GROUP = ("family", "backend")


def print_contents(source: Mapping[str, str], tables: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Prints the tables of a database, one list per system.

    Args:
        source: `package`, `version` and `licence` of what was imported.
        tables: Dictionaries with `system`, `family`, `backend`, `version`, `table` and `rows`, in the order to show.
        as_json: Whether to print JSON instead, one record a table.
    """
    total = sum(table["rows"] for table in tables)
    if as_json:
        print(json.dumps({"source": dict(source), "rows": total, "tables": [dict(table) for table in tables]}))
        return
    console = Console()
    for system, members in itertools.groupby(tables, itemgetter("system")):
        console.print(_system_table(system, list(members)))
    console.print(
        f"{len(tables)} tables, {total:,} rows, from {source['package']} {source['version']}, {source['licence']}"
    )


def _system_table(system: str, tables: Sequence[Mapping[str, Any]]) -> Table:
    """Tables of one system; versions and names of one family and backend share a line."""
    shown = Table(title=system, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in (*_GROUP, "versions", "tables", "rows"):
        shown.add_column(header, justify="right" if header == "rows" else "left", overflow="fold")
    for group, grouped in itertools.groupby(tables, itemgetter(*_GROUP)):
        members = list(grouped)
        versions, names = (dict.fromkeys(member[part] for member in members) for part in ("version", "table"))
        rows = sum(member["rows"] for member in members)
        shown.add_row(*group, "\n".join(versions), "\n".join(names), f"{rows:,}")
    return shown
