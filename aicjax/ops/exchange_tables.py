# SPDX-License-Identifier: Apache-2.0
"""Measured exchanges of large expert parallelism: four kinds of tables read as one.

A measurement is found by communication library, phase, number format, ranks, nodes, shape, and by the multiprocessors
(SMs) that the kernel was given.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from aicjax.hardware import System
from aicjax.interp.ends import Curve
from aicjax.ops.keyed_curves import keyed_curves
from aicjax.tables import Rows, read_rows

ANY_FORMAT = "default"  # format of libraries that were measured in one format only
DEEPEP_NODE_RANKS = 8  # ranks of a node in the DeepEP tables
NVLINK_NODE_RANKS = 4  # ranks that count as a node in the NVLink tables, where none is stated
NVLINK_LIBRARIES = {"NVLinkTwoSided": "nvlink_two_sided", "NVLinkOneSided": "nvlink_one_sided"}
NVLINK_PHASES = {  # operation: phase, and format where it is not that of the experts
    "alltoall_prepare": ("prepare", None),
    "alltoall_dispatch": ("dispatch", None),
    "alltoall_combine": ("combine", None),
    "alltoall_combine_low_precision": ("combine", "fp4"),
}


class Place(NamedTuple):
    """Ranks and shape of an exchange."""

    moe_ep: int
    nodes: int
    hidden_size: int
    topk: int
    num_experts: int


BySms = dict[int, Curve]
ByFormat = dict[str, dict[Place, BySms]]
Exchanges = dict[tuple[str, str], ByFormat]


class _Block(NamedTuple):
    """Rows of one table, or what is common to all of them."""

    library: np.ndarray | str
    phase: np.ndarray | str
    form: np.ndarray | str
    moe_ep: np.ndarray
    nodes: np.ndarray
    hidden_size: np.ndarray
    topk: np.ndarray
    num_experts: np.ndarray
    sms: np.ndarray | int
    tokens: np.ndarray
    latency_ms: np.ndarray


@functools.lru_cache(maxsize=32)
def load_exchanges(system: System, backend: str, version: str, shared: bool) -> Exchanges:
    """Curves of tokens by (library, phase), format, place and SMs; a row of the unified table counts before others."""
    blocks: list[_Block] = []
    for table, adapt in _TABLES.items():
        if (rows := read_rows(system.name, backend, version, table, shared)) is not None:
            blocks += adapt(rows)
    if not blocks:
        return {}
    columns = [
        np.concatenate([np.broadcast_to(block[part], block.tokens.shape) for block in blocks])
        for part in range(len(_Block._fields))
    ]
    words, codes = zip(*(np.unique(text, return_inverse=True) for text in columns[:3]), strict=True)
    found: Exchanges = {}
    for key, curve in keyed_curves((*codes, *columns[3:-2]), *columns[-2:]).items():
        library, phase, form = (str(word[code]) for word, code in zip(words, key, strict=False))
        places = found.setdefault((library, phase), {}).setdefault(form, {})
        places.setdefault(Place(*key[3:-1]), {})[key[-1]] = curve
    return found


def _texts(rows: Rows, column: str) -> np.ndarray:
    codes, words = rows.text(column)
    return np.array(words)[codes]


def _unified(rows: Rows) -> Iterator[_Block]:
    yield _Block(
        *(_texts(rows, column) for column in ("comm_backend", "phase", "comm_dtype")),
        *(rows.number(column) for column in ("ep_size", "node_num", "hidden_size", "topk", "num_experts")),
        sms=rows.number("sms", 0).astype(np.int64),
        tokens=rows.number("num_tokens"),
        latency_ms=rows.number("latency"),
    )


def _deepep_normal(rows: Rows) -> Iterator[_Block]:
    for phase in ("dispatch", "combine"):
        latency = rows.number(f"{phase}_transmit_ms") + rows.number(f"{phase}_notify_ms")
        yield _deepep(rows, "deepep_ht", phase, rows.number("dispatch_sms"), latency)


def _deepep_low_latency(rows: Rows) -> Iterator[_Block]:
    for phase in ("dispatch", "combine"):
        yield _deepep(rows, "deepep_ll", phase, 0, rows.number(f"{phase}_ms"))


def _deepep(rows: Rows, library: str, phase: str, sms: np.ndarray | int, latency_ms: np.ndarray) -> _Block:
    nodes, tokens = rows.number("node_num"), rows.number("num_token")
    hidden, topk, experts = (rows.number(column) for column in ("hidden_size", "num_topk", "num_experts"))
    ranks = nodes * DEEPEP_NODE_RANKS
    return _Block(library, phase, ANY_FORMAT, ranks, nodes, hidden, topk, experts, sms, tokens, latency_ms)


def _nvlink(rows: Rows) -> Iterator[_Block]:
    for kernel, library in NVLINK_LIBRARIES.items():
        for operation, (phase, form) in NVLINK_PHASES.items():
            part = rows.select(rows.is_in("kernel_source", (kernel,)) & rows.is_in("op_name", (operation,)))
            if not len(part):
                continue
            ranks, nodes = part.number("moe_ep_size"), part.number("num_nodes", 0).astype(np.int64)
            yield _Block(
                library,
                phase,
                _texts(part, "moe_dtype") if form is None else form,
                ranks,
                np.where(nodes > 0, nodes, np.maximum(1, ranks // NVLINK_NODE_RANKS)),
                *(part.number(column) for column in ("hidden_size", "topk", "num_experts")),
                sms=0,
                tokens=part.number("num_tokens"),
                latency_ms=part.number("latency"),
            )


_TABLES: dict[str, Callable[[Rows], Iterator[_Block]]] = {
    "moe_a2a_perf": _unified,
    "wideep_deepep_normal_perf": _deepep_normal,
    "wideep_deepep_ll_perf": _deepep_low_latency,
    "trtllm_alltoall_perf": _nvlink,
}
