# SPDX-License-Identifier: Apache-2.0
"""The operators and the KV cache of a model in a layout, from its family."""

from typing import TypeVar

from aicjax._results import InputError, UnsupportedModel
from aicjax.models.checks import check_expert_blocks, check_parallel
from aicjax.models.families import FAMILIES
from aicjax.models.kvcache import KvCache
from aicjax.models.large_ep import LargeEp, check_large_ep
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation
from aicjax.ops.records import OpLists

_Hook = TypeVar("_Hook")


def op_lists(
    model: ModelConfig,
    parallel: Parallel,
    quantisation: Quantisation,
    backend: str,
    nextn: int = 0,
    large_ep: LargeEp | None = None,
    mega_moe: bool = False,
) -> OpLists:
    """Operators of one prefill and of one decode step, per GPU, in order.

    Args:
        model: The model.
        parallel: Layout of the worker.
        quantisation: Number formats.
        backend: `trtllm`, `vllm` or `sglang`.
        nextn: Draft tokens per step; a decode step then does the work of `layers + nextn` layers.
        large_ep: How experts over many GPUs exchange tokens; None for an exchange by ordinary collectives.
        mega_moe: Whether dispatch, experts and combine run in one kernel instead.

    Raises:
        InputError: The layout, the depth or the exchange is not valid.
        UnsupportedModel: The family has no operator list.

    Examples:
        >>> from aicjax import load_model, load_system, resolve_quantisation
        >>> model = load_model("Qwen/Qwen3-8B")
        >>> formats = resolve_quantisation(model, load_system("h200_sxm"), "vllm", "0.24.0")
        >>> lists = op_lists(model, Parallel(tp=2), formats, "vllm")
        >>> next(op for op in lists.generation if op.name == "generation_qkv_gemm")
        Gemm(name='generation_qkv_gemm', scale=36.0, n=3072, k=4096, quant='bfloat16', ...)
    """
    check_parallel(model, parallel, backend)
    check_expert_blocks(model, parallel, quantisation)
    if not isinstance(nextn, int) or nextn < 0:
        raise InputError("nextn", nextn, "an integer, 0 or more")
    family = FAMILIES[model.family]
    if mega_moe:
        if family.mega_op_lists is None:
            raise InputError("mega_moe", mega_moe, f"False for {model.name}")
        return family.mega_op_lists(model, parallel, quantisation, backend, nextn)
    if large_ep is None:
        return _priced(model, family.op_lists)(model, parallel, quantisation, backend, nextn)
    if family.large_op_lists is None:
        able = [family.name for family in FAMILIES.values() if family.large_op_lists is not None]
        raise InputError("large_ep", large_ep, f"None for {model.name} (only families {', '.join(able)})")
    check_large_ep(model, parallel, backend, large_ep)
    return family.large_op_lists(model, parallel, quantisation, backend, nextn, large_ep)


def kv_cache(
    model: ModelConfig, parallel: Parallel, quantisation: Quantisation, backend: str, nextn: int = 0
) -> KvCache:
    """KV cache of one sequence on one GPU; arguments and errors as `op_lists`."""
    return _priced(model, FAMILIES[model.family].kv_cache)(model, parallel, quantisation, backend, nextn)


def _priced(model: ModelConfig, hook: _Hook | None) -> _Hook:
    if hook is None:
        able = ", ".join(family.name for family in FAMILIES.values() if family.op_lists is not None)
        raise UnsupportedModel(
            f"{model.name}: architecture {model.architecture} (family {model.family}) has no operator list; "
            f"families with one: {able}."
        )
    return hook
