# SPDX-License-Identifier: Apache-2.0
"""Which layouts are valid for a model."""

import dataclasses

from aicjax._results import InputError
from aicjax.models.families import FAMILIES
from aicjax.models.model import ModelConfig
from aicjax.models.parallel import Parallel
from aicjax.models.quantisation import Quantisation

ACTIVATION_TP = (1, 2, 4, 8)  # tensor-parallel sizes with an activation coefficient; beyond the last, the last

_BLOCKED_EXPERTS = ("MOE", "QWEN3VL_MOE", "HYBRIDMOE", "STEP3P7", "GENERIC")  # cut whole if block-scaled
_DEFAULT_BLOCK = 128


def check_parallel(model: ModelConfig, parallel: Parallel, backend: str) -> None:
    """Refuse a layout the engine could not run, before anything is computed.

    Raises:
        InputError: A size is not a positive integer; the heads do not divide by TP; the attention and expert widths
            differ; fewer experts than expert ranks; TP has no activation coefficient; context parallelism where
            it does not exist.
    """
    for size in dataclasses.fields(Parallel):
        value = getattr(parallel, size.name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(size.name, value, "a positive integer")
    if model.num_heads % parallel.tp:
        raise InputError("tp", parallel.tp, f"a divisor of the {model.num_heads} query heads of {model.name}")
    if min(parallel.tp, ACTIVATION_TP[-1]) not in ACTIVATION_TP:
        raise InputError("tp", parallel.tp, f"one of {list(ACTIVATION_TP)}, or more than {ACTIVATION_TP[-1]}")
    if model.is_moe or parallel.moe_tp * parallel.moe_ep > 1:
        _check_experts(model, parallel)
    if parallel.cp > 1:
        _check_context_parallel(model, parallel, backend)


def check_expert_blocks(model: ModelConfig, parallel: Parallel, quantisation: Quantisation) -> None:
    """Refuse experts whose share on a GPU is not a whole number of scaled blocks.

    Raises:
        InputError: `moe_tp` cuts a block of block-scaled weights.
    """
    if quantisation.moe != "fp8_block" or model.family not in _BLOCKED_EXPERTS:
        return
    block, size = next(iter(model.checkpoint.weight_block), _DEFAULT_BLOCK), model.moe_intermediate_size
    if size // parallel.moe_tp % block:
        raise InputError(
            "moe_tp",
            parallel.moe_tp,
            f"one that cuts the {size}-wide experts of {model.name} into whole weight blocks of {block}",
        )


def _check_experts(model: ModelConfig, parallel: Parallel) -> None:
    attention, experts = parallel.tp * parallel.dp * parallel.cp, parallel.moe_tp * parallel.moe_ep
    if attention != experts:
        raise InputError(
            "parallel",
            parallel.label,
            f"of one width (tp x dp x cp = moe_tp x moe_ep), where tp x dp x cp = {parallel.tp} x {parallel.dp} x "
            f"{parallel.cp} = {attention} and moe_tp x moe_ep = {parallel.moe_tp} x {parallel.moe_ep} = {experts}",
        )
    if model.is_moe and model.num_experts < parallel.moe_ep:
        raise InputError("moe_ep", parallel.moe_ep, f"at most the {model.num_experts} experts of {model.name}")


def _check_context_parallel(model: ModelConfig, parallel: Parallel, backend: str) -> None:
    if backend not in FAMILIES[model.family].context_parallel_backends:
        raise InputError("cp", parallel.cp, f"1 for {model.architecture} on {backend}")
    if parallel.tp != 1 or parallel.dp != 1:
        raise InputError("cp", parallel.cp, f"1 unless tp = dp = 1 (tp = {parallel.tp}, dp = {parallel.dp})")
