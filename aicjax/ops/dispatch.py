# SPDX-License-Identifier: Apache-2.0
"""Exchange of tokens around a fused mixture, as the collectives that each framework runs there.

Attention is sharded over `A = N / dp` GPUs of the `N` that hold the experts. What attention leaves unreduced, and what
the ranks of attention data parallelism have to share, is reduced, gathered or scattered before and after the experts.
A collective of the tokens of all `dp` ranks carries `dp` times the elements a token.
"""

from aicjax import quant
from aicjax.hardware import System
from aicjax.ops.records import AllReduce, MoeAllToAll, MoeDispatch, Nccl

COMPRESSING_SM = 100  # first compute capability whose TensorRT-LLM kernels gather tokens in the experts' format
COMPRESSED = ("nvfp4", "fp8", "fp8_block")  # formats that they gather in
ACTIVATION = "half"  # format of tokens elsewhere
EXCHANGE_NODE_GPUS = 72  # a node that is a whole rack exchanges tokens over NVLink, without collectives
EXCHANGE_KERNEL = "nvlink_one_sided"
EXCHANGE_NODE_RANKS = 4  # ranks that the exchange tables count as one node

Exchange = AllReduce | Nccl | MoeAllToAll


def expand_dispatch(record: MoeDispatch, system: System, backend: str) -> tuple[Exchange, ...]:
    """Operators, under the record's name and scale, whose times add up to the exchange; none when nothing is sent.

    Args:
        record: The exchange before or after the experts.
        system: The hardware.
        backend: Serving framework.
    """
    if backend == "vllm":
        return _vllm(record)
    return _sglang(record) if backend == "sglang" else _trtllm(record, system)


def _vllm(record: MoeDispatch) -> tuple[Exchange, ...]:
    """Both exchanges may be due: the all-reduce of attention, and the tokens of the other ranks."""
    reduced = record.pre and record.attention_reduced
    parts = [_all_reduce(record)] if _attention_tp(record) > 1 and not reduced else []
    return (*parts, *([_shared(record)] if record.attention_dp > 1 else []))


def _sglang(record: MoeDispatch) -> tuple[Exchange, ...]:
    """Tokens are scattered over the attention GPUs before all ranks gather them, and the reverse."""
    attention_tp, gpus, dp = _attention_tp(record), _gpus(record), record.attention_dp
    if attention_tp > 1 and dp > 1:
        inner, outer = (attention_tp, 1), (gpus, dp)
        first, second = (inner, outer) if record.pre else (outer, inner)
        return _collective(record, "reduce_scatter", *first), _collective(record, "all_gather", *second)
    if record.attention_cp > 1 and record.context:
        return (_collective(record, _sharing(record), gpus, 1),)
    if record.attention_cp > 1:
        return () if record.pre else (_all_reduce(record),)
    if attention_tp > 1:
        return (_all_reduce(record),)
    return (_shared(record),) if dp > 1 else ()


def _trtllm(record: MoeDispatch, system: System) -> tuple[Exchange, ...]:
    """Attention is either tensor or data parallel; the newest kernels gather compressed tokens."""
    sm = system.sm_version or 0
    compressing = sm == COMPRESSING_SM if record.compressed_on_one_sm else sm >= COMPRESSING_SM
    if compressing and record.attention_dp > 1:
        if record.moe_tp == 1 and system.gpus_per_node >= EXCHANGE_NODE_GPUS:
            return (_nvlink(record),)
        return (_shared(record, _gathered_share(record) if record.pre else 1.0),)
    if _attention_tp(record) > 1:
        return (_all_reduce(record),)
    return (_shared(record),) if record.attention_dp > 1 else ()


def _gpus(record: MoeDispatch) -> int:
    return record.moe_tp * record.moe_ep


def _attention_tp(record: MoeDispatch) -> int:
    return max(1, _gpus(record) // record.attention_dp)


def _sharing(record: MoeDispatch) -> str:
    """Collective that brings tokens to all GPUs, or back."""
    return "all_gather" if record.pre else "reduce_scatter"


def _gathered_share(record: MoeDispatch) -> float:
    """Size of a token in the experts' format, where it is gathered so, relative to 16 bits."""
    return quant.MOE[record.quant].bytes / quant.COMM[ACTIVATION].bytes if record.quant in COMPRESSED else 1.0


def _all_reduce(record: MoeDispatch) -> AllReduce:
    return AllReduce(record.name, record.scale, record.hidden_size, _gpus(record), record.comm_quant)


def _collective(record: MoeDispatch, operation: str, gpus: int, ranks: int, share: float = 1.0) -> Nccl:
    """Collective of the tokens of `ranks` attention ranks."""
    elements = record.hidden_size * share * ranks
    return Nccl(record.name, record.scale, operation, elements, gpus, record.comm_quant)


def _shared(record: MoeDispatch, share: float = 1.0) -> Nccl:
    """Tokens of all attention ranks, to or from all GPUs of the experts."""
    return _collective(record, _sharing(record), _gpus(record), record.attention_dp, share)


def _nvlink(record: MoeDispatch) -> MoeAllToAll:
    return MoeAllToAll(
        record.name,
        record.scale,
        phase="dispatch" if record.pre else "combine",
        comm_backend=EXCHANGE_KERNEL,
        comm_dtype=record.quant,
        hidden_size=record.hidden_size,
        topk=record.topk,
        num_experts=record.num_experts,
        moe_ep=record.moe_ep,
        nodes=max(1, record.moe_ep // EXCHANGE_NODE_RANKS),
        sms=0,
    )
