# SPDX-License-Identifier: Apache-2.0
"""Top lists as tables for a terminal."""

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from aicjax.report.rows import Row, Worker

_COMMON: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("#", lambda row: str(row.rank)),
    ("tok/s\n/gpu", lambda row: f"{row.tokens_per_s_per_gpu:.2f}"),
    ("tok/s\n/user", lambda row: f"{row.tokens_per_s_per_user:.2f}"),
    ("req/s", lambda row: f"{row.requests_per_s:.2f}"),
    ("TTFT\nms", lambda row: f"{row.ttft_ms:.1f}"),
    ("TPOT\nms", lambda row: "-" if row.tpot_ms is None else f"{row.tpot_ms:.2f}"),
    ("total\nms", lambda row: f"{row.request_latency_ms:.0f}"),
    ("in\nflight", lambda row: str(row.concurrency)),
    ("replica\nx GPUs", lambda row: f"{row.replicas} x {row.gpus // row.replicas if row.replicas else 0}"),
)


def top_table(title: str, rows: Sequence[Row], *, with_backend: bool = False) -> Table:
    """The table of one experiment's best configurations.

    Args:
        title: Line above the table.
        rows: In rank order; all of one serving mode.
        with_backend: Whether the engine has a column of its own.
    """
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for header, _ in _COMMON:
        table.add_column(header, justify="right", no_wrap=True)
    if with_backend:
        table.add_column("engine")
    for role in [worker.role for worker in rows[0].workers] if rows else []:
        table.add_column("worker\n(b: batch)" if role == "agg" else f"{role}\n(b: batch)", no_wrap=True)
    table.add_column("GiB\n/GPU", justify="right", no_wrap=True)
    for row in rows:
        cells = [text(row) for _, text in _COMMON]
        if with_backend:
            cells.append(row.backend)
        cells += [describe(worker) for worker in row.workers]
        cells.append(", ".join(f"{worker.memory_gib:.1f}" for worker in row.workers))
        table.add_row(*cells, style="bold" if row.rank == 1 else None)
    return table


def describe(worker: Worker) -> str:
    """A worker in a few characters: how many, layout, batch."""
    count = "" if worker.role == "agg" else f"{worker.count} x "
    return f"{count}{worker.layout} b{worker.batch}"
