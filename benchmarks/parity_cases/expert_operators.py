# SPDX-License-Identifier: Apache-2.0
"""Routed experts and the exchanges around them."""

from typing import Any

import numpy as np

from aicjax.ops.records import MegaMoe, Moe, MoeAllToAll, MoeDispatch, MoeExpertCompute, Op
from benchmarks.parity_cases.comparison import NO_PEAK
from benchmarks.parity_cases.operator_file import TOKENS, OperatorFile


def _moe(row: dict[str, Any]) -> Op:
    ranks = row["moe_tp_size"], row["moe_ep_size"], row["attention_dp_size"]
    return Moe("moe", 1.0, *_shape(row), *ranks, row["quant_mode"], row["workload_distribution"], row["is_gated"])


def _dispatch(row: dict[str, Any]) -> Op:
    return MoeDispatch(
        "exchange",
        1.0,
        row["hidden_size"],
        row["topk"],
        row["num_experts"],
        row["moe_tp_size"],
        row["moe_ep_size"],
        row["attention_dp_size"],
        row["pre_dispatch"],
        row["quant_mode"],
        row["attn_cp_size"],
        row["is_context"],
        row["attn_ar_modeled"],
        compressed_on_one_sm=True,
    )


def _all_to_all(row: dict[str, Any]) -> Op:
    return MoeAllToAll(
        "exchange",
        1.0,
        row["phase"],
        row["comm_backend"],
        row["comm_dtype"],
        row["hidden_size"],
        row["topk"],
        row["num_experts"],
        row["moe_ep_size"],
        row["node_num"],
        row["sms"],
        row["attention_tp_size"],
    )


def _expert_compute(row: dict[str, Any]) -> Op:
    return MoeExpertCompute(
        "moe",
        1.0,
        *_shape(row),
        row["moe_ep_size"],
        row["attention_dp_size"],
        row["quant_mode"],
        row["workload_distribution"],
        row["inference_phase"],
        row["num_experts"] if np.isnan(row["num_slots"]) else int(row["num_slots"]),
        row["is_gated"],
        row["enable_eplb"],
    )


def _megamoe(row: dict[str, Any]) -> Op:
    ran = row["quant_mode"], row["workload_distribution"], "context" if row["is_context"] else "generation"
    return MegaMoe("moe", 1.0, *_shape(row), row["moe_ep_size"], *ran)


def _shape(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["hidden_size"], row["inter_size"], row["topk"], row["num_experts"]


EXPERTS = {
    "ops_moe": OperatorFile(_moe, TOKENS, ("quant_mode",), share=True, refusal=NO_PEAK),
    "ops_moe_dispatch": OperatorFile(_dispatch, TOKENS),
    "ops_moe_a2a": OperatorFile(_all_to_all, TOKENS, ("comm_backend", "phase")),
    "ops_moe_expert_compute": OperatorFile(_expert_compute, TOKENS, ("quant_mode",)),
    "ops_dsv4_megamoe": OperatorFile(_megamoe, TOKENS),
}
