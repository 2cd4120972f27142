# SPDX-License-Identifier: Apache-2.0
"""How far latencies of operators are from measurements, by kind of operator and provenance: the data and their making.

The data are errors of measured points that a rule did not see, of all tables. An answer between two points and one that
another format lends are wrong by different amounts; an interval on a sum needs each.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from aicjax import _paths
from aicjax._results import DataError, Provenance
from aicjax.calibrate.leave_one_out import Errors

FILE = "operators.yaml"
ALL = "all"  # all kinds of operators together, for those that have no errors of their own
PROVENANCE_OF = {
    "exact": Provenance.EXACT,
    "interior": Provenance.INTERPOLATED,
    "row": Provenance.INTERPOLATED,
    "plane": Provenance.INTERPOLATED,
    "one_sided": Provenance.ONE_SIDED,
    "last": Provenance.HELD,
    "repaired": Provenance.REPAIRED,
    "site": Provenance.TRANSFERRED,
    "empirical": Provenance.EMPIRICAL,
    "xshape": Provenance.XSHAPE,
    "xbackend": Provenance.XBACKEND,
    "xquant": Provenance.XQUANT,
    "xprofile": Provenance.XPROFILE,
    "sol": Provenance.SOL,
}  # what an answer is called that is wrong as points left out in this way are
DONORS = ("other_version", "other_backend")  # tables that fill gaps: their answers keep the provenance of the table
ROBUST_DEVIATION = 1.4826  # standard deviation of a normal variable, by its median absolute deviation


class Spread(NamedTuple):
    """Distribution of ln(predicted / measured).

    Attributes:
        points: Points that were predicted.
        tables: Tables they are of.
        bias: Median.
        sd: Standard deviation.
        robust_sd: Standard deviation of a normal variable with the same median absolute deviation from the median.
        table_sd: Standard deviation, over tables, of the median of each: what the errors of one table share.
    """

    points: int
    tables: int
    bias: float
    sd: float
    robust_sd: float
    table_sd: float


@functools.cache
def operator_spread() -> Mapping[str, Mapping[str, Spread]]:
    """Errors by kind of operator (the stems of `ops.kinds`, and `ALL`) and by how a latency was obtained.

    The inner keys are names of `Provenance` in lower case, and `DONORS`. A kind lacks what it has no measurements
    of; `spread_of` then takes that of all kinds.

    Raises:
        DataError: The file breaks its schema.
    """
    path = _paths.configs_dir() / "uncertainty" / FILE
    content = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    known = {*(p.name.lower() for p in Provenance), *DONORS}
    found: dict[str, dict[str, Spread]] = {}
    for family, by_name in content["families"].items():
        for name, values in by_name.items():
            if name not in known or set(values) != set(Spread._fields):
                raise DataError(f"{path}: {family}.{name} must be a provenance with {', '.join(Spread._fields)}")
            found.setdefault(family, {})[name] = Spread(**values)
    return found


def spread_of(family: str, provenance: int) -> Spread | None:
    """Errors of answers of one kind of operator and provenance; of all kinds where there are none; None for neither."""
    name, known = Provenance(provenance).name.lower(), operator_spread()
    return known.get(family, {}).get(name) or known[ALL].get(name)


def summarise(errors: Iterable[Errors]) -> dict[str, dict[str, Spread]]:
    """Spread by kind of operator and provenance, best provenance first, from errors of all tables."""
    found: dict[tuple[str, str], dict[Any, list[np.ndarray]]] = {}
    for part in errors:
        name = part.kind if part.kind in DONORS else PROVENANCE_OF[part.kind].name.lower()
        table = (part.family, part.place.system.name, part.place.backend, part.place.version, part.form)
        for family in (part.family, ALL):
            found.setdefault((family, name), {}).setdefault(table, []).append(part.log_ratio)
    order = [*(p.name.lower() for p in Provenance), *DONORS]
    families = sorted({family for family, _ in found}, key=lambda family: (family == ALL, family))
    return {
        family: {name: _spread(found[family, name]) for name in order if (family, name) in found} for family in families
    }


def _spread(tables: Mapping[Any, Sequence[np.ndarray]]) -> Spread:
    parts = [np.concatenate(table) for table in tables.values()]
    values = np.concatenate(parts).astype(np.float64)
    bias = np.median(values)
    return Spread(
        points=int(values.size),
        tables=len(parts),
        bias=_rounded(bias),
        sd=_rounded(values.std()),
        robust_sd=_rounded(ROBUST_DEVIATION * np.median(np.abs(values - bias))),
        table_sd=_rounded(np.std([np.median(part) for part in parts])),
    )


def _rounded(value: Any) -> float:
    return round(float(value), 4) + 0.0  # no negative zero


def as_yaml(spreads: Mapping[str, Mapping[str, Spread]]) -> str:
    """The data file of `operator_spread`."""
    lines = [
        "# How far latencies of operators are from measured points that their rule did not see, over all tables.",
        "# Written by `python -m benchmarks.leave_one_out --write`.",
        'unit: "1"',
        "meaning: >-",
        "  ln(predicted / measured) by kind of operator and provenance of the prediction: number of points and tables,",
        "  bias (median), sd (standard deviation), robust_sd (from the median absolute deviation), table_sd (standard",
        "  deviation of the medians of tables: what the errors of one table share). interpolated: points, rows, head",
        "  counts left out, so that neighbours are twice as far apart as in use; held: last points left out;",
        "  transferred: whole matrix shapes left out; exact: measurements of the same work; repaired: tables without",
        "  the time of their host, against another backend, which took part in that; other_version, other_backend:",
        "  tables that fill gaps, whose answers keep the provenance of the table.",
        'source: "perfdb/, tables of AIConfigurator 0.12.0 predicted from one another; aicjax.calibrate.leave_one_out"',
        "families:",
    ]
    for family, by_name in spreads.items():
        lines.append(f"  {family}:")
        for name, spread in by_name.items():
            values = ", ".join(f"{field}: {value}" for field, value in spread._asdict().items())
            lines.append(f"    {name}: {{{values}}}")
    return "\n".join(lines) + "\n"
