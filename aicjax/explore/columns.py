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

_ENCODE = tuple(f"(e){name}" for name in ("workers", "tp", "pp", "bs", "parallel", "memory"))

AGG_CELL = (*AGG, "(a)workers", *_ENCODE)

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
    *_ENCODE,
    "power_w",
)

_AFD_LAYER = ("t_a_layer", "t_f_layer", "t_a2f_layer", "t_f2a_layer", "t_c_layer", "t_step", "balance_ratio")
AFD_PHASE = (*_AFD_LAYER, "comm_hidden")

AFD = (
    *("model", "phase", "isl", "osl", "gpus_per_node"),
    *(f"(a){name}" for name in ("nodes", "tp", "bs", "micro_bs", "workers", "memory", "is_oom")),
    *(f"(f){name}" for name in ("nodes", "tp", "ep", "workers", "memory", "is_oom")),
    *(f"{phase}{name}" for phase in ("", "prefill_", "decode_") for name in AFD_PHASE),
    *("ttft", "tpot", "request_latency", "b_total", "b_micro_total"),
    *("tokens/s", "tokens/s/gpu", "tokens/s/user", "seq/s", "request_rate", "concurrency", "parallel"),
    *("pipeline_model", "num_microbatches", "nextn", "combined_with_pd", "boundary_on_attn"),
    *(f"(p){name}" for name in ("workers", "tp", "pp", "dp", "moe_tp", "ep", "bs", "num_gpus")),
    *(f"(p){name}" for name in ("system", "backend", "version", "impl")),
    *("(d)impl", "num_total_gpus", "memory", *_ORIGIN, "power_w"),
)
AFD_COARSE = ("(a)memory", "(f)memory", "memory", "tokens/s", "tokens/s/gpu", "tokens/s/user")
AFD_COARSE_DECIMALS = 2

LOAD_MATCH = ("replicas_needed", "total_gpus_needed", "load_served_pct")
