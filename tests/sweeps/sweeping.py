# SPDX-License-Identifier: Apache-2.0
"""A sweep chunk by chunk, and the same points by brute force."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax

from aicjax.sweeps.agg import AggWork
from aicjax.sweeps.cases import Case, enumerate_cases
from aicjax.sweeps.groups import Groups
from aicjax.sweeps.kept import Kept
from aicjax.sweeps.spec import SweepSpec
from benchmarks import brute_force
from benchmarks.brute_force import ROUNDING as ROUNDING
from benchmarks.brute_force import Brute as Brute
from benchmarks.brute_force import search_points as search_points


def spec_of(**axes: Any) -> SweepSpec:
    """The sweep over some axes, whose short forms pydantic takes."""
    return SweepSpec(**axes)


def work_of(spec: SweepSpec) -> AggWork:
    """The sweep on one device."""
    cases = enumerate_cases(spec)
    return AggWork(spec, cases, Groups(spec, cases), jax.devices()[:1])


def swept(work: AggWork, chunks: Iterable[tuple[Case, ...]] | None = None) -> Kept:
    """What is kept of chunks (all by default), one after the other."""
    known = Kept(work.spec.top_k)
    for chunk in work.chunks() if chunks is None else chunks:
        known.merge(work.keep(chunk, [work.prepare(case) for case in chunk], known))
    return known


def brute(work: AggWork) -> Iterator[tuple[int, Brute]]:
    """Each group with all its points."""
    return brute_force.brute(work.spec, work.cases, work.groups, range(len(work.groups.names)))
