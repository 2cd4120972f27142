# SPDX-License-Identifier: Apache-2.0
"""The database: which files make up a table, and in which order attention kernels are tried."""

import numpy as np

from aicjax import _paths
from aicjax._results import InputError
from aicjax.hardware import load_system
from aicjax.tables import Source, lane_order, sources
from benchmarks.parity_cases.comparison import NO_DATA, OK, REFUSED, Comparison
from benchmarks.parity_cases.stored import StoredRows

_STORED_ROOT = "data"  # where the reference keeps the tables


def source_resolution(rows: StoredRows) -> Comparison:
    """Ordered sources of tables: every row is one file of one table."""
    comparison = Comparison(np.full(len(rows), OK, object))
    for query, at in rows.groups("system", "backend", "version", "table", "shared_layer"):
        found = sources(*query)
        by_rank = at[np.argsort(rows["rank"][at])]
        listed, beyond = by_rank[: len(found)], by_rank[len(found) :]
        comparison.fail(beyond, NO_DATA)
        comparison.same(by_rank, "number of sources", np.full(len(at), len(at)), len(found))
        columns = [_columns(source) for source in found[: len(listed)]]
        for name in columns[0]:
            comparison.same(listed, name, rows[name][listed], np.array([column[name] for column in columns], object))
        comparison.error[listed] = 0.0
    return comparison


def _columns(source: Source) -> dict[str, object]:
    return {
        "donor_version": source.version,
        "path": f"{_STORED_ROOT}/{source.path.relative_to(_paths.perfdb_dir()).as_posix()}",
        "channel": source.channel,
        "exists": source.exists,
        "kernel_source_filter": "|".join(source.kernel_sources or ()),
    }


def lane_orders(rows: StoredRows) -> Comparison:
    """Order of the attention kernels; only the measured mode uses rows of other versions and backends."""
    comparison = Comparison(np.where(rows["error"] == "", OK, REFUSED))
    for at, row in enumerate(rows.records(np.arange(len(rows)))):
        here = np.array([at])
        try:
            order = lane_order(
                row["system"],
                row["backend"],
                row["version"],
                row["phase"],
                sm_version=load_system(row["system"]).sm_version,
                attention_backend=row["attention_backend"] or None,
                shared=row["mode"] == "SILICON",
            )
        except InputError:
            comparison.fail(here, REFUSED)
        else:
            comparison.same(here, "lane_order", [row["lane_order"]], "|".join(order))
            comparison.error[here] = 0.0
    return comparison
