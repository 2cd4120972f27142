# SPDX-License-Identifier: Apache-2.0
"""Fields of requests about deployments with attention and feed-forward layers on GPUs of their own."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from aicjax._results import InputError
from aicjax.explore.request_errors import Count

Factor = Annotated[float, Field(gt=0)]
PipelineName = Literal["optimistic", "conservative", "serial"]
MIN_BATCH_LIMIT = 32  # requests: what a worker may hold at most is never limited below this


class AfdSearchFields(BaseModel):
    """Searches over deployments of attention workers and a feed-forward pool.

    Attributes:
        afd_total_gpus: GPU budget of such deployments; that of the search when None.
        afd_combined_with_pd: Whether ordinary workers prefill; else prefill is left out.
        afd_comm_overhead_factor: Factor on the transfers between the pools.
        afd_boundary_on_attn: Whether norms between the two sides and the vocabulary projection run with attention.
        afd_max_a_batch_size: Most requests in flight of an attention worker.
        afd_tp_a_candidates, afd_microbatch_candidates, afd_pipeline_model_candidates, afd_f_moe_ep_size_candidates:
            Replace the lists of the grid; a size may be `n_f_nodes` or `tp_f`, the nodes or GPUs of the pool.
        afd_max_af_ratio: Most nodes of attention for one of feed-forward.
        afd_max_candidates, afd_candidate_overflow: Most candidates, and what happens beyond.
        afd_prefill_batch_size_list: Batches of the prefill workers.
        afd_max_prefill_gpus, afd_max_prefill_workers: Most GPUs and workers that prefill.
        afd_prefill_degradation, afd_decode_degradation, afd_ttft_correction_factor, afd_decode_latency_correction: In
            place of the constants.
    """

    afd_total_gpus: Count | None = None
    afd_combined_with_pd: bool = True
    afd_comm_overhead_factor: Factor = 1.0
    afd_boundary_on_attn: bool = True
    afd_max_a_batch_size: Annotated[int, Field(ge=MIN_BATCH_LIMIT)] = 1024
    afd_tp_a_candidates: tuple[Count, ...] | None = None
    afd_microbatch_candidates: tuple[Count, ...] | None = None
    afd_pipeline_model_candidates: tuple[PipelineName, ...] | None = None
    afd_f_moe_ep_size_candidates: tuple[Count | Literal["n_f_nodes", "tp_f"], ...] | None = None
    afd_max_af_ratio: Factor = 4.0
    afd_max_candidates: Count = 10_000
    afd_candidate_overflow: Literal["error", "truncate"] = "error"
    afd_prefill_batch_size_list: tuple[Count, ...] | None = None
    afd_max_prefill_gpus: Count | None = None
    afd_max_prefill_workers: Count | None = None
    afd_prefill_degradation: Factor | None = None
    afd_decode_degradation: Factor | None = None
    afd_ttft_correction_factor: Factor | None = None
    afd_decode_latency_correction: Factor = 1.0


class AfdFields(BaseModel):
    """One deployment of attention workers and a feed-forward pool.

    Attributes:
        n_a_nodes, n_f_nodes: Nodes of attention workers and of the feed-forward pool.
        a_tp_size: Tensor parallel GPUs of an attention worker.
        a_batch_size: Requests in flight of an attention worker, over all its microbatches.
        f_moe_ep_size: Expert parallel GPUs of the feed-forward pool.
        num_microbatches: Microbatches that a batch is cut into.
        pipeline_model: How pools and transfers overlap.
        comm_overhead_factor: Factor on the transfers between the pools.
        afd_phase: Which phases run that way.
        afd_combined_with_pd: Whether ordinary workers run the other phase.
        afd_boundary_on_attn: Whether norms between the two sides and the vocabulary projection run with attention.
    """

    n_a_nodes: Count | None = None
    n_f_nodes: Count | None = None
    a_tp_size: Count = 1
    a_batch_size: Count = 128
    f_moe_ep_size: Count = 1
    num_microbatches: Count = 3
    pipeline_model: PipelineName = "optimistic"
    comm_overhead_factor: Factor = 1.0
    afd_phase: Literal["prefill", "decode", "both"] = "decode"
    afd_combined_with_pd: bool = True
    afd_boundary_on_attn: bool = True

    def check_afd(self, osl: int) -> None:
        """Refuses a deployment that is not complete.

        Raises:
            InputError: Nodes are not given, there is nothing to decode, or no phase is left for other workers.
        """
        for name in ("n_a_nodes", "n_f_nodes"):
            if getattr(self, name) is None:
                raise InputError(name, None, "given when mode = afd")
        if self.afd_phase == "both" and self.afd_combined_with_pd:
            raise InputError(
                "afd_combined_with_pd", True, "off when afd_phase = both: no phase is left to other workers"
            )
        if osl == 1 and (self.afd_phase != "prefill" or self.afd_combined_with_pd):
            raise InputError("osl", 1, "at least 2 in mode afd: one token leaves nothing to decode")

    @property
    def micro_batch_size(self) -> int:
        """Requests of one microbatch of an attention worker."""
        return -(-self.a_batch_size // self.num_microbatches)
