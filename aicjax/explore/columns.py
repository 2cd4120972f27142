# SPDX-License-Identifier: Apache-2.0
"""Names and order of the columns of result frames, as in the files of AIConfigurator 0.12.0."""

DECIMALS = 3  # of every reported number but the cluster throughput
CLUSTER = "tokens/s/gpu_cluster"

_LAYOUT = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp", "parallel")
_QUANT = ("gemm", "kvcache", "fmha", "moe", "comm")
_RATES = ("seq/s", "seq/s/gpu", "tokens/s", "tokens/s/gpu", "tokens/s/user")
_ORIGIN = ("backend", "version", "system")
_REQUEST = ("model", "isl", "osl", "prefix", "concurrency", "request_rate")

AGG = (
    *_REQUEST,
    "bs",
    "global_bs",
    "ttft",
    "tpot",
    "request_latency",
    "encoder_latency",
    "encoder_memory",
    *_RATES,
    "num_total_gpus",
    *_LAYOUT,
    *_QUANT,
    "memory",
    "balance_score",
    "num_ctx_reqs",
    "num_gen_reqs",
    "num_tokens",
    "ctx_tokens",
    "gen_tokens",
    *_ORIGIN,
    "power_w",
)

STATIC = (
    *_REQUEST,
    "bs",
    "global_bs",
    "ttft",
    "tpot",
    *_RATES,
    "request_latency",
    "encoder_latency",
    "encoder_memory",
    "context_latency",
    "generation_latency",
    "num_total_gpus",
    *_LAYOUT,
    *_QUANT,
    "memory",
    *_ORIGIN,
    "power_w",
)

_WORKER = (*_LAYOUT, *_QUANT, "memory", *_ORIGIN)

DISAGG = (
    *_REQUEST,
    *(f"({role}){name}" for role in "pd" for name in ("bs", "global_bs", "workers")),
    "ttft",
    "tpot",
    "request_latency",
    "encoder_latency",
    *_RATES,
    "(p)seq/s/worker",
    "(d)seq/s/worker",
    "num_total_gpus",
    *(f"(p){name}" for name in _WORKER),
    *(f"(d){name}" for name in _WORKER if name != "cp"),
    *(f"(e){name}" for name in ("workers", "tp", "pp", "bs", "parallel", "memory")),
    "power_w",
)

LOAD_MATCH = ("replicas_needed", "total_gpus_needed", "load_served_pct")
