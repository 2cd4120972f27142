# SPDX-License-Identifier: Apache-2.0
"""Runs a sweep: chunk by chunk, the next cases prepared while the devices scan."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.cases import enumerate_cases
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.spec import SweepSpec


def run(spec: SweepSpec, devices: Sequence[jax.Device]) -> Kept:
    cases = enumerate_cases(spec)
    work = AggWork(spec, cases, Groups(spec, cases), devices)
    known = Kept(spec.top_k)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = iter(work.chunks())
        ahead = []

        def submit() -> None:
            chunk = next(waiting, None)
            if chunk is not None:
                ahead.append((chunk, [pool.submit(work.prepare, case) for case in chunk]))

        submit()
        submit()
        while ahead:
            chunk, futures = ahead.pop(0)
            submit()
            known.merge(work.keep(chunk, [future.result() for future in futures], known))
    return known
