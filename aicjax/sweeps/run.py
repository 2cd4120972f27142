# SPDX-License-Identifier: Apache-2.0
"""A sweep from its spec to its result, on one host or several."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from aicjax._results import InputError
from aicjax._types import Device
from aicjax.sweeps import hosts as all_hosts
from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.cases import enumerate_cases
from aicjax.sweeps.disagg import DisaggWork
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.interrupt import wishes_to_stop
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.result import SweepResult
from aicjax.sweeps.share import Progress, Share, Work
from aicjax.sweeps.spec import SweepSpec

_WORK = {"agg": AggWork, "disagg": DisaggWork}


def sweep(
    spec: SweepSpec | None = None,
    *,
    out: str | Path | None = None,
    rows: bool = False,
    devices: int | Sequence[Device] | None = None,
    coordinator: str | None = None,
    num_hosts: int = 1,
    host_id: int = 0,
    progress: Callable[[Progress], None] | None = None,
    notify: Callable[[str], None] | None = None,
    **fields: Any,
) -> SweepResult:
    """Every point of a sweep evaluated; the best of them, fronts and counts kept.

    Ctrl-C and SIGTERM end it after the chunk in work with what is done so far; a second one ends it at once.

    Args:
        spec: What to sweep.
        out: Directory with the log of finished chunks. The same sweep with the same directory goes on where an earlier
            one ended, however that was, with the same answer as if it had not ended.
        rows: Whether every point is written, too, to parquet files in the directory `rows` of `out` (agg).
        devices: Local devices to use, or their number; all by default. The answer does not depend on it.
        coordinator: Address and port of host 0, where several hosts share the sweep.
        num_hosts, host_id: Number of hosts, and of this one; each does its share and gets the whole answer.
        progress: Called after each chunk.
        notify: Called with a line that one should know before a long run.
        fields: Fields of a `SweepSpec` instead of `spec`.

    Raises:
        InputError: A bad input, or `out` has another sweep.
        AicjaxError: No combination of the axes can run, or another host failed.

    Examples:
        >>> import aicjax
        >>> found = aicjax.sweep(models="Qwen/Qwen3-8B", systems="h200_sxm", backends="vllm", batch=[1, 2])
        >>> found.complete
        True
    """
    started = time.perf_counter()
    hosts = all_hosts.join(coordinator, num_hosts, host_id)

    def begin() -> tuple[Work, Share]:
        chosen = SweepSpec(**fields) if spec is None else spec
        cases = enumerate_cases(chosen)
        work = _WORK[chosen.serving_mode](chosen, cases, Groups(chosen, cases), _chosen_devices(devices))
        return work, Share(work, hosts, None if out is None else Path(out), rows=rows)

    work, share = hosts.together(begin)
    with contextlib.closing(share), wishes_to_stop() as wished:
        share.settle()
        hosts.together(lambda: share.run(wished, progress, notify))
    kept = Kept(work.spec.top_k)
    for part in hosts.gather(share.kept.pack()):
        kept.merge(Kept.unpack(part))
    done = sum(int(counts[0]) for (_, limits), counts in kept.counts.items() if limits == 0)
    return SweepResult(
        spec=work.spec,
        cases=work.cases,
        groups=work.groups,
        kept=kept,
        describe=work.describe,
        done_points=done,
        complete=done == work.cases.points,
        seconds=time.perf_counter() - started,
    )


def _chosen_devices(devices: int | Sequence[Device] | None) -> Sequence[Device]:
    local = jax.local_devices()
    if devices is None:
        return local
    if isinstance(devices, int):
        if not 1 <= devices <= len(local):
            raise InputError("devices", devices, f"a number from 1 to {len(local)}, the devices of this host")
        return local[:devices]
    if not devices:
        raise InputError("devices", devices, "at least one device")
    return devices
