# SPDX-License-Identifier: Apache-2.0
"""Collectives: the framework's all-reduce and NCCL's operations, as curves of message size.

A group larger than any that was collected is the largest collected one, scaled by the volume that crosses the
slowest link and by that link's bandwidth.
"""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from aicjax import quant
from aicjax._results import Provenance
from aicjax._types import Array
from aicjax._units import MS_PER_S
from aicjax.constants import OpConstants
from aicjax.hardware import System
from aicjax.interp.curve import SizeCurves, size_latency, stack_size_curves
from aicjax.ops.comm_estimate import CommEstimates, LentCurve, bind_comm_estimates, with_comm_estimates
from aicjax.ops.database import Database
from aicjax.ops.records import AllReduce, Nccl
from aicjax.ops.roofline import Hardware
from aicjax.tables import first_rows, read_rows

ALLREDUCE_TABLE = "custom_allreduce_perf"
LIBRARY_TABLES = {"nccl": "nccl_perf", "oneccl": "oneccl_perf"}
ALLREDUCE_FORMAT = "half"
EAGER_SUFFIX = "_eager"  # rows of kernels outside the graph, which a server does not run
EAGER_SYSTEMS = ("b60",)  # systems measured in eager mode only
RACK_NODE_GPUS = 72  # a node that is a whole rack: large all-reduces there go through NCCL
RACK_CUSTOM_GPUS = 4
VOLUME = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
ALLREDUCE_VOLUME = 4.0  # bytes that cross a link for one 16-bit element, both directions of the ring
KNOT_BUCKET = 32

Curve = tuple[np.ndarray, np.ndarray]


@functools.lru_cache(maxsize=32)
def load_allreduce(system: System, backend: str, version: str, shared: bool = True) -> dict[int, Curve]:
    """Curves `(elements, latency)` of the framework's all-reduce by group size."""
    rows = read_rows(system.name, backend, version, ALLREDUCE_TABLE, shared)
    if rows is None:
        return {}
    if system.name not in EAGER_SYSTEMS:
        eager = np.zeros(len(rows), bool)
        for column in ("kernel_source", "backend"):
            if rows.has(column):
                codes, words = rows.text(column, "")
                eager |= np.array([word.endswith(EAGER_SUFFIX) for word in words], bool)[codes]
        rows = rows.select(~eager)
    return _curves((rows.number("num_gpus"),), rows.number("message_size"), rows.number("latency"), lambda key: key[0])


@functools.lru_cache(maxsize=32)
def load_library(system: System, library: str) -> dict[tuple[str, str, int], Curve]:
    """Curves of `nccl` or `oneccl` by (format, operation, group size)."""
    version = system.nccl_version if library == "nccl" else system.oneccl_version
    if version is None:
        return {}
    rows = read_rows(system.name, library, version, LIBRARY_TABLES[library], False)
    if rows is None:
        return {}
    (form, forms), (operation, operations) = rows.text("nccl_dtype"), rows.text("op_name")
    keys = (form, operation, rows.number("num_gpus"))
    return _curves(
        keys, rows.number("message_size"), rows.number("latency"), lambda k: (forms[k[0]], operations[k[1]], k[2])
    )


def _curves(keys, size, latency, name) -> dict:
    keep = first_rows(*keys, size)
    keys, size, latency = np.stack([np.asarray(k)[keep] for k in keys], -1), size[keep], latency[keep]
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    curves = {}
    for index, key in enumerate(distinct.tolist()):
        mine = np.nonzero(group.reshape(-1) == index)[0]
        order = mine[np.argsort(size[mine])]
        curves[name(tuple(int(k) for k in key))] = (size[order].astype(np.float64), latency[order].astype(np.float64))
    return curves


class CommRows(eqx.Module):
    """Distinct collectives bound to their curves.

    Attributes:
        curves: Latency over elements, one curve a row; an empty one where nothing was collected.
        elements: Elements a token [row].
        factor: Scale from the collected group to the one asked for [row]; 0 for a group of one.
        single: Whether the group is one GPU, which sends nothing [row].
        scaled: Whether the group is larger than any collected one [row].
        bytes_per_element: Bytes of one element that cross the slowest link of the group [row].
        link: Position of that link in `Hardware.link_bw` [row].
        free: Whether what has no roofline takes no time; otherwise it has no answer [row].
        estimates: What answers for the collectives that no curve answers for; None when nothing does.
    """

    curves: SizeCurves
    elements: Float[Array, " row"]
    factor: Float[Array, " row"]
    single: Int[Array, " row"]
    scaled: Int[Array, " row"]
    bytes_per_element: Float[Array, " row"]
    link: Int[Array, " row"]
    free: Bool[Array, " row"]
    estimates: CommEstimates | None


