# SPDX-License-Identifier: Apache-2.0
"""How a user states replicas: a preset, measured constants, an entry of the catalogue or a deployment of an engine."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from aicjax._results import InputError
from aicjax.explore.request import RECOMMENDING, Backend, Count, DatabaseMode
from aicjax.explore.request_errors import Strict

Positive = Annotated[float, Field(ge=1e-6, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]

DTYPE_BYTES = (2.0, 1.0, 0.5)
FORMS = (
    "a preset such as a100, or fields with commas between: base_ms=8,per_sequence_ms=0.65 (measured constants), "
    "hardware=h100,model=llama-3.1-70b,tp=8 (catalogue) or system=h200_sxm,model=Qwen/Qwen3-32B-FP8,tp=2 (engine)"
)


class PresetReplica(Strict):
    """A published profile by name.

    Attributes:
        preset: Its name, for example `a100`.
        price_per_hour: In place of its own [USD/h of the replica].
    """

    preset: str
    price_per_hour: NotNegative | None = None


class ManualReplica(Strict):
    """Measured constants: an iteration with n sequences of the calibration length takes base + n per_sequence.

    Attributes:
        base_ms: Time of an iteration without sequences [ms].
        per_sequence_ms: What one more sequence of `calibration_tokens` adds [ms].
        calibration_tokens: Length of the sequences that were measured.
        chunk_tokens: Prompt tokens that one iteration takes.
        block_tokens, kv_blocks: Size and count of the KV cache blocks.
        max_slots: Most sequences of `calibration_tokens` that run at once.
        gpus: GPUs of the replica; `price_per_hour` is of all of them [USD/h].
        idle_w, nominal_w: Power of one GPU without load and at full load [W]; both or none.
        power_slope, power_midpoint: Logistic law of the power over log2 of the running sequences; a straight line when
            the slope is 0.
    """

    base_ms: Positive
    per_sequence_ms: NotNegative
    calibration_tokens: Count = 8192
    chunk_tokens: Count = 512
    block_tokens: Count = 16
    kv_blocks: Count = 65536
    max_slots: Count = 128
    gpus: Count = 1
    price_per_hour: NotNegative = 0.0
    idle_w: Positive | None = None
    nominal_w: Positive | None = None
    power_slope: NotNegative = 0.0
    power_midpoint: float = 0.0
    name: str = "manual"

    @model_validator(mode="after")
    def _check_power(self) -> Self:
        if (self.idle_w is None) != (self.nominal_w is None):
            raise InputError("nominal_w", self.nominal_w, "given together with idle_w")
        if self.idle_w is not None and self.nominal_w is not None and self.nominal_w < self.idle_w:
            raise InputError("nominal_w", self.nominal_w, f"at least idle_w = {self.idle_w:g}")
        return self


class ComputedReplica(Strict):
    """A GPU and a model of the catalogue, by roofline.

    Attributes:
        hardware, model: Names in the catalogue.
        tp: GPUs of the tensor-parallel group, which is the replica.
        dtype_bytes: Bytes of a weight and of a KV value: 2, 1 or 0.5.
        chunk_tokens, block_tokens, max_slots: As of measured constants; no cap on the slots when 0.
        mean_tokens: Mean length at which the time of a sequence is taken.
        memory_utilization: Share of GPU memory that weights and KV cache may use.
        price_per_hour: Of the replica, in place of the catalogue's price of its GPUs [USD/h].
    """

    hardware: str
    model: str
    tp: Count = 1
    dtype_bytes: float = 2.0
    chunk_tokens: Count = 512
    block_tokens: Count = 16
    max_slots: Annotated[int, Field(ge=0)] = 0
    mean_tokens: Count = 2048
    memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    price_per_hour: NotNegative | None = None

    @model_validator(mode="after")
    def _check_bytes(self) -> Self:
        if self.dtype_bytes not in DTYPE_BYTES:
            raise InputError(
                "dtype_bytes", self.dtype_bytes, f"one of {', '.join(f'{each:g}' for each in DTYPE_BYTES)}"
            )
        return self


class EngineReplica(Strict):
    """A deployment whose step times come from the measured tables of this project.

    Attributes:
        model: Hugging Face name or local directory.
        system: GPU system.
        backend: Engine.
        tp, pp, dp, moe_tp, moe_ep: Layout; missing expert sizes are inferred.
        batch_size: Most requests in flight of one attention rank.
        database_mode: What answers an operator, as in estimates.
        price_per_gpu_hour: [USD/h]; 0 when not stated.
        gemm_quant_mode, moe_quant_mode, kvcache_quant_mode, fmha_quant_mode, comm_quant_mode: Number formats; those of
            the checkpoint when None.
    """

    model: str
    system: str
    backend: Backend = "trtllm"
    backend_version: str | None = None
    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    moe_tp: Count | None = None
    moe_ep: Count | None = None
    batch_size: Count = 128
    database_mode: DatabaseMode = RECOMMENDING
    constants: str | None = None
    price_per_gpu_hour: NotNegative = 0.0
    gemm_quant_mode: str | None = None
    moe_quant_mode: str | None = None
    kvcache_quant_mode: str | None = None
    fmha_quant_mode: str | None = None
    comm_quant_mode: str | None = None


Replica = PresetReplica | ManualReplica | ComputedReplica | EngineReplica


def parsed(value: object) -> object:
    """The replica that a text or a table of fields states; other values as they are.

    Raises:
        InputError: Neither a name nor the fields of one of the four kinds.
    """
    if isinstance(value, str):
        value = _fields(value)
    if not isinstance(value, dict):
        return value
    return _kind(value)(**value)


def _fields(text: str) -> dict[str, object]:
    if "=" not in text:
        if not text.strip():
            raise InputError("replica", text, FORMS)
        return {"preset": text.strip()}
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not equals or not name.strip() or not value.strip() for name, equals, value in pairs):
        raise InputError("replica", text, FORMS)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _kind(fields: dict[str, object]) -> type[Strict]:
    by_field = {"preset": PresetReplica, "system": EngineReplica, "hardware": ComputedReplica, "base_ms": ManualReplica}
    for name, kind in by_field.items():
        if name in fields:
            return kind
    raise InputError("replica", ",".join(f"{name}={value}" for name, value in fields.items()), FORMS)


ReplicaField = Annotated[Replica, BeforeValidator(parsed)]
