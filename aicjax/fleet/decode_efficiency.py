# SPDX-License-Identifier: Apache-2.0
"""What a decode iteration of a computed profile does: bytes, arithmetic, the roofline it meets, tokens per watt."""

from dataclasses import dataclass
from typing import Literal

from aicjax.fleet.computed import Serving, weight_bytes
from aicjax.fleet.expert_times import experts_taken
from aicjax.fleet.gpu_facts import Gpu
from aicjax.fleet.model_facts import ModelFacts
from aicjax.fleet.power import power_w
from aicjax.fleet.profile import Profile, iteration_s
from aicjax.fleet.rules import SANE, Rules


@dataclass(frozen=True)
class DecodeEfficiency:
    """One iteration with every request decoding, per GPU.

    Attributes:
        running: Requests.
        iteration_s: Time.
        tokens_per_s: Output tokens of the replica per second.
        read_bytes: Weights and context read.
        kv_share: Share of the context in that.
        flops: Arithmetic.
        flops_per_byte: Arithmetic intensity.
        bound: What limits it at peak rates.
        power_w: Power of a GPU.
        tokens_per_joule: Output tokens per second and watt, of a GPU's power.
    """

    running: int
    iteration_s: float
    tokens_per_s: float
    read_bytes: float
    kv_share: float
    flops: float
    flops_per_byte: float
    bound: Literal["memory", "compute"]
    power_w: float
    tokens_per_joule: float


def decode_efficiency(
    gpu: Gpu,
    model: ModelFacts,
    serving: Serving,
    profile: Profile,
    running: int,
    mean_tokens: int | None = None,
    rules: Rules = SANE,
) -> DecodeEfficiency:
    """The record of one iteration.

    Args:
        gpu, model, serving: What the profile was computed from.
        profile: The profile; it has a power law.
        running: Requests that decode, 1 or more.
        mean_tokens: Their mean context; that of the profile where None.
        rules: `expert_shortcuts` streams all experts and counts the arithmetic of attention by KV heads.
    """
    assert profile.power is not None
    gpus, context = int(profile.gpus), serving.mean_tokens if mean_tokens is None else mean_tokens
    kv_bytes = running * model.kv_bytes_per_token(serving.dtype_bytes) * context
    if rules.expert_shortcuts:
        weights, kv_bytes = weight_bytes(model, serving, gpus), kv_bytes / serving.tp
        pair_flops = 2.0 * model.attention.kv_values
    else:
        weights = _read_weight_bytes(model, serving, gpus, running)
        kv_bytes *= model.kv_share(serving.tp) / (gpus // serving.tp)
        pair_flops = model.attention.pair_flops
    flops = (2 * model.active_params * running + pair_flops * context * running * model.layers) / gpus
    time_s = float(iteration_s(profile, running, context))
    watts = float(power_w(profile.power, running, context))
    read = weights + kv_bytes
    peak_intensity = gpu.fp16_flops_per_s / gpu.memory_bandwidth_bytes_per_s
    return DecodeEfficiency(
        running=running,
        iteration_s=time_s,
        tokens_per_s=running / time_s,
        read_bytes=read,
        kv_share=kv_bytes / read,
        flops=flops,
        flops_per_byte=flops / read,
        bound="compute" if flops / read > peak_intensity else "memory",
        power_w=watts,
        tokens_per_joule=running / time_s / watts,
    )


def _read_weight_bytes(model: ModelFacts, serving: Serving, gpus: int, tokens: float) -> float:
    """Weights that an iteration reads: of the experts those that some token takes, no input embedding."""
    shared = model.attention_params + model.dense_params + model.head_params
    taken = experts_taken(model, tokens) / model.experts * model.expert_params if model.experts else 0.0
    return (shared / serving.tp + taken / gpus) * serving.dtype_bytes
