# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and hyper-connections."""

from typing import Any

from aicjax.ops.records import Gdn, Kda, Mamba2, Mhc, Op
from benchmarks.parity_cases.operator_file import TOKENS, OperatorFile


def _mamba2(row: dict[str, Any]) -> Op:
    sizes = [row[name] for name in ("d_model", "d_state", "d_conv", "nheads", "head_dim", "n_groups", "chunk_size")]
    return Mamba2("mamba", 1.0, row["kernel_source"], row["phase"], *sizes)


def _gdn(row: dict[str, Any]) -> Op:
    return Gdn("gdn", 1.0, row["kernel_source"], row["phase"], *_heads(row), row["mamba_ssm_dtype"])


def _kda(row: dict[str, Any]) -> Op:
    return Kda("kda", 1.0, row["kernel_source"], row["phase"], *_heads(row), row["draft_tokens"])


def _heads(row: dict[str, Any]) -> tuple[int, int, int, int, int, int]:
    heads = row["num_k_heads"], row["head_k_dim"], row["num_v_heads"], row["head_v_dim"]
    return row["d_model"], row["d_conv"], *heads


def _mhc(row: dict[str, Any]) -> Op:
    shape = row["hc_mult"], row["hidden_size"], row["sinkhorn_iters"]
    return Mhc("mhc", 1.0, row["phase_op"], *shape, row["quant_mode"], row["seq_split"])


_SEQUENCES = {"batch": "batch_size", "length": "s"}

RECURRENT = {
    "ops_mamba2": OperatorFile(_mamba2, _SEQUENCES, share=True),
    "ops_gdn": OperatorFile(_gdn, _SEQUENCES, share=True),
    "ops_kda": OperatorFile(_kda, _SEQUENCES, share=True),
    "ops_mhc": OperatorFile(_mhc, TOKENS, ("quant_mode",), share=True),
}
