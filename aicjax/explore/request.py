# SPDX-License-Identifier: Apache-2.0
"""What a user may ask of a search or of a single estimate, checked before anything is computed."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from aicjax import quant
from aicjax._results import InputError
from aicjax.compat import BY_NAME, Compat, constants_in_force
from aicjax.explore.afd_fields import AfdFields, AfdSearchFields
from aicjax.explore.expert_fields import ExpertFields
from aicjax.explore.grid import DEFAULT, REFERENCE
from aicjax.explore.image_fields import EncodePointFields, EncodePoolFields, ImageFields
from aicjax.explore.load_fields import LoadFields, OpenLoadFields
from aicjax.explore.request_errors import Count, Strict
from aicjax.ops.database import transfer_kinds

Backend = Literal["trtllm", "sglang", "vllm"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)  # in the order in which `auto` tries them
QUANT_ROLES = ("gemm", "moe", "kvcache", "fmha", "comm")
PARALLEL_AXES = ("num_gpu", "tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
CORRECTIONS = {  # fields that replace numbers of `constants.DisaggConstants`
    "prefill_latency_correction": "prefill_latency_correction",
    "decode_latency_correction": "decode_latency_correction",
    "rate_match_prefill_degradation": "prefill_degradation",
    "rate_match_decode_degradation": "decode_degradation",
    "autoscale_ttft_correction_factor": "ttft_correction",
    "encoder_latency_correction": "encoder_latency_correction",
    "rate_match_encoder_degradation": "encoder_degradation",
}

Candidates = Annotated[tuple[Count, ...], Field(min_length=1)] | None
Fraction = Annotated[float, Field(gt=0, le=1)] | None
Factor = Annotated[float, Field(gt=0)] | None
Milliseconds = Annotated[float, Field(gt=0)]
DatabaseMode = Literal["SILICON", "HYBRID", "EMPIRICAL", "SOL"]
RECOMMENDING: DatabaseMode = "HYBRID"  # what recommendations take where nothing else is stated
Words = Annotated[str | None, BeforeValidator(lambda value: ",".join(value) if isinstance(value, list) else value)]


class _Request(ImageFields, ExpertFields, LoadFields, Strict):
    """What searches and estimates share."""

    model_path: str
    system: str = Field(validation_alias=AliasChoices("system", "system_name"))
    decode_system: str | None = Field(
        default=None, validation_alias=AliasChoices("decode_system", "decode_system_name")
    )
    backend_version: str | None = None
    database_mode: DatabaseMode = "SILICON"
    transfer_policy: Words = None
    constants: str | None = None
    compat: Literal["default", "reference"] = "default"
    family: str | None = None
    isl: Count
    osl: Count
    prefix: int = Field(default=0, ge=0)
    nextn: Annotated[int, Field(ge=0)] | Literal["auto"] = 0
    nextn_accepted: float | None = Field(default=None, ge=0)
    free_gpu_memory_fraction: Fraction = None
    max_seq_len: Count | None = None
    attention_backend: str | None = None
    kv_transfer_gb_per_s: Annotated[float, Field(gt=0)] | None = None
    gemm_quant_mode: str | None = None
    moe_quant_mode: str | None = None
    kvcache_quant_mode: str | None = None
    fmha_quant_mode: str | None = None
    comm_quant_mode: str | None = None

    @model_validator(mode="after")
    def _check_shared(self) -> Self:
        transfer_kinds(self.transfer_policy)
        if self.prefix > self.isl:
            raise InputError("prefix", self.prefix, f"at most isl = {self.isl}")
        if self.nextn != 0 and self.nextn_accepted is None:
            raise InputError("nextn_accepted", None, f"given when nextn = {self.nextn}: mean accepted drafts of a step")
        if isinstance(self.nextn, int):
            check_accepted(self.nextn, self.nextn_accepted)
        for role in ("", "prefill_", "decode_"):
            for part in QUANT_ROLES:
                _check_quant(f"{role}{part}_quant_mode", part, getattr(self, f"{role}{part}_quant_mode", None))
        return self

    @property
    def constants_name(self) -> str:
        """The constants in force."""
        return constants_in_force(self.constants, self.compat)

    @property
    def switches(self) -> Compat:
        """Defects of AIConfigurator to follow."""
        return BY_NAME[self.compat]

    def of_role(self, role: str, name: str) -> Any:
        """A setting of one role (`agg`, `prefill`, `decode`): its own where there is one, else the shared one."""
        own = getattr(self, f"{role}_{name}", None)
        return own if own is not None else getattr(self, name)

    def quant_modes(self, role: str) -> dict[str, str]:
        """Number formats stated for a role, by what they are of; those not stated are inferred from the checkpoint."""
        stated = {part: self.of_role(role, f"{part}_quant_mode") for part in QUANT_ROLES}
        return {part: mode for part, mode in stated.items() if mode is not None}


class SearchRequest(_Request, EncodePoolFields, AfdSearchFields):
    """One search over layouts, batches and worker counts.

    Attributes:
        model_path: Hugging Face name or local directory of the model.
        system: GPU system; `decode_system` is that of the decode workers, the same when None.
        total_gpus: GPU budget; needed unless a load target is given.
        backend: `trtllm`, `sglang`, `vllm`, or `auto` for all three.
        backend_version: Version of the measured tables; None is the newest.
        database_mode: How operators without measurements are answered: not at all (`SILICON`), by estimates (`HYBRID`),
            or all operators by estimates (`EMPIRICAL`) or rooflines (`SOL`).
        transfer_policy: What an estimate may borrow from, as in `aicjax.bind`.
        isl, osl: Prompt and output tokens of a request; `prefix` prompt tokens are cached.
        ttft, tpot: Latency limits [ms].
        request_latency: Limit on the whole request [ms]; replaces `tpot` as the limit.
        nextn, nextn_accepted: Draft tokens of a decode step and how many of them are accepted on average.
        strict_sla: Whether rows that miss the limit are dropped before the Pareto front is taken.
        serving_mode: `agg`, `disagg`, `afd` (attention and feed-forward apart), `auto` for the first two, or `all`.
        enable_chunked_prefill: Whether a step may hold part of a prompt.
        target_request_rate, target_concurrency: Load to serve [requests/s], [requests]; at most one of them.
        inclusive_tpot: Whether reports count the first token in the time per output token.
        pareto_sweep: Whether the sweep covers a range of TPOT targets instead of `tpot` alone.
        grid: Name of the candidate lists under `configs/grids/`; when None `full`, or `reference` where `compat` is.
        constants: Name of the constants under `configs/constants/`; when None the default ones, or `reference` where
            `compat` is.
        compat: `reference` follows AIConfigurator 0.12.0 also where it contradicts the model; see `aicjax.compat`.
        family: Family to model an architecture as that is not listed: `GENERIC` for any decoder with grouped-query
            attention.
        agg_*_candidates, prefill_*_candidates, decode_*_candidates: Replace the default lists of a role.
        kv_transfer_gb_per_s: Bandwidth at which a decode worker gets the KV cache of a prompt [1e9 bytes/s]; None for
            no time. The first token counts as delivered then.
        num_gpu_per_replica, max_gpu_per_replica: GPU counts a disaggregated replica may have.
        prefill_max_batch_size, decode_max_batch_size: Largest batches of its workers; None is that of the grid.
        prefill_backend_version, decode_backend_version, prefill_*_quant_mode, decode_*_quant_mode: Of one role, in
            place of the shared one.
        prefill_latency_correction ... autoscale_ttft_correction_factor: Replace the constants of disaggregated serving.
    """

    isl: Count = 4000
    osl: Count = 1000
    total_gpus: Count | None = None
    backend: Literal[Backend, "auto"] = Field(
        default="trtllm", validation_alias=AliasChoices("backend", "backend_name")
    )
    ttft: Milliseconds = 2000.0
    tpot: Milliseconds = 30.0
    request_latency: Milliseconds | None = None
    strict_sla: bool = False
    serving_mode: Literal["auto", "all", "agg", "disagg", "afd"] = "auto"
    enable_chunked_prefill: bool = False
    top_n: Count = 5
    inclusive_tpot: bool = False
    pareto_sweep: bool = True
    target_request_rate: Annotated[float, Field(gt=0)] | None = None
    target_concurrency: Annotated[float, Field(gt=0)] | None = None
    grid: str | None = None

    agg_num_gpu_candidates: Candidates = None
    agg_tp_candidates: Candidates = None
    agg_pp_candidates: Candidates = None
    agg_dp_candidates: Candidates = None
    agg_moe_tp_candidates: Candidates = None
    agg_moe_ep_candidates: Candidates = None
    agg_cp_candidates: Candidates = None
    prefill_num_gpu_candidates: Candidates = None
    prefill_tp_candidates: Candidates = None
    prefill_pp_candidates: Candidates = None
    prefill_dp_candidates: Candidates = None
    prefill_moe_tp_candidates: Candidates = None
    prefill_moe_ep_candidates: Candidates = None
    prefill_cp_candidates: Candidates = None
    decode_num_gpu_candidates: Candidates = None
    decode_tp_candidates: Candidates = None
    decode_pp_candidates: Candidates = None
    decode_dp_candidates: Candidates = None
    decode_moe_tp_candidates: Candidates = None
    decode_moe_ep_candidates: Candidates = None
    num_gpu_per_replica: Candidates = None
    max_gpu_per_replica: Count | None = None
    max_prefill_workers: Count = 32
    max_decode_workers: Count = 32
    prefill_max_batch_size: Count | None = None
    decode_max_batch_size: Count = 512

    prefill_backend_version: str | None = None
    prefill_gemm_quant_mode: str | None = None
    prefill_moe_quant_mode: str | None = None
    prefill_kvcache_quant_mode: str | None = None
    prefill_fmha_quant_mode: str | None = None
    prefill_comm_quant_mode: str | None = None
    decode_backend_version: str | None = None
    decode_gemm_quant_mode: str | None = None
    decode_moe_quant_mode: str | None = None
    decode_kvcache_quant_mode: str | None = None
    decode_fmha_quant_mode: str | None = None
    decode_comm_quant_mode: str | None = None
    prefill_latency_correction: Factor = None
    decode_latency_correction: Factor = None
    rate_match_prefill_degradation: Factor = None
    rate_match_decode_degradation: Factor = None
    autoscale_ttft_correction_factor: Factor = None

    @model_validator(mode="after")
    def _check_search(self) -> Self:
        if self.target_request_rate is not None and self.target_concurrency is not None:
            raise InputError("target_concurrency", self.target_concurrency, "absent when target_request_rate is given")
        if self.request_latency is not None and self.osl == 1:
            raise InputError("request_latency", self.request_latency, "absent when osl = 1: use ttft")
        return self

    @property
    def grid_name(self) -> str:
        """The candidate lists in force."""
        if self.grid is not None:
            return self.grid
        return REFERENCE if self.compat == "reference" else DEFAULT

    @property
    def has_load_target(self) -> bool:
        """Whether the request states a load to serve."""
        return self.target_request_rate is not None or self.target_concurrency is not None

    @property
    def corrections(self) -> dict[str, float]:
        """Constants of disaggregated serving that the request states itself, by their names there."""
        stated = {constant: getattr(self, name) for name, constant in CORRECTIONS.items()}
        return {constant: value for constant, value in stated.items() if value is not None}

    def candidates(self, role: str) -> dict[str, tuple[int, ...]]:
        """Candidate lists the user stated for `agg`, `prefill` or `decode`, by parallel axis."""
        stated = {axis: getattr(self, f"{role}_{axis}_candidates", None) for axis in PARALLEL_AXES}
        return {axis: values for axis, values in stated.items() if values is not None}


class EstimateRequest(_Request, OpenLoadFields, EncodePointFields, AfdFields):
    """One serving point.

    Attributes:
        mode: `agg`, `disagg`, `afd` (attention and feed-forward apart), `static` (both phases of one batch),
            `static_ctx` or `static_gen`.
        batch_size: Requests in flight of one attention rank; the most of them under an open load.
        ctx_tokens: Prompt tokens of a mixed step; None is `isl`.
        stride: Decode steps priced by one evaluation, in the static modes.
        tp_size, pp_size, attention_dp_size, moe_tp_size, moe_ep_size: Layout; a missing expert size is inferred.
        prefill_*, decode_*: Values of one role in `disagg`; layout and limits fall back to the shared ones.
    """

    mode: Literal["agg", "disagg", "afd", "static", "static_ctx", "static_gen"] = "agg"
    backend: Backend = Field(default="trtllm", validation_alias=AliasChoices("backend", "backend_name"))
    isl: Count = 1024
    osl: Count = 1024
    batch_size: Count = 128
    ctx_tokens: Count | None = None
    stride: Count = 32
    tp_size: Count = 1
    pp_size: Count = 1
    attention_dp_size: Count = 1
    moe_tp_size: Count | None = None
    moe_ep_size: Count | None = None
    prefill_tp_size: Count | None = None
    prefill_pp_size: Count | None = None
    prefill_attention_dp_size: Count | None = None
    prefill_moe_tp_size: Count | None = None
    prefill_moe_ep_size: Count | None = None
    prefill_batch_size: Count | None = None
    prefill_num_workers: Count | None = None
    prefill_free_gpu_memory_fraction: Fraction = None
    prefill_max_seq_len: Count | None = None
    decode_tp_size: Count | None = None
    decode_pp_size: Count | None = None
    decode_attention_dp_size: Count | None = None
    decode_moe_tp_size: Count | None = None
    decode_moe_ep_size: Count | None = None
    decode_batch_size: Count | None = None
    decode_num_workers: Count | None = None
    decode_free_gpu_memory_fraction: Fraction = None
    decode_max_seq_len: Count | None = None

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        if self.mode in ("disagg", "static_gen") and self.osl == 1:
            raise InputError("osl", 1, f"at least 2 in mode {self.mode}: one token leaves nothing to decode")
        if self.mode == "disagg":
            for name in (f"{role}_{what}" for role in ("prefill", "decode") for what in ("batch_size", "num_workers")):
                if getattr(self, name) is None:
                    raise InputError(name, None, "given when mode = disagg")
        if self.load == "closed" and self.mode not in ("agg", "disagg"):
            raise InputError("load", "closed", f"steady when mode = {self.mode}")
        if self.load == "open" and (self.mode != "agg" or self.has_images):
            case = "requests have images" if self.mode == "agg" else f"mode = {self.mode}"
            raise InputError("load", "open", f"steady when {case}")
        if self.mode == "afd":
            self.check_afd(self.osl)
            if self.has_images:
                raise InputError(
                    "image_height", self.image_height, "0 when mode = afd: pools run language models alone"
                )
        return self


def check_accepted(nextn: int, accepted: float | None) -> None:
    """Refuses a mean accepted count above the draft length.

    Raises:
        InputError: `accepted` exceeds `nextn`.
    """
    if nextn > 0 and accepted is not None and accepted > nextn:
        raise InputError("nextn_accepted", accepted, f"from 0 to nextn = {nextn}")


def _check_quant(argument: str, role: str, mode: str | None) -> None:
    if mode is not None and mode not in quant.BY_ROLE[role]:
        raise InputError(argument, mode, f"one of {sorted(quant.BY_ROLE[role])}")