def bind_comm(database: Database, records: Sequence[AllReduce | Nccl], *, rows: int) -> CommRows:
    """Rows for `records`, padded to `rows`."""
    system = database.system
    curves, factors, scaled, lent = [], [], [], []
    for record in records:
        group = _group(record)
        curve, collected = _find(database, record) if database.interpolates else (None, group)
        curves.append(curve or (np.ones(0), np.ones(0)))
        factors.append(_beyond(system, group, collected))
        scaled.append(group > collected)
        lent.append(None if curve else _lent(database, record))
    width = -(-max([c[0].size for c in curves] + [1]) // KNOT_BUCKET) * KNOT_BUCKET
    pad = (0, rows - len(records))
    elements = [r.hidden_size if isinstance(r, AllReduce) else r.elements_per_token for r in records]
    groups = [_group(record) for record in records]
    moved = [_bytes_per_element(record, group) for record, group in zip(records, groups, strict=True)]
    return CommRows(
        curves=stack_size_curves(curves, rows, width),
        elements=np.pad(np.array(elements, np.float32), pad),
        factor=np.pad(np.array(factors, np.float32), pad),
        single=np.pad(np.array([group <= 1 for group in groups], np.int32), pad, constant_values=1),
        scaled=np.pad(np.array(scaled, np.int32), pad),
        bytes_per_element=np.pad(np.array(moved, np.float32), pad),
        link=np.pad(np.array([system.slowest_link(group) for group in groups], np.int32), pad),
        free=np.full(rows, database.estimates),
        estimates=bind_comm_estimates(lent, rows=rows),
    )


def _group(record: AllReduce | Nccl) -> int:
    return record.tp if isinstance(record, AllReduce) else record.num_gpus


def _find(database: Database, record: AllReduce | Nccl) -> tuple[Curve | None, int]:
    """Curve that answers and the group size it was collected at."""
    system = database.system
    if isinstance(record, Nccl):
        return _find_library(system, record.quant, record.operation, record.num_gpus)
    if record.quant != ALLREDUCE_FORMAT or record.tp <= 1:
        return None, record.tp
    if system.gpus_per_node == RACK_NODE_GPUS and record.tp > RACK_CUSTOM_GPUS:
        return _find_library(system, ALLREDUCE_FORMAT, "all_reduce", record.tp)
    table = load_allreduce(*database.where)
    collected = min(record.tp, max(table, default=record.tp))
    return table.get(collected), collected


def _find_library(system: System, form: str, operation: str, group: int) -> tuple[Curve | None, int]:
    tables = [load_library(system, library) for library in LIBRARY_TABLES]
    groups = [key[2] for table in tables for key in table if key[:2] == (form, operation)]
    collected = min(group, max(groups, default=group))
    for table in tables:
        if (curve := table.get((form, operation, collected))) is not None:
            return curve, collected
    return None, collected


def _beyond(system: System, group: int, collected: int) -> float:
    """Factor from the collected group to a larger one."""
    if group <= 1:
        return 0.0
    if group <= collected:
        return 1.0
    volume = (group - 1) / group * collected / max(collected - 1, 1)
    return volume * system.p2p_bw(collected) / system.p2p_bw(group)


def _lent(database: Database, record: AllReduce | Nccl) -> LentCurve | None:
    """Curve whose utilisation a database of estimates lends to a collective. Of two libraries one alone counts."""
    system, group = database.system, _group(record)
    if not database.estimates or group <= 1:
        return None
    if isinstance(record, AllReduce):
        table = load_allreduce(*database.where) if record.quant == ALLREDUCE_FORMAT else {}
        collected = min(group, max(table, default=group))
        curve = table.get(collected)
    else:
        library = next((found for name in LIBRARY_TABLES if (found := load_library(system, name))), {})
        key = (record.quant, record.operation)
        collected = min(group, max((k[2] for k in library if k[:2] == key), default=group))
        curve = library.get((*key, collected))
    if curve is None:
        return None
    size, latency = curve
    roof = size * _bytes_per_element(record, collected) / system.p2p_bw(collected) * MS_PER_S
    return LentCurve(size, np.divide(roof, latency, out=np.zeros_like(roof), where=latency > 0))


def _bytes_per_element(record: AllReduce | Nccl, group: int) -> float:
    """Bytes of one element of a collective over `group` GPUs that cross its slowest link."""
    if group <= 1:
        return 0.0
    if isinstance(record, AllReduce):
        per_element = ALLREDUCE_VOLUME
    else:
        per_element = VOLUME.get(record.operation, 0.0) * quant.COMM[record.quant].bytes
    return per_element * (group - 1) / group


def comm_latency(
    rows: CommRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> tuple[Float[Array, "row point"], Int[Array, "row point"]]:
    """Latency of each collective and how it was obtained; nothing for a group of one."""
    size, sol = tokens * rows.elements[:, None], comm_sol(rows, tokens, hardware, constants)
    latency, code = size_latency(rows.curves, size)
    single = rows.single[:, None] > 0
    # Nothing is multiplied where nothing was measured: NaN times zero would reach the gradient.
    latency = jnp.where(single, 0.0, latency) * rows.factor[:, None]
    code = jnp.where((rows.scaled[:, None] > 0) & (code != Provenance.MISSING), Provenance.HELD, code)
    if rows.estimates is not None:
        latency, code = with_comm_estimates(rows.estimates, size, sol, latency, code)
    free = rows.free[:, None] & (sol == 0)
    code = jnp.where(single, Provenance.NONE, jnp.where(free, Provenance.EMPIRICAL, code))
    return jnp.where(single | free, 0.0, latency), code.astype(jnp.int32)


def comm_sol(
    rows: CommRows, tokens: Float[Array, "row point"], hardware: Hardware, constants: OpConstants
) -> Float[Array, "row point"]:
    """Roofline of each collective [ms]."""
    return tokens * (rows.elements * rows.bytes_per_element / hardware.link_bw[rows.link])[:, None]
