# SPDX-License-Identifier: Apache-2.0
"""What was read from result files: one line for each run, failures named."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def lines(table: "pa.Table") -> list[str]:
    """One line for each measurement of an imported table."""
    return [_line(row) for row in table.to_pylist()]


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['file']} ({row['tool']}): {row['concurrency']} in flight, {row['isl']} + {row['osl']} tokens, "
        f"TTFT {row['ttft_ms']:.1f} ms, TPOT {row['tpot_ms']:.2f} ms, {row['requests_per_s']:.3g} requests/s; "
        f"{row['requests']} requests, {_failed(row['failed_requests'])}"
    )


def _failed(count: int | None) -> str:
    if count is None:
        return "failures not stated"
    return f"{count} more FAILED and are not in the means" if count else "none failed"
