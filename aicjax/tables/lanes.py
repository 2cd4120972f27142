# SPDX-License-Identifier: Apache-2.0
"""Which attention kernel answers first: the order of the lanes of the attention tables.

A lane is the rows of one `kernel_source`. Context and generation attention walk the order, and the first lane that has
the slice asked for serves the whole query.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from aicjax import _paths
from aicjax._names import one_of
from aicjax._results import InputError
from aicjax.tables.rows import Rows, first_rows
from aicjax.tables.store import read_rows
from aicjax.tables.tree import document, require_backend

DEFAULT = "default"  # the lane of rows that name no kernel, and the framework's own choice
_KNOWN = ("fa3", "fla", "flashinfer", "triton", "trtllm_mha")
_OVERRIDES: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # backend -> what a user may ask for -> its lanes
    "sglang": {name: (name,) for name in _KNOWN},
    "trtllm": {},
    "vllm": {
        "triton": ("vllm_triton_attn",),
        "flashinfer": ("vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode", "vllm_flashinfer"),
    },
}
_TABLES = {"context": "context_attention_perf", "generation": "generation_attention_perf"}

Density = Mapping[str, tuple[int, int]]  # lane -> number of slices, number of points


def lane_order(
    system: str,
    backend: str,
    version: str,
    phase: str,
    *,
    sm_version: int | None,
    attention_backend: str | None = None,
    shared: bool = True,
) -> list[str]:
    """Lanes of an attention table in the order in which they are tried.

    First what the user asked for, then the framework's default kernel where it is known, then the known lanes by how
    much of the table they hold, those that the version itself measured before those of its donors. Where neither a
    user nor the known defaults point to a lane, how much is measured says nothing about what runs: only `default`.

    Args:
        system: Name of the system.
        backend: Serving framework.
        version: Its literal version.
        phase: `context` or `generation`.
        sm_version: Compute capability of the system's GPU times ten, None where the notion does not apply.
        attention_backend: Kernel the user asked for, None or `default` for the framework's choice.
        shared: Whether the table has rows beyond the version's own.

    Raises:
        InputError: The backend has no such kernel, or the table has no row of it.
    """
    if phase not in _TABLES:
        raise InputError("phase", phase, one_of(phase, _TABLES))
    asked = _override(backend, attention_backend)
    known_default = _framework_default(backend, version, sm_version)
    pinned = [lane for lane in dict.fromkeys([*asked, known_default]) if lane not in (None, DEFAULT)]
    if not pinned and known_default is None:
        return [DEFAULT]
    everything, own = _densities(_paths.perfdb_dir(), system, backend, version, phase, shared)
    if asked and DEFAULT not in asked and not everything.keys() & set(asked):
        where = f"{phase} attention of {backend} {version} on {system}"
        raise InputError("attention_backend", attention_backend, f"a kernel with rows in {where}: {sorted(everything)}")
    order = _walk(pinned, everything)
    if not own:
        return order
    first = [lane for lane in _walk(pinned, own) if lane in own and lane not in pinned]
    return pinned + first + [lane for lane in order if lane not in own and lane not in pinned]


def _override(backend: str, attention_backend: str | None) -> tuple[str, ...]:
    """Lanes of what the user asked for, most specific first."""
    require_backend(backend)
    if attention_backend is None:
        return ()
    choices = {**_OVERRIDES[backend], DEFAULT: (DEFAULT,)}
    if attention_backend not in choices:
        raise InputError("attention_backend", attention_backend, f"for {backend} {one_of(attention_backend, choices)}")
    return choices[attention_backend]


def _framework_default(backend: str, version: str, sm_version: int | None) -> str | None:
    """The framework's default lane as of the greatest listed version up to `version`, None when it is not known."""
    listed = document("attention_lanes").get(backend, {})
    reached = [name for name in listed if _release(name) <= _release(version)]
    return listed[max(reached, key=_release)].get(sm_version) if reached else None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (1, 3, 0) of 1.3.0rc20."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in leading[0].split(".")) if leading else (0,)


def _walk(pinned: list[str], density: Density) -> list[str]:
    """Pinned lanes, known ones, the default and whatever else is measured, each group the densest first."""

    def rank(lane: str) -> tuple[int, int, str]:
        slices, points = density.get(lane, (0, 0))
        return -slices, -points, lane

    known = sorted((lane for lane in _KNOWN if lane not in pinned), key=rank)
    listed = [*pinned, *known, DEFAULT]
    return listed + sorted((lane for lane in density if lane not in listed), key=rank)


@functools.lru_cache(maxsize=32)
def _densities(
    root: Path, system: str, backend: str, version: str, phase: str, shared: bool
) -> tuple[Density, Density]:
    """Densities of a table of the tree in use, `root`, and of the rows that the version itself measured."""
    rows = read_rows(system, backend, version, _TABLES[phase], shared)
    return _density(rows, phase), {} if rows is None else _density(rows.select(rows.source == 0), phase)


def _density(rows: Rows | None, phase: str) -> Density:
    """Number of slices and of distinct points of each lane of an attention table."""
    if rows is None or not len(rows):
        return {}
    codes, lanes = rows.text("kernel_source", missing=DEFAULT)
    heads, kv_heads = rows.number("num_heads"), rows.number("num_key_value_heads")
    group = np.where(heads == kv_heads, 0, kv_heads)
    slices = [codes, rows.text("kv_cache_dtype")[0], group, rows.number("head_dim"), rows.number("window_size", 0)]
    length = rows.number("isl")
    if phase == "context":
        slices.append(rows.text("attn_dtype")[0])
    else:
        length = length + rows.number("step")
    points = [*slices, heads, rows.number("batch_size"), length]
    counts = [np.bincount(codes[first_rows(*key)], minlength=len(lanes)).tolist() for key in (slices, points)]
    return dict(zip(lanes, zip(*counts, strict=True), strict=True))
