# SPDX-License-Identifier: Apache-2.0
"""What each measured table holds: the columns that identify a measurement, its durations and the order of its rows."""

import enum
from dataclasses import dataclass

SCHEMA_VERSION = 1  # of the files in the database: raise it when a reader of older files would misread them
MS_PER_US = 1e-3


@dataclass(frozen=True)
class Value:
    """A measured number.

    Attributes:
        name: Name in the database.
        source: Name in the published table.
        scale: Stored units per published unit.
        unit: Stored unit.
        zero: Whether zero is allowed: a difference of two timings, a part that did not occur, a power not measured.
        optional: Whether a source may lack it.
    """

    name: str
    source: str
    scale: float = 1.0
    unit: str = "ms"
    zero: bool = False
    optional: bool = False


class Order(enum.Enum):
    """Order in which the rows of a table are stored. Rows with the same key never change places."""

    GROUPED = "grouped"  # by their texts as first met, then ascending by their counts
    WALK = "walk"  # the key columns nested, each in the order in which its values are first met
    SOURCE = "source"  # as published: for a file that `GROUPED` would make answer differently


class Winner(enum.Enum):
    """Which of several rows of one file that are alike in every kept column is the measurement."""

    FIRST = "first"
    LAST = "last"
    NONE = "none"  # such rows are an error


@dataclass(frozen=True)
class TableSchema:
    """One kind of table.

    Attributes:
        key: Columns that select a value, the outermost axis first.
        merged: Columns kept beside the key: rows that differ only here share one value, the winner's.
        values: Measured numbers.
        ignored: Published columns that repeat the path, the table's name or another column.
        order: How rows are stored.
        winner: Which of several rows with the same key answers.
    """

    key: tuple[str, ...]
    merged: tuple[str, ...]
    values: tuple[Value, ...]
    ignored: tuple[str, ...]
    order: Order = Order.GROUPED
    winner: Winner = Winner.FIRST

    @property
    def identity(self) -> tuple[str, ...]:
        """Names of all columns that identify a measurement, as stored."""
        return self.key + self.merged


LATENCY = Value("latency", "latency")
DELTA = Value("latency", "latency", zero=True)  # one timing minus another, or a step that costs nothing
POWER = Value("power", "power", unit="W", zero=True, optional=True)
_PATH = ("framework", "version", "device")
_REPEATED = (*_PATH, "op_name", "power_limit")


def _table(
    key: str,
    merged: str = "kernel_source",
    values: tuple[Value, ...] = (LATENCY, POWER),
    ignored: str = "",
    order: Order = Order.GROUPED,
    winner: Winner = Winner.FIRST,
) -> TableSchema:
    names = tuple(key.split())
    beside = tuple(name for name in merged.split() if name not in names)
    dropped = tuple(name for name in (*_REPEATED, *ignored.split()) if name not in names)
    return TableSchema(names, beside, values, dropped, order, winner)


_MLA = "mla_dtype kv_cache_dtype num_heads"
_MODULE = "op_name architecture mla_dtype kv_cache_dtype gemm_type num_heads"
_DTYPES = "kernel_source model mla_dtype kv_cache_dtype gemm_type"
_EXPERTS = "moe_dtype distribution topk num_experts hidden_size inter_size moe_tp_size moe_ep_size num_tokens"
_LINEAR = "d_model d_conv num_k_heads head_k_dim num_v_heads head_v_dim batch_size seq_len"
_MEGAMOE_SIZES = "global_num_tokens num_max_tokens_per_rank effective_num_max_tokens_per_rank"
_MEGAMOE_FLAGS = "includes_routed_scale includes_gate_topk includes_buffer_init used_cuda_graph"


def _sparse(key: str) -> TableSchema:
    """Sparse-attention module: a later row of a file corrects an earlier one."""
    return _table(f"{_MODULE} {key}", "kernel_source model", ignored="tp_size", winner=Winner.LAST)


def _compressed(key: str) -> TableSchema:
    """Compressed-attention module or one of its kernels; heads are those of one rank of `tp_size`."""
    return _table(
        f"mla_dtype kv_cache_dtype gemm_type num_heads tp_size {key}",
        "kernel_source model",
        ignored="architecture compress_ratio local_num_heads",
    )


def _side(key: str, values: tuple[Value, ...] = (LATENCY, POWER)) -> TableSchema:
    """Side kernel of a sparse-attention module; its number formats do not select."""
    return _table(f"num_heads {key}", _DTYPES, values, ignored="architecture compress_ratio local_num_heads tp_size")


