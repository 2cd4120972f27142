# SPDX-License-Identifier: Apache-2.0
"""What `aicjax query` can ask: operators, and the flags of their fields and coordinates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aicjax import quant

TOKENS = {"tokens": "tokens"}
CONTEXT = {"batch": "batch", "length": "isl", "prefix": "prefix"}
GENERATION = {"batch": "batch", "length": "kv_len"}
SEQUENCES = {"batch": "batch", "length": "sequence"}


@dataclass(frozen=True)
class Flag:
    """A flag of the command line.

    Attributes:
        names: Its spellings.
        text: Its help.
        default: What it is when not given; the default of the operator's field, or none, when None.
        role: Operator family whose number formats it takes; empty for anything else.
        least: Least number it takes.
    """

    names: tuple[str, ...]
    text: str
    default: str | None = None
    role: str = ""
    least: int = 1


@dataclass(frozen=True)
class Command:
    """One operator on the command line.

    Attributes:
        name: The command.
        record: Class of the operator in `aicjax.ops.records`.
        text: Its help.
        points: Coordinates of `operator_latency`, and the flag of each in `FLAGS`.
        fields: Fields of the record that are flags; where there are none, the operators are those of a model.
        role: Operator family whose number formats the field `quant` takes.
        flags: Flags that differ from `FLAGS`.
    """

    name: str
    record: str
    text: str
    points: Mapping[str, str]
    fields: tuple[str, ...] = ()
    role: str = "gemm"
    flags: Mapping[str, Flag] = field(default_factory=dict)

    def flag(self, name: str) -> Flag:
        """The flag of a field or coordinate."""
        if name == "quant":
            return Flag(("--quant-mode",), "Number format.", next(iter(quant.BY_ROLE[self.role])), self.role)
        return self.flags.get(name) or FLAGS[name]


FLAGS = {
    "tokens": Flag(("--tokens", "-m"), "Tokens of the pass."),
    "batch": Flag(("--batch-size", "-b"), "Requests."),
    "isl": Flag(("--isl", "-s"), "New prompt tokens of a request."),
    "prefix": Flag(("--prefix",), "Cached prompt tokens of a request.", "0", least=0),
    "kv_len": Flag(("--kv-len", "-s"), "Tokens in the cache of a request."),
    "sequence": Flag(("--sequence", "-s"), "Tokens of a sequence."),
    "n": Flag(("-n",), "Output features."),
    "k": Flag(("-k",), "Input features."),
    "kv_quant": Flag(("--kvcache-quant-mode",), "Number format of the KV cache.", "bfloat16", "kvcache"),
    "fmha_quant": Flag(("--fmha-quant-mode",), "Number format of attention.", "bfloat16", "fmha"),
    "gemm_quant": Flag(("--gemm-quant-mode",), "Number format of projections.", "bfloat16", "gemm"),
    "num_heads": Flag(("--num-heads",), "Query heads of one GPU."),
    "num_kv_heads": Flag(("--num-kv-heads",), "KV heads of one GPU."),
    "native_heads": Flag(("--native-heads",), "Query heads of the model."),
    "head_size": Flag(("--head-size",), "Elements of a head.", "128"),
    "window": Flag(("--window",), "Sliding window in tokens; 0 is none.", least=0),
    "cp": Flag(("--cp-size",), "Context-parallel GPUs that share a prompt."),
    "qk_norm": Flag(("--qk-norm/--no-qk-norm",), "Whether queries and keys are normalised."),
    "partial_rotary_factor": Flag(("--rotary",), "Share of a head that is rotated.", least=0),
    "hidden_size": Flag(("--hidden-size",), "Elements of a token."),
    "vocab_size": Flag(("--vocab-size",), "Rows of the table."),
    "bytes_per_token": Flag(("--bytes-per-token",), "Bytes read and written for a token.", least=0),
    "tp": Flag(("--tp",), "GPUs of the all-reduce."),
    "pp": Flag(("--pp",), "Pipeline stages.", "2"),
    "operation": Flag(("--operation",), "all_gather, all_reduce, reduce_scatter or alltoall."),
    "elements_per_token": Flag(("--elements",), "Elements of a token.", "1", least=0),
    "num_gpus": Flag(("--num-gpus",), "GPUs of the collective."),
    "inter_size": Flag(("--inter-size",), "Width of an expert."),
    "topk": Flag(("--topk",), "Experts of a token."),
    "num_experts": Flag(("--num-experts",), "Routed experts of a layer."),
    "num_slots": Flag(("--num-slots",), "Places for experts, copies included."),
    "moe_tp": Flag(("--moe-tp-size", "--etp"), "Expert tensor parallel GPUs.", "1"),
    "moe_ep": Flag(("--moe-ep-size", "--ep"), "Expert parallel GPUs.", "1"),
    "attention_dp": Flag(("--attention-dp-size", "--dp"), "Attention ranks that send tokens.", "1"),
    "attention_tp": Flag(("--attention-tp-size",), "GPUs that share the tokens of a rank.", "1"),
    "attention_cp": Flag(("--attention-cp-size",), "Context-parallel GPUs of attention."),
    "distribution": Flag(("--distribution",), "How tokens spread over experts.", "power_law_1.2"),
    "gated": Flag(("--gated/--no-gated",), "Whether experts have a gate."),
    "context": Flag(("--context/--generation",), "Prefill or decode."),
    "pre": Flag(("--pre/--post",), "Before or after what it belongs to.", "pre"),
    "eplb": Flag(("--eplb/--no-eplb",), "Whether a load balancer copies experts."),
    "attention_reduced": Flag(("--reduced/--not-reduced",), "Whether attention was reduced already."),
    "phase": Flag(("--phase",), "context or generation.", "context"),
    "comm_backend": Flag(("--comm-backend",), "Library that exchanges tokens: deepep_ht, deepep_ll, ..."),
    "comm_dtype": Flag(("--comm-dtype",), "Number format in which tokens travel.", "default"),
    "nodes": Flag(("--nodes",), "Nodes that the experts span.", "1"),
    "sms": Flag(("--sms",), "Multiprocessors of the exchange; 0 where it takes none.", "0", least=0),
    "kernel": Flag(("--kernel",), "Kernel, as the tables name it."),
    "d_model": Flag(("--d-model",), "Width of the model."),
    "d_state": Flag(("--d-state",), "State of a head and element.", "128"),
    "d_conv": Flag(("--d-conv",), "Width of the convolution.", "4"),
    "head_dim": Flag(("--head-dim",), "Elements of a head.", "64"),
    "n_groups": Flag(("--n-groups",), "Groups that share a state input.", "8"),
    "chunk_size": Flag(("--chunk-size",), "Tokens of a chunk of the scan.", "128"),
    "num_k_heads": Flag(("--num-k-heads",), "Key heads of one GPU."),
    "head_k_dim": Flag(("--head-k-dim",), "Elements of a key head.", "128"),
    "num_v_heads": Flag(("--num-v-heads",), "Value heads of one GPU."),
    "head_v_dim": Flag(("--head-v-dim",), "Elements of a value head.", "128"),
    "state_dtype": Flag(("--state-dtype",), "Number format of the state."),
    "draft_tokens": Flag(("--draft-tokens",), "Tokens of a sequence to verify.", least=0),
    "part": Flag(("--part",), "pre, post or both.", "both"),
    "hc_mult": Flag(("--streams",), "Residual streams.", "4"),
    "sinkhorn_iters": Flag(("--sinkhorn-iters",), "Rounds that balance the mixing matrix.", "20"),
}
_ATTENTION = ("num_heads", "num_kv_heads", "head_size", "window", "kv_quant")
_EXPERTS = ("hidden_size", "inter_size", "topk", "num_experts")
_DELTA = ("d_model", "d_conv", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
_BLOCK = ("num_heads", "native_heads", "kv_quant", "fmha_quant", "gemm_quant")
_STATE_SPACE = ("d_model", "d_state", "d_conv", "num_heads", "head_dim", "n_groups", "chunk_size")
_RECURRENT = {"sequence": Flag(("--sequence", "-s"), "New tokens of a request.", "1")}

COMMANDS = (
    Command("gemm", "Gemm", "Matrix product of m tokens by an n x k weight.", TOKENS, ("n", "k", "quant")),
    Command(
        "context-attention", "ContextAttention", "Causal attention of a prefill.", CONTEXT,
        (*_ATTENTION, "fmha_quant", "qk_norm", "cp"),
    ),
    Command("generation-attention", "GenerationAttention", "Attention of a decode step.", GENERATION, _ATTENTION),
    Command(
        "encoder-attention", "EncoderAttention", "Attention without a causal mask.", SEQUENCES,
        ("num_heads", "head_size", "fmha_quant", "partial_rotary_factor"),
    ),
    Command(
        "allreduce", "AllReduce", "Tensor-parallel all-reduce of the engine's own kernel.", TOKENS,
        ("hidden_size", "tp", "quant"), role="comm",
    ),
    Command(
        "nccl", "Nccl", "NCCL collective.", TOKENS,
        ("operation", "elements_per_token", "num_gpus", "quant"), role="comm",
    ),
    Command(
        "elementwise", "Elementwise", "Memory-bound operator: norms, activations, residual adds.", TOKENS,
        ("bytes_per_token",),
    ),
    Command("embedding", "Embedding", "Look-up of token vectors.", TOKENS, ("vocab_size", "hidden_size")),
    Command("p2p", "P2P", "Hand-over between pipeline stages.", TOKENS, ("hidden_size", "pp")),
    Command(
        "moe", "Moe", "Routed experts of a layer.", TOKENS,
        (*_EXPERTS, "moe_tp", "moe_ep", "attention_dp", "quant", "distribution", "gated"), role="moe",
    ),
    Command(
        "moe-dispatch", "MoeDispatch", "Exchange of tokens around routed experts, as collectives.", TOKENS,
        ("hidden_size", "topk", "num_experts", "moe_tp", "moe_ep", "attention_dp", "pre", "quant", "attention_cp",
         "context", "attention_reduced"), role="moe",
    ),
    Command(
        "all-to-all", "MoeAllToAll", "Exchange of tokens in large expert parallelism.", TOKENS,
        ("phase", "comm_backend", "comm_dtype", "hidden_size", "topk", "num_experts", "moe_ep", "nodes", "sms",
         "attention_tp"),
        flags={"phase": Flag(("--phase",), "prepare, dispatch or combine.", "dispatch")},
    ),
    Command(
        "expert-compute", "MoeExpertCompute", "Experts of one GPU in large expert parallelism.", TOKENS,
        (*_EXPERTS, "moe_ep", "attention_dp", "quant", "distribution", "phase", "num_slots", "gated", "eplb"),
        role="moe",
    ),
    Command(
        "megamoe", "MegaMoe", "Dispatch, experts and combine in one kernel.", TOKENS,
        (*_EXPERTS, "moe_ep", "quant", "distribution", "phase"), role="moe",
    ),
    Command(
        "context-mla", "ContextMla", "Latent attention of a prefill.", CONTEXT,
        ("num_heads", "kv_quant", "fmha_quant", "cp"),
    ),
    Command(
        "generation-mla", "GenerationMla", "Latent attention of a decode step.", GENERATION, ("num_heads", "kv_quant")
    ),
    Command("mla-bmm", "MlaBmm", "Absorbed product of latent attention.", TOKENS, ("num_heads", "quant", "pre")),
    Command(
        "context-mla-block", "MlaModuleContext", "Latent attention of a prefill with its projections.", CONTEXT, _BLOCK
    ),
    Command(
        "generation-mla-block", "MlaModuleGeneration", "Latent attention of a decode step with its projections.",
        GENERATION, _BLOCK,
    ),
    Command(
        "context-mla-large-ep", "WideEpContextMla", "Latent attention of a prefill beside large expert parallelism.",
        CONTEXT, ("num_heads", "kv_quant", "fmha_quant", "kernel", "cp"),
    ),
    Command(
        "generation-mla-large-ep", "WideEpGenerationMla",
        "Latent attention of a decode step beside large expert parallelism.", GENERATION,
        ("num_heads", "kv_quant", "fmha_quant", "kernel"),
    ),
    Command("context-dsa", "DsaContext", "Sparse latent attention (DSA) of a prefill, as a model has it.", CONTEXT),
    Command("generation-dsa", "DsaGeneration", "Sparse latent attention (DSA) of a decode step.", GENERATION),
    Command("context-dsv4", "Dsv4Context", "Compressed sparse attention of a prefill, as a model has it.", CONTEXT),
    Command("generation-dsv4", "Dsv4Generation", "Compressed sparse attention of a decode step.", GENERATION),
    Command("context-msa", "MsaContext", "Block-sparse attention (MSA) of a prefill, as a model has it.", CONTEXT),
    Command("generation-msa", "MsaGeneration", "Block-sparse attention (MSA) of a decode step.", GENERATION),
    Command("mamba2", "Mamba2", "Mamba2 kernel.", SEQUENCES, ("kernel", "phase", *_STATE_SPACE), flags=_RECURRENT),
    Command(
        "gdn", "Gdn", "Gated delta-rule kernel.", SEQUENCES, ("kernel", "phase", *_DELTA, "state_dtype"),
        flags=_RECURRENT,
    ),
    Command(
        "kda", "Kda", "Kimi delta attention kernel.", SEQUENCES, ("kernel", "phase", *_DELTA, "draft_tokens"),
        flags={**_RECURRENT, "phase": Flag(("--phase",), "context, generation or verify.", "context")},
    ),
    Command(
        "mhc", "Mhc", "Hyper-connections of residual streams.", TOKENS,
        ("part", "hc_mult", "hidden_size", "sinkhorn_iters", "quant"),
    ),
)  # fmt: skip
