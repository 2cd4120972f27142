# SPDX-License-Identifier: Apache-2.0
"""What `make bench` runs: throughput, written to `benchmarks/results`, and agreement on the sample of the tests."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import parity, throughput

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
REFERENCES = ROOT / "tests" / "references"


def main() -> int:
    """Runs and prints both; returns the exit code of the agreement."""
    command = [sys.executable, "-m", "benchmarks.throughput", "--json"]  # a process of its own, for its peak memory
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "throughput.json").write_text(printed)
    print(throughput.report(json.loads(printed)), end="\n\n", flush=True)
    known = sorted(
        stem for stem in parity.CASES if stem.startswith("ops_") and (REFERENCES / f"{stem}.parquet").exists()
    )
    return parity.main(["--from", str(REFERENCES), *known])


if __name__ == "__main__":
    sys.exit(main())
