# SPDX-License-Identifier: Apache-2.0
"""The keys of an experiment: those that are fields of a search, and those accepted only where they ask for nothing."""

from typing import Any

from aicjax.explore.request import QUANT_ROLES, SearchRequest

SERVING_MODES = ("agg", "disagg", "afd")
NAMES = {"system_name": "system", "backend_name": "backend", "encoder_system_name": "encoder_system"}  # key: field
DISAGG_NAMES = {
    "prefill_model_path": "model_path",
    "prefill_system_name": "system",
    "decode_system_name": "decode_system",
    "prefill_backend_name": "backend",
    "encoder_system_name": "encoder_system",
}
_BACKEND = SearchRequest.model_fields["backend"].default
SAME_AS_PREFILL = {"model_path": None, "backend_name": _BACKEND}  # which both roles state alike; default
OF_ONE_WORKER = (  # a disaggregated experiment states them for each role
    *("model_path", "system_name", "backend_name", "backend_version", "enable_chunked_prefill"),
    *(f"{part}_quant_mode" for part in QUANT_ROLES),
)
_OF_SEARCHES_ALONE = (
    *("system", "decode_system", "encoder_system", "backend", "top_n", "inclusive_tpot"),
    *("target_request_rate", "target_concurrency", "encoder_system"),
)
UNSET: tuple[Any, ...] = (None, "", False, _BACKEND)
ASKS_NOTHING: dict[str, tuple[Any, ...]] = {  # the values besides null that a key without a field may have
    "forward_model": ("op_level",),
    "engine_step_backend": ("rust",),
    "decode_cp_candidates": ([1],),
    # Deprecated: large expert parallelism follows from the data. Prefill workers take whole prompts in any case.
    **dict.fromkeys(("enable_wideep", "prefill_enable_wideep", "decode_enable_wideep"), (False, True)),
    "prefill_enable_chunked_prefill": (False, True),
    **dict.fromkeys(("afd_n_a_nodes", "afd_n_f_nodes", "afd_tp_a", "afd_a_batch_size", "afd_total_batch_size"), ()),
    "afd_prefill_max_candidates": (256,),
    "afd_prefill_candidate_overflow": ("error",),
}
KNOWN = (
    *(key for key in SearchRequest.model_fields if key not in _OF_SEARCHES_ALONE),
    *(*NAMES, *DISAGG_NAMES, *(f"decode_{key}" for key in SAME_AS_PREFILL), *ASKS_NOTHING),
    "encoder_system_name",
)
