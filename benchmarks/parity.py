# SPDX-License-Identifier: Apache-2.0
"""How closely the engine agrees with stored answers of AIConfigurator 0.12.0.

One line for each file: rows compared, rows answered, wrong verdicts (an answer against a miss or an error, or another
flag or name), rows of searches replaced by another that ranks the same, rows left out because the engine does not model
them, and the largest, 99th-percentile and median relative error. Exit code 1 when an error is beyond the tolerance or a
verdict is wrong, 2 for a bad command line.

    python -m benchmarks.parity --from DIRECTORY forward memory --where family=LLAMA --show 5
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aicjax.cli.device import prepare

prepare()  # before jax is imported

from benchmarks.parity_cases import CASES, Case  # noqa: E402
from benchmarks.parity_cases.comparison import Comparison  # noqa: E402
from benchmarks.parity_cases.stored import StoredRows, read_conditions  # noqa: E402

_LAYOUT = "{:<26} {:>6} {:>8} {:>5} {:>5} {:>8} {:>9} {:>9} {:>9} {:>8}  {}"
_HEADER = ("file", "rows", "answered", "wrong", "tied", "left out", "max", "p99", "median", "seconds", "")
_NOT_SHOWN = ("source", "per_op_json", "per_op_source_json")


@dataclass(frozen=True)
class FileReport:
    """Agreement on one file.

    Attributes:
        name: The file's name.
        rows: Compared rows.
        comparison: Our answers beside the stored ones.
        left_out: Rows that the engine does not model.
        rtol: Largest relative error allowed.
        seconds: Wall time of our answers.
    """

    name: str
    rows: StoredRows
    comparison: Comparison
    left_out: int
    rtol: float
    seconds: float

    @property
    def passes(self) -> bool:
        """Whether every verdict is right and every error within the tolerance."""
        return not (self.comparison.wrong | (self.comparison.relative_error > self.rtol)).any()

    def line(self) -> str:
        """The report on one line."""
        comparison, error = self.comparison, self.comparison.relative_error
        error = error[~np.isnan(error)]
        numbers = [error.max(), np.quantile(error, 0.99, method="higher"), np.median(error)] if len(error) else []
        shown = [f"{number:.1e}" for number in numbers] or ["-"] * 3
        counts = len(self.rows), comparison.answered.sum(), comparison.wrong.sum(), comparison.tied.sum(), self.left_out
        verdict = "ok" if self.passes else f"FAIL (rtol {self.rtol:g})"
        return _LAYOUT.format(self.name, *counts, *shown, f"{self.seconds:.1f}", verdict)

    def worst(self, count: int) -> list[str]:
        """The worst rows in words: kinds of wrong verdicts with a row of each, then the largest errors."""
        comparison, error = self.comparison, np.nan_to_num(self.comparison.relative_error, nan=0.0, posinf=np.inf)
        wrong: dict[str, list[int]] = {}
        for at in np.flatnonzero(comparison.wrong).tolist():
            pair = comparison.mismatch[at] or f"{comparison.wanted[at]} / {comparison.found[at]}"
            wrong.setdefault(f"stored / ours: {pair}", []).append(at)
        told = [f"    {len(rows)} rows, {what}{self._facts(rows[0])}" for what, rows in wrong.items()]
        for at in np.argsort(-error, kind="stable")[:count].tolist():
            if error[at] > 0:
                pair = f"{comparison.wanted_value[at]:.8g} / {comparison.found_value[at]:.8g}"
                told.append(f"    {error[at]:.1e} in {comparison.column[at]}, stored / ours: {pair}{self._facts(at)}")
        return told[:count]

    def _facts(self, at: int) -> str:
        """What tells which row it is, on a line of its own."""
        facts = next(self.rows.records(np.array([at])))
        told = (f"{name}={value}" for name, value in facts.items() if name not in _NOT_SHOWN and _tells(value))
        return "\n        " + " ".join(told)


def compare_file(path: Path, conditions: dict[str, set[str]], rtol: float | None = None) -> FileReport | None:
    """Agreement on one file; None when no row meets the conditions.

    Args:
        path: The file; its name says what it holds.
        conditions: Which rows count.
        rtol: Largest relative error allowed; by default that of the file.
    """
    case: Case = CASES[path.stem]
    selected = StoredRows.read(path)
    selected = selected.take(selected.meets(conditions))
    modelled = selected.meets({name: values for name, values in case.scope.items() if name not in conditions})
    rows = selected.take(modelled)
    if not len(rows):
        return None
    start = time.perf_counter()
    comparison = case.compare(rows)
    seconds = time.perf_counter() - start
    return FileReport(path.stem, rows, comparison, int((~modelled).sum()), case.rtol if rtol is None else rtol, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares files and prints the reports; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        conditions = read_conditions(options.where)
    except ValueError as error:
        parser.error(f"argument --where: {error}")
    paths = [_locate(parser, name, options.directory) for name in options.files or sorted(CASES)]
    print(_LAYOUT.format(*_HEADER).rstrip())
    reports = []
    failed = False
    for path in paths:
        try:
            report = compare_file(path, conditions, options.rtol)
        except Exception:  # a defect in what one file asks for does not hide the state of the others
            traceback.print_exc()
            print(f"{path.stem:<26} FAIL ({traceback.format_exc().splitlines()[-1]})", flush=True)
            failed = True
            continue
        if report is None:
            print(f"{path.stem:<26} no rows")
            continue
        reports.append(report)
        print(report.line(), *report.worst(options.show), sep="\n", flush=True)
    if not reports and not failed:
        parser.error("no row to compare")
    return 1 if failed or not all(report.passes for report in reports) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help=f"paths, or names in --from, by default all: {' '.join(sorted(CASES))}"
    )
    parser.add_argument("--from", dest="directory", type=Path, default=Path(), help="directory of the files")
    parser.add_argument("--rtol", type=float, help="largest relative error (default: 1e-4, searches 1e-3)")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE[|VALUE][,...]",
        help="rows to compare; all conditions must hold; a file without the column is not filtered by it",
    )
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the N worst rows of each file")
    return parser


def _locate(parser: argparse.ArgumentParser, name: str, directory: Path) -> Path:
    path = Path(name)
    if path.suffix != ".parquet":
        path = directory / f"{name}.parquet"
    if path.stem not in CASES:
        parser.error(f"argument FILE: must be one of {', '.join(sorted(CASES))}, but got {path.stem!r}")
    if not path.is_file():
        parser.error(f"argument FILE: {path} does not exist")
    return path


def _tells(value: object) -> bool:
    """Whether a value helps to tell which row it is: names and counts do, results and what is off do not."""
    return bool(value) and (not isinstance(value, float) or value.is_integer())


if __name__ == "__main__":
    sys.exit(main())
