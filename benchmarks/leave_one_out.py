# SPDX-License-Identifier: Apache-2.0
"""Interpolation rules against measured points that they do not see, for all shipped tables.

    python -m benchmarks.leave_one_out [--system NAME ...] [--family NAME ...] [--rules] [--transfers] [--json]
    python -m benchmarks.leave_one_out --write

- A line is a kind of operator, what was left out (`aicjax.calibrate.leave_one_out`), and the rule that predicts it:
  `own` is that of operators, `reference` that of AIConfigurator 0.12.0 where it differs.
- median, p90: of |predicted / measured - 1| in %; bias: median of ln(predicted / measured).
- --rules: other interpolants between two neighbours beside the own one.
- --transfers: what stands in for a missing table, and repeated measurements.
- --write: renews configs/uncertainty/operators.yaml, with all systems, families and transfers.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import AicjaxError, InputError
from aicjax.calibrate.held_out import RULES
from aicjax.calibrate.leave_one_out import FAMILIES, KINDS, OWN_RULE, Errors, held_out_errors
from aicjax.calibrate.operator_spread import FILE, PROVENANCE_OF, as_yaml, summarise
from aicjax.calibrate.repeats import repeat_errors
from aicjax.calibrate.transfers import transfer_errors
from aicjax.hardware import load_system
from aicjax.tables.tree import measured_systems

Scores = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Scores and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        "benchmarks.leave_one_out", description="Scores interpolation rules on the tables."
    )
    parser.add_argument("--system", nargs="+", metavar="NAME", help="all that were measured by default")
    parser.add_argument("--family", nargs="+", metavar="NAME", help="kinds of operators; all by default")
    parser.add_argument("--rules", action="store_true", help="other interpolants beside the own one")
    parser.add_argument("--transfers", action="store_true", help="what stands in for a missing table")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"renew configs/uncertainty/{FILE}")
    options = parser.parse_args(arguments)
    try:
        systems = _known("system", options.system, measured_systems())
        families = _known("family", options.family, FAMILIES)
        if options.write:
            path = _paths.configs_dir() / "uncertainty" / FILE
            path.write_text(as_yaml(summarise(used(all_errors(measured_systems(), FAMILIES, {}, True)))))
            return 0
        found = scores(all_errors(systems, families, RULES if options.rules else {}, options.transfers))
    except AicjaxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(found, indent=1) if options.json else report(found))
    return 0


def _known(argument: str, asked: Sequence[str] | None, names: Sequence[str]) -> Sequence[str]:
    for name in asked or ():
        if name not in names:
            raise InputError(argument, name, one_of(name, names))
    return asked or names


def all_errors(
    systems: Sequence[str], families: Sequence[str], rules: Mapping[str, Any], transfers: bool
) -> Iterator[Errors]:
    """Errors of the tables of the systems."""
    for name in systems:
        system = load_system(name)
        yield from held_out_errors(system, families, rules)
        if transfers:
            yield from transfer_errors(system, families)
            yield from repeat_errors(system, families)


def used(errors: Iterable[Errors]) -> Iterator[Errors]:
    """Those of the operators' own rules, of points that an answer can be like."""
    return (part for part in errors if part.rule == OWN_RULE and (part.kind in PROVENANCE_OF or part.kind not in KINDS))


def scores(errors: Iterable[Errors]) -> list[Scores]:
    """A line for each kind of operator, what was left out, and rule: over all points, and by system."""
    found: dict[tuple[str, str, str], dict[str, list[np.ndarray]]] = {}
    for part in errors:
        line = found.setdefault((part.family, part.kind, part.rule), {})
        line.setdefault(part.place.system.name, []).append(part.log_ratio)
    lines = []
    for (family, kind, rule), by_system in found.items():
        joined = {name: np.concatenate(parts) for name, parts in by_system.items()}
        whole = np.concatenate(list(joined.values()))
        by = {name: _score(values) for name, values in joined.items()}
        lines.append({"family": family, "kind": kind, "rule": rule, **_score(whole), "by_system": by})
    return lines


def _score(log_ratio: np.ndarray) -> Scores:
    error = 100 * np.abs(np.expm1(log_ratio.astype(np.float64)))
    return {
        "points": int(error.size),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
        "bias": float(np.median(log_ratio)),
    }


def report(lines: Sequence[Scores]) -> str:
    """The scores as text, the median of each system last."""
    systems = list(dict.fromkeys(name for line in lines for name in line["by_system"]))
    head = f"{'family':22}{'left out':15}{'rule':16}{'points':>9}{'median':>8}{'p90':>8}{'bias':>8}"
    text = [head + "".join(f"{name[:8]:>9}" for name in systems)]
    for line in lines:
        start = f"{line['family']:22}{line['kind']:15}{line['rule']:16}{line['points']:9d}"
        whole = f"{line['median']:8.2f}{line['p90']:8.1f}{line['bias']:+8.3f}"
        medians = (line["by_system"].get(name, {}).get("median") for name in systems)
        text.append(start + whole + "".join(f"{'-' if m is None else format(m, '.2f'):>9}" for m in medians))
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
