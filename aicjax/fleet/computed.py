# SPDX-License-Identifier: Apache-2.0
"""Replica profiles computed from a GPU, a model and how it is served.

An iteration reads the weights and the context of the running requests at a share of the memory bandwidth; prompt
arithmetic runs at the peak of the GPU, a lower bound. Communication is left out: profiles of the engine have it.
"""

import math
from dataclasses import dataclass

from aicjax._names import counted
from aicjax._results import InputError, NoFeasible
from aicjax._units import GIB
from aicjax.fleet.expert_times import expert_layer_s, reference_expert_layer_s
from aicjax.fleet.fleet_constants import FleetConstants
from aicjax.fleet.gpu_facts import Gpu
from aicjax.fleet.model_facts import ModelFacts
from aicjax.fleet.power import PowerLaw
from aicjax.fleet.profile import Profile
from aicjax.fleet.rules import SANE, Rules

_FORMATS = {2.0: "fp16", 1.0: "fp8", 0.5: "int4"}


@dataclass(frozen=True)
class Serving:
    """How a replica serves.

    Attributes:
        tp: GPUs that share attention.
        ep: GPUs that share the experts, when more than `tp`: attention then runs in `ep / tp` copies.
        dtype_bytes: Bytes of a weight and of a cached value.
        chunk_tokens: Prompt tokens of an iteration.
        block_tokens: Tokens of a KV block.
        max_slots: Most requests that run; None for no limit but room.
        mean_tokens: Context of a running request for which the profile is made.
        memory_share: Share of the memory for weights, buffers and KV cache.
    """

    tp: int = 1
    ep: int = 1
    dtype_bytes: float = 2.0
    chunk_tokens: int = 512
    block_tokens: int = 16
    max_slots: int | None = None
    mean_tokens: int = 2048
    memory_share: float = 0.90

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("tp", "ep", "chunk_tokens", "block_tokens", "mean_tokens")}
        for argument, value in counts.items():
            if not (isinstance(value, int) and value >= 1):
                raise InputError(argument, value, "an integer, 1 or more")
        if self.ep > self.tp and self.ep % self.tp:
            raise InputError("ep", self.ep, f"a multiple of tp ({self.tp}) where it is more")
        if self.max_slots is not None and self.max_slots < 1:
            raise InputError("max_slots", self.max_slots, "1 or more, or None")
        if not 0 < self.dtype_bytes <= 4:
            raise InputError("dtype_bytes", self.dtype_bytes, "above 0 and at most 4")
        if not 0 < self.memory_share <= 1:
            raise InputError("memory_share", self.memory_share, "above 0 and at most 1")

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return max(self.tp, self.ep)

    @property
    def format(self) -> str:
        """Name of the number format."""
        return _FORMATS.get(self.dtype_bytes, f"{self.dtype_bytes}b")


