# SPDX-License-Identifier: Apache-2.0
"""Runs a sweep: chunk by chunk, the next cases prepared while the devices scan."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from aicjax.sweep.agg import AggChunks
from aicjax.sweep.cases import Case, Cases, enumerate_cases, rules_key
from aicjax.sweep.groups import Groups
from aicjax.sweep.kept import Kept
from aicjax.sweep.prepare import Preparation
from aicjax.sweep.spec import SweepSpec

CHUNK_POINTS = 1 << 23


def chunks_of(cases: Cases) -> list[tuple[Case, ...]]:
    """Successive cases on one grid, at least `CHUNK_POINTS` points together where there are as many."""
    chunks: list[list[Case]] = []
    key = points = None
    for case in cases.cases:
        own = (case.workload, case.batches, rules_key(cases.engines[case.engine]))
        if own != key or points >= CHUNK_POINTS:
            chunks.append([])
            key, points = own, 0
        chunks[-1].append(case)
        points += case.points
    return [tuple(chunk) for chunk in chunks]


def run(spec: SweepSpec, devices: Sequence[jax.Device]) -> Kept:
    cases = enumerate_cases(spec)
    groups = Groups(spec, cases)
    prep = Preparation(spec, cases)
    todo = AggChunks(spec, cases, groups, devices)
    known = Kept(spec.top_k)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        chunks = chunks_of(cases)
        ahead = []
        it = iter(chunks)
        def submit():
            c = next(it, None)
            if c is not None:
                ahead.append((c, [pool.submit(prep.rows, case) for case in c]))
        submit(); submit()
        while ahead:
            c, futures = ahead.pop(0)
            submit()
            kept = todo.keep(c, prep.grid(c[0]), [f.result() for f in futures], known)
            known.merge(kept)
    return known