TABLES: dict[str, TableSchema] = {
    "gemm_perf": _table("gemm_dtype m n k", order=Order.WALK),
    "computescale_perf": _table("quant_dtype k m", values=(DELTA,)),
    "scale_matrix_perf": _table("quant_dtype k m"),
    "context_attention_perf": _table(
        "kernel_source attn_dtype kv_cache_dtype head_dim window_size num_key_value_heads num_heads batch_size isl",
        ignored="beam_width step",
    ),
    "generation_attention_perf": _table(
        "kernel_source kv_cache_dtype head_dim window_size num_key_value_heads num_heads batch_size isl step",
        ignored="beam_width attn_dtype",
    ),
    "encoder_attention_perf": _table("attn_dtype head_dim num_heads batch_size isl"),
    "custom_allreduce_perf": _table(
        "num_gpus message_size", "kernel_source backend", ignored="allreduce_dtype implementation"
    ),
    "nccl_perf": _table("nccl_dtype op_name num_gpus message_size"),
    "oneccl_perf": _table("nccl_dtype op_name num_gpus message_size"),
    "moe_perf": _table(_EXPERTS),
    "wideep_context_moe_perf": _table(_EXPERTS),
    "wideep_generation_moe_perf": _table(_EXPERTS),
    "wideep_moe_perf": _table(
        "kernel_source moe_dtype distribution num_slots topk num_experts hidden_size inter_size moe_tp_size"
        " moe_ep_size num_tokens",
        ignored="moe_kernel dp_num_tokens rank0_num_tokens simulation_mode",
    ),
    "wideep_context_mlp_perf": _table(
        "quant_type hidden_size intermediate_size num_token", values=(Value("latency", "avg_ms"),)
    ),
    "wideep_generation_mlp_perf": _table(
        "quant_type hidden_size intermediate_size num_token", values=(Value("latency", "avg_ms"),)
    ),
    "moe_a2a_perf": _table(
        "comm_backend phase comm_dtype ep_size node_num hidden_size topk num_experts sms num_tokens",
        values=(Value("latency", "latency", MS_PER_US),),
        ignored="transmit_us notify_us",
    ),
    "wideep_deepep_normal_perf": _table(
        "node_num hidden_size num_topk num_experts dispatch_sms num_token",
        "kernel_source combine_sms",
        tuple(
            Value(f"{phase}_{part}_ms", f"{phase}_{part}_us", MS_PER_US, zero=part == "notify")
            for phase in ("dispatch", "combine")
            for part in ("transmit", "notify")
        ),
    ),
    "wideep_deepep_ll_perf": _table(
        "node_num hidden_size num_topk num_experts num_token",
        values=tuple(Value(f"{phase}_ms", f"{phase}_avg_t_us", MS_PER_US) for phase in ("dispatch", "combine")),
        ignored="dispatch_bandwidth_gbps combine_bandwidth_gbps",
    ),
    "trtllm_alltoall_perf": _table(
        "kernel_source op_name moe_dtype num_nodes moe_ep_size hidden_size topk num_experts num_tokens", "distribution"
    ),
    "context_mla_perf": _table(f"{_MLA} batch_size isl", ignored="tp_size step"),
    "generation_mla_perf": _table(
        "kv_cache_dtype num_heads batch_size isl step", "kernel_source mla_dtype", ignored="tp_size"
    ),
    "mla_bmm_perf": _table("bmm_dtype op_name num_heads num_tokens"),
    "mla_context_module_perf": _table(f"model gemm_type {_MLA} batch_size isl", ignored="architecture tp_size step"),
    "mla_generation_module_perf": _table(
        "model gemm_type kv_cache_dtype num_heads batch_size isl step",
        "kernel_source mla_dtype",
        ignored="architecture tp_size",
    ),
    "wideep_context_mla_perf": _table(
        f"kernel_source {_MLA} batch_size isl", ignored="model architecture gemm_type tp_size step"
    ),
    "wideep_generation_mla_perf": _table(
        "kernel_source kv_cache_dtype num_heads batch_size isl step",
        "mla_dtype",
        ignored="model architecture gemm_type tp_size",
    ),
    "dsa_context_module_perf": _sparse("step batch_size isl"),
    "dsa_generation_module_perf": _sparse("batch_size isl step"),
    "msa_context_module_perf": _sparse("step batch_size isl"),
    "msa_generation_module_perf": _sparse("batch_size isl step"),
    **{
        f"dsv4_{kind}_{phase}_module_perf": _compressed(axes)
        for kind in ("csa", "hca")
        for phase, axes in (("context", "step batch_size isl"), ("generation", "batch_size isl step"))
    },
    "dsv4_hca_attn_module_perf": _compressed("batch_size isl step"),
    "dsv4_paged_mqa_logits_module_perf": _compressed("batch_size isl step"),
    "dsv4_csa_topk_calib_perf": _side("score_mode batch_size isl step", (DELTA,)),
    "glm5_dsa_attn_module_perf": _side("batch_size isl step"),
    "glm5_mqa_logits_module_perf": _side("batch_size isl step"),
    "glm5_topk_module_perf": _side("score_mode batch_size isl step", (DELTA,)),
    "mamba2_perf": _table(
        "kernel_source phase d_model d_state d_conv nheads head_dim n_groups chunk_size batch_size seq_len",
        "model_name",
        ignored="num_tokens",
    ),
    "gdn_perf": _table(f"phase {_LINEAR}", "kernel_source model_name", ignored="num_tokens"),
    "kda_perf": _table(f"kernel_source phase {_LINEAR}", "model_name", ignored="num_tokens"),
    "mhc_module_perf": _table(
        "op_name hc_mult hidden_size num_tokens", "kernel_source architecture num_sites sinkhorn_iters"
    ),
    "dsv4_megamoe_module_perf": _table(
        "phase kernel_source kernel_dtype moe_dtype pre_dispatch source_policy distribution num_fused_shared_experts"
        " topk num_experts hidden_size inter_size moe_tp_size moe_ep_size num_tokens",
        f"routed_scaling_factor {_MEGAMOE_FLAGS} buffer_policy",
        ignored=_MEGAMOE_SIZES,
        winner=Winner.NONE,
    ),
}