def computed_profile(
    gpu: Gpu, model: ModelFacts, serving: Serving, constants: FleetConstants, rules: Rules = SANE
) -> Profile:
    """The profile of one replica.

    Args:
        gpu: The GPU.
        model: The model.
        serving: How it is served.
        constants: Share of the bandwidth, fixed time of a layer, shares of power.
        rules: `whole_model_kv` and `expert_shortcuts` count as the fleet reference does.

    Raises:
        NoFeasible: The weights leave no room for a KV block; says what is needed and there.
    """
    gpus = serving.tp if rules.expert_shortcuts else serving.gpus
    copies, size = gpus // serving.tp, serving.dtype_bytes
    bandwidth = constants.computed.memory_bandwidth_share * gpu.memory_bandwidth_bytes_per_s
    kv_token = model.kv_bytes_per_token(size)
    kv_share = 1.0 / serving.tp if rules.whole_model_kv else model.kv_share(serving.tp)
    blocks = copies * _kv_blocks(gpu, model, serving, gpus, rules)
    limit = float("inf") if serving.max_slots is None else float(serving.max_slots)
    running = min(blocks // math.ceil(serving.mean_tokens / serving.block_tokens), limit)
    base_s = _weights_s(gpu, model, serving, gpus, running, constants, rules)
    per_sequence_s = serving.mean_tokens * kv_token / bandwidth * kv_share / copies
    peak = gpu.flops_per_s(size)
    token_flops = 2 * ((model.attention_params + model.dense_params) / serving.tp + model.token_expert_params / gpus)
    return Profile(
        base_s=base_s,
        per_sequence_s=per_sequence_s,
        calibration_tokens=float(serving.mean_tokens),
        chunk_tokens=float(serving.chunk_tokens),
        block_tokens=float(serving.block_tokens),
        kv_blocks=float(blocks),
        price_per_hour=gpu.price_per_hour * gpus,
        gpus=float(gpus),
        least_slots=1.0 if rules.whole_model_kv else 0.0,
        max_slots=limit,
        prefill_token_s=token_flops / peak,
        prefill_pair_s=model.attention.pair_flops * model.layers / serving.tp / peak,
        power=PowerLaw(
            idle_w=gpu.power_w * constants.power.idle_share,
            nominal_w=gpu.power_w * constants.power.active_share,
            compute_per_request=2 * model.active_params / gpus / gpu.fp16_flops_per_s / base_s,
            kv_per_request=per_sequence_s / base_s,
            calibration_tokens=float(serving.mean_tokens),
            most_running=float(max(running, 1)),
        ),
        name=f"{gpu.name}/{model.name}/TP{serving.tp}/{serving.format}",
    )


def weight_bytes(model: ModelFacts, serving: Serving, gpus: int) -> float:
    """Weights on each GPU: experts divided by all of them, the rest by tp."""
    rest = model.params - model.expert_params
    return (rest / serving.tp + model.expert_params / gpus) * serving.dtype_bytes


def _kv_blocks(gpu: Gpu, model: ModelFacts, serving: Serving, gpus: int, rules: Rules) -> int:
    """KV blocks that a GPU has room for."""
    room = math.floor(gpu.memory_bytes * serving.memory_share)
    kv_token = model.kv_bytes_per_token(serving.dtype_bytes)
    if not rules.whole_model_kv:
        room = min(room, gpu.memory_bytes - gpu.other_memory_bytes)
        kv_token *= model.kv_share(serving.tp)
    room -= gpu.nccl_bytes(gpus)
    needed = weight_bytes(model, serving, gpus)
    blocks = math.floor(max(0.0, room - needed) / (kv_token * serving.block_tokens))
    if blocks == 0 and not rules.whole_model_kv:
        raise NoFeasible(
            f"{model.name} in {serving.format} does not fit: each of {counted(gpus, 'GPU')} ({gpu.name}) needs "
            f"{needed / GIB:.1f} GiB for weights and has {max(room, 0) / GIB:.1f} GiB for them and the KV cache."
        )
    return blocks


def _weights_s(
    gpu: Gpu,
    model: ModelFacts,
    serving: Serving,
    gpus: int,
    running: float,
    constants: FleetConstants,
    rules: Rules,
) -> float:
    """Time of an iteration without the context of its requests; experts as `running` of them take them."""
    numbers, size = constants.computed, serving.dtype_bytes
    read = model.attention_params + model.dense_params + model.head_params
    experts_s = 0.0
    if model.experts and rules.expert_shortcuts:
        read = model.attention_params
        experts_s = model.layers * reference_expert_layer_s(model, gpu, size, numbers)
    elif model.experts:
        experts_s = model.expert_layers * expert_layer_s(model, gpu, size, max(running, 1.0), numbers) / gpus
    bandwidth = numbers.memory_bandwidth_share * gpu.memory_bandwidth_bytes_per_s
    return experts_s + read * size / serving.tp / bandwidth + numbers.memory_latency_s * model.layers
