# SPDX-License-Identifier: Apache-2.0
"""How closely the fleets agree with stored answers of the fleet reference (vllm-sr-sim).

One line for each file: rows and numbers compared, rows beyond their tolerance, the largest error as a share of its
tolerance, seconds. Exit code 1 when a row is beyond its tolerance, 2 for a bad command line.

    python -m benchmarks.fleet_parity DIRECTORY/fleet_*.json --show 5
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aicjax.cli.device import prepare

prepare()  # before jax is imported

import jax  # noqa: E402

from benchmarks.fleet_cases import SCHEMAS, Row, checker, read_answers, schema_of  # noqa: E402

FLOAT32 = 1e-5  # least tolerance of numbers in float32
_LAYOUT = "{:<24} {:>6} {:>8} {:>6} {:>9} {:>8}  {}"
_HEADER = ("file", "rows", "numbers", "wrong", "error/tol", "seconds", "")


class FileReport(NamedTuple):
    """Agreement on one file.

    Attributes:
        name: The file's name.
        rows: Both answers to each question.
        floor: Least tolerance of numbers.
        seconds: Wall time of our answers.
    """

    name: str
    rows: list[Row]
    floor: float
    seconds: float

    def shares(self) -> list[float]:
        """Error of each row as a share of its tolerance."""
        return [row.error() / max(row.tolerance, self.floor) for row in self.rows]

    def wrong(self) -> int:
        """Rows beyond their tolerance."""
        return sum(share > 1.0 for share in self.shares())

    def line(self) -> str:
        """The report on one line."""
        shares, numbers = self.shares(), sum(row.numbers() for row in self.rows)
        worst = f"{max(shares, default=0.0):.1e}"
        verdict = "FAIL" if self.wrong() or not shares else "ok"
        return _LAYOUT.format(
            self.name, len(shares), numbers, self.wrong(), worst, f"{self.seconds:.1f}", verdict
        ).rstrip()

    def worst(self, count: int) -> list[str]:
        """The rows with the largest errors in words."""
        order = sorted(zip(self.shares(), self.rows, strict=True), key=lambda pair: -pair[0])
        return [
            f"    {row.label}: {row.error():.1e} {row.kind}, stored / ours: {_short(row.theirs)} / {_short(row.ours)}"
            for share, row in order[:count]
            if share > 0
        ]


def compare_file(path: Path, *, float32: bool = False) -> FileReport | None:
    """Agreement on one file; None for a file of another kind."""
    answers = read_answers(path)
    schema = schema_of(path, answers)
    if schema is None:
        return None
    start = time.perf_counter()
    with jax.enable_x64(not float32):
        rows = list(checker(schema)(answers, path))
    return FileReport(path.name, rows, FLOAT32 if float32 else 0.0, time.perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares files and prints the reports; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fleet_parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=f"JSON of a schema: {', '.join(SCHEMAS)}")
    parser.add_argument("--float32", action="store_true", help=f"in float32, at {FLOAT32:g} or the file's tolerance")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the N worst rows of each file")
    options = parser.parse_args(arguments)
    if missing := [path for path in options.files if not path.is_file()]:
        parser.error(f"argument FILE: {missing[0]} does not exist")
    print(_LAYOUT.format(*_HEADER).rstrip())
    failed = False
    for path in options.files:
        try:
            report = compare_file(path, float32=options.float32)
        except json.JSONDecodeError as error:
            parser.error(f"argument FILE: {path} is not JSON ({error})")
        except Exception as error:  # a defect in what one file asks for does not hide the state of the others
            traceback.print_exc()
            print(f"{path.name:<24} FAIL ({type(error).__name__}: {error})", flush=True)
            failed = True
            continue
        if report is None:
            parser.error(f"argument FILE: {path} must be of a schema {', '.join(SCHEMAS)}")
        print(report.line(), *report.worst(options.show), sep="\n", flush=True)
        failed = failed or report.wrong() > 0 or not report.rows
    return 1 if failed else 0


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


if __name__ == "__main__":
    sys.exit(main())
