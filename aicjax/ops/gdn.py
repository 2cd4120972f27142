# SPDX-License-Identifier: Apache-2.0
"""Gated delta-rule kernels (GDN): the short convolution, and the scan of a prompt or the state update of a step."""

from aicjax.ops.database import Database
from aicjax.ops.records import Gdn
from aicjax.ops.recurrent_tables import (
    ACTIVATION_BYTES,
    Kernel,
    KernelKey,
    Moved,
    Points,
    RecurrentSchema,
    load_recurrent,
)

CONVOLUTIONS = ("causal_conv1d_fn", "causal_conv1d_update")
SCAN = "chunk_gated_delta_rule"
UPDATE = "fused_sigmoid_gating_delta_rule_update"
SCHEMA = RecurrentSchema(
    "gdn_perf",
    ("d_model", "d_conv", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"),
    (("fused_recurrent_gated_delta_rule", UPDATE), ("fused_recurrent_gated_delta_rule_packed_decode", UPDATE)),
)
# Implementations among which a framework version chooses when it runs. The one that was measured answers; of several,
# nothing says which runs.
VARIANTS = {("vllm", "0.24.0", SCAN, "context"): (f"{SCAN}_flashinfer", f"{SCAN}_triton", f"{SCAN}_cutedsl")}
MEASURED_STATE = "float32"  # format of the state in all measurements
STATE_BYTES = {MEASURED_STATE: 4, "bfloat16": 2, "float16": 2}


def gdn_kernel(database: Database, record: Gdn) -> Kernel:
    """What an operator runs: measurements of its shape with a state of 32 bits, otherwise its roofline.

    Convolutions keep no state, whose format is all the same to them.
    """
    measured = record.state_dtype == MEASURED_STATE or record.kernel in CONVOLUTIONS
    return Kernel(record.phase, _moved(record), _points(database, record) if measured else None)


def _points(database: Database, record: Gdn) -> Points | None:
    table = load_recurrent(*database.where, SCHEMA)
    heads = (record.num_k_heads, record.head_k_dim, record.num_v_heads, record.head_v_dim)
    key = KernelKey(record.kernel, record.phase, (record.d_model, record.d_conv, *heads))
    variants = VARIANTS.get((database.backend, database.version, record.kernel, record.phase), ())
    found = [table[name] for variant in variants if (name := key._replace(kernel=variant)) in table]
    if len(found) > 1:
        return None
    return found[0] if found else table.get(key)


def _moved(record: Gdn) -> Moved:
    values = record.num_v_heads * record.head_v_dim
    mixed = 2 * record.num_k_heads * record.head_k_dim + values
    if record.kernel in CONVOLUTIONS:
        return Moved(ACTIVATION_BYTES * mixed * (record.d_conv + 2))
    state = values * record.head_k_dim
    # The state is read and written once; a scan also keeps it at every chunk, written by one pass and read by the next.
    carried = 2 * STATE_BYTES.get(record.state_dtype, STATE_BYTES[MEASURED_STATE]) * state
    token = ACTIVATION_BYTES * (mixed + values)
    if record.kernel == SCAN:
        return Moved(token, carried, 2 * ACTIVATION_BYTES * state)
    if record.kernel == UPDATE:
        return Moved(token, carried)
    return Moved(2 * ACTIVATION_BYTES * record.d_model)
