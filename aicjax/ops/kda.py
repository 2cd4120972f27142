# SPDX-License-Identifier: Apache-2.0
"""Kimi delta-attention kernels (KDA): convolutions, the scan of a prompt, a decode step, a verification of drafts.

A framework may fuse convolution and update in one kernel; where only that was measured, the update becomes it and
the convolution costs nothing.
"""

from aicjax.ops.database import Database
from aicjax.ops.records import Kda
from aicjax.ops.recurrent_tables import (
    ACTIVATION_BYTES,
    Kernel,
    KernelKey,
    Moved,
    Points,
    RecurrentSchema,
    RecurrentTable,
    load_recurrent,
)

SCHEMA = RecurrentSchema("kda_perf", ("d_model", "d_conv", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"))
V_HEADS = SCHEMA.shape.index("num_v_heads")
STATE_BYTES = 4
PROMPT_CONVOLUTION, CONVOLUTION = "causal_conv1d_fn_qkv3", "causal_conv1d_update"
SCAN, DECODE, VERIFY = "chunk_kda", "fused_recurrent_kda_packed_decode", "fused_sigmoid_gating_delta_rule_update"
FUSED_DECODE, FUSED_VERIFY = "kda_fused_decode", "fused_kda_decode_mtp_dspark"  # with the convolution
SAME_TRAFFIC = {
    "chunk_kda_with_fused_gate": SCAN,
    "flashkda_fwd": SCAN,
    "fused_kda_decode": DECODE,
    "fused_recurrent_kda": VERIFY,
}


def kda_kernel(database: Database, record: Kda) -> Kernel:
    """What an operator runs; an unmeasured shape reads the measured one of its width with the nearest head count."""
    table = load_recurrent(*database.where, SCHEMA)
    heads = (record.num_k_heads, record.head_k_dim, record.num_v_heads, record.head_v_dim)
    key = KernelKey(record.kernel, record.phase, (record.d_model, record.d_conv, *heads))
    fused = _fused(table, key)
    if fused is not None:
        key = key._replace(kernel=fused)
    return Kernel(
        record.phase,
        _moved(record, key.kernel),
        _points(table, key),
        draft_tokens=max(record.draft_tokens, 0) if record.phase == "verify" else 0,
        ignores_length=record.phase != "context",
        fused=fused is not None and record.kernel == CONVOLUTION,
    )


def _fused(table: RecurrentTable, key: KernelKey) -> str | None:
    """The fused kernel that runs instead of a convolution or an update; None when they run alone."""
    kernel, phase, _ = key
    if phase == "verify" and kernel in (VERIFY, CONVOLUTION):
        return FUSED_VERIFY if not table.runs(kernel, phase) and table.runs(FUSED_VERIFY, phase) else None
    if phase == "generation" and kernel in (DECODE, CONVOLUTION):
        return FUSED_DECODE if key not in table and key._replace(kernel=FUSED_DECODE) in table else None
    return None


def _points(table: RecurrentTable, key: KernelKey) -> Points | None:
    if key in table:
        return table[key]
    others = table.of_width(key.kernel, key.phase, key.shape[0])
    nearest = min(others, key=lambda other: abs(other.shape[V_HEADS] - key.shape[V_HEADS]), default=None)
    return None if nearest is None else table[nearest]


def _moved(record: Kda, kernel: str) -> Moved:
    values = record.num_v_heads * record.head_v_dim
    state = STATE_BYTES * values * record.head_k_dim
    convolution = ACTIVATION_BYTES * 3 * values * (record.d_conv + 2)  # of queries, keys and values
    token = ACTIVATION_BYTES * 5 * values  # queries, keys, values and gate in, one output
    traffic = {
        PROMPT_CONVOLUTION: Moved(convolution),
        CONVOLUTION: Moved(convolution),
        # The state is read and written once, and at every chunk written by one pass and read by the next.
        SCAN: Moved(token, 2 * state, 2 * state),
        DECODE: Moved(token, 2 * state),
        # A verification writes the state after each draft token.
        VERIFY: Moved(token + state, state),
        FUSED_VERIFY: Moved(convolution + token + state, state),
        FUSED_DECODE: Moved(convolution + token, 2 * state),
    }
    return traffic.get(SAME_TRAFFIC.get(kernel, kernel), Moved(2 * ACTIVATION_BYTES * record.d_model))
