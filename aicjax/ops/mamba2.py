# SPDX-License-Identifier: Apache-2.0
"""Mamba2 kernels: the short convolution, and the scan of a prompt or the state update of a decode step."""

from aicjax.ops.database import Database
from aicjax.ops.records import Mamba2
from aicjax.ops.recurrent_tables import ACTIVATION_BYTES, Kernel, KernelKey, Moved, RecurrentSchema, load_recurrent

SCHEMA = RecurrentSchema(
    "mamba2_perf", ("d_model", "d_state", "d_conv", "nheads", "head_dim", "n_groups", "chunk_size")
)
CONVOLUTIONS = ("causal_conv1d_fn", "causal_conv1d_update")


def mamba2_kernel(database: Database, record: Mamba2) -> Kernel:
    """What an operator runs.

    A decode step is its roofline. A prompt of an unmeasured shape reads the first measured one of its width.
    """
    points = None
    if record.phase != "generation":
        table = load_recurrent(*database.where, SCHEMA)
        shape = (record.d_model, record.d_state, record.d_conv, record.num_heads, record.head_dim)
        key = KernelKey(record.kernel, record.phase, (*shape, record.n_groups, record.chunk_size))
        others = table.of_width(record.kernel, record.phase, record.d_model)
        points = table.get(key) or (table[others[0]] if others else None)
    return Kernel(record.phase, _moved(record), points)


def _moved(record: Mamba2) -> Moved:
    inner = record.num_heads * record.head_dim
    mixed = inner + 2 * record.n_groups * record.d_state
    if record.kernel in CONVOLUTIONS:
        return Moved(ACTIVATION_BYTES * mixed * (record.d_conv + 2))
    return Moved(ACTIVATION_BYTES * (mixed + record.num_heads + inner))
