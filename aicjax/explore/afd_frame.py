# SPDX-License-Identifier: Apache-2.0
"""Rows of deployments with attention and feed-forward layers apart, alone and beside their prefill workers."""

from typing import Any

import numpy as np

from aicjax._units import GIB, MS_PER_S
from aicjax.explore import columns
from aicjax.explore import frame as frames
from aicjax.explore.afd_choice import Kept
from aicjax.explore.afd_sweep import AfdPoints, AfdSweep
from aicjax.explore.frame import Frame
from aicjax.serving.afd import PIPELINES
from aicjax.serving.afd_prefill import DecodePools, Matched

_PREFILL = {
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "moe_tp": "moe_tp",
    "ep": "moe_ep",
    "bs": "bs",
    "num_gpus": "num_total_gpus",
}
_ORIGIN = ("system", "backend", "version")


def pool_frame(sweep: AfdSweep, points: AfdPoints, kept: Kept) -> Frame:
    """Rows of the pools alone, numbers rounded as reported; what prefill workers add is absent."""
    deployment, candidates = sweep.deployment, sweep.candidates
    load, rows, at = deployment.load, len(kept.candidate), (kept.candidate, kept.batch)
    topology = candidates.topology[kept.candidate]
    facts = {
        name: np.array([getattr(one, attribute) for one in candidates.topologies])[topology]
        for name, attribute in _TOPOLOGY.items()
    }
    batch, micro = points.batches[kept.batch], points.micro[at]
    gpus = np.array([one.gpus for one in candidates.topologies])[topology]
    tpot_ms = points.times.step_ms[at] / load.progress
    tokens_per_s = facts["(a)workers"] * batch * MS_PER_S / tpot_ms
    attention_ms, ffn_ms, transfer_ms = (values[at] for values in points.times[:3])
    scalars = {
        "t_a_layer": attention_ms,
        "t_f_layer": ffn_ms,
        "t_a2f_layer": transfer_ms,
        "t_f2a_layer": transfer_ms,
        "t_c_layer": 2 * transfer_ms,
        "t_step": points.times.step_ms[at],
        "balance_ratio": np.minimum(attention_ms, ffn_ms) / np.maximum(attention_ms, ffn_ms),
        "comm_hidden": points.times.hidden[at],
    }
    memory = {"(a)memory": points.memory.attention_bytes[at] / GIB, "(f)memory": points.memory.ffn_bytes[at] / GIB}
    values: dict[str, Any] = {
        **dict.fromkeys(columns.AFD, np.nan),
        **dict.fromkeys(("(p)impl", *(f"(p){name}" for name in _ORIGIN)), ""),
        **facts,
        **scalars,
        **{f"decode_{name}": value for name, value in scalars.items()},
        **memory,
        "model": deployment.model.name,
        "phase": "decode",
        "isl": load.text_tokens,
        "osl": load.osl,
        "(a)bs": batch,
        "(a)micro_bs": micro,
        "(a)is_oom": False,
        "(f)is_oom": False,
        "ttft": 0.0,
        "tpot": tpot_ms,
        "request_latency": tpot_ms * (load.osl - 1),
        "b_total": facts["(a)workers"] * batch,
        "b_micro_total": facts["(a)workers"] * micro,
        "tokens/s": tokens_per_s,
        "tokens/s/gpu": tokens_per_s / gpus,
        "tokens/s/user": MS_PER_S / tpot_ms,
        "seq/s": tokens_per_s / load.osl,
        "request_rate": tokens_per_s / load.osl,
        "concurrency": facts["(a)workers"] * batch,
        "pipeline_model": np.array(PIPELINES)[candidates.pipeline[kept.candidate]],
        "num_microbatches": candidates.microbatches[kept.candidate],
        "nextn": load.nextn,
        "combined_with_pd": False,
        "boundary_on_attn": sweep.boundary_on_attention,
        "(d)impl": "afd",
        "num_total_gpus": gpus,
        "memory": np.maximum(*memory.values()),
        "backend": deployment.backend,
        "version": deployment.version,
        "system": deployment.system.name,
    }
    return _rounded(values, rows)


_TOPOLOGY = {
    "gpus_per_node": "gpus_per_node",
    "(a)nodes": "attention_nodes",
    "(a)tp": "attention_tp",
    "(a)workers": "attention_workers",
    "(f)nodes": "ffn_nodes",
    "(f)tp": "ffn_gpus",
    "(f)ep": "ffn_ep",
    "(f)workers": "ffn_gpus",
    "parallel": "label",
}


def pools_of(frame: Frame) -> DecodePools:
    """What the choice of prefill workers reads of rows of pools."""
    return DecodePools(frame["seq/s"], frame["num_total_gpus"], frame["tpot"] * (frame["osl"] - 1))


def with_prefill(pools: Frame, prefill: Frame, matched: Matched, ttft_correction: float) -> Frame:
    """Rows of pools beside their prefill workers, numbers rounded as reported; pools without any are left out.

    Args:
        pools: Rows of pools.
        prefill: Rows of prefill workers.
        matched: Worker of each pool, and how many.
        ttft_correction: Factor on the TTFT of a worker alone.
    """
    has = matched.option >= 0
    pool, worker = frames.take(pools, has), frames.take(prefill, matched.option[has])
    workers, seq_per_s = matched.workers[has], matched.seq_per_s[has]
    gpus = pool["num_total_gpus"] + workers * worker["num_total_gpus"]
    ttft_ms = worker["ttft"] * ttft_correction
    values = {
        **pool,
        **{f"(p){name}": worker[column] for name, column in _PREFILL.items()},
        **{f"(p){name}": worker[name] for name in _ORIGIN},
        "(p)workers": workers,
        "(p)impl": "static_ctx",
        "ttft": ttft_ms,
        "request_latency": ttft_ms + pool["tpot"] * (pool["osl"] - 1),
        "seq/s": seq_per_s,
        "request_rate": seq_per_s,
        "tokens/s": seq_per_s * pool["osl"],
        "tokens/s/gpu": seq_per_s * pool["osl"] / gpus,
        "tokens/s/user": MS_PER_S / pool["tpot"],
        "num_total_gpus": gpus,
        "memory": np.maximum(pool["memory"], worker["memory"]),
        "combined_with_pd": True,
    }
    return _rounded(values, len(gpus))


def distinct(frame: Frame) -> Frame:
    """The frame without rows that an earlier one repeats."""
    if frames.length(frame) == 0:
        return frame
    keys = np.stack([np.unique(column, return_inverse=True)[1] for column in frame.values()], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return frames.take(frame, np.sort(first))


def _rounded(values: dict[str, Any], rows: int) -> Frame:
    frame = frames.build(columns.AFD, values, rows)
    return {**frame, **{name: np.round(values[name], columns.AFD_COARSE_DECIMALS) for name in columns.AFD_COARSE}}
