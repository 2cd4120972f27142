# SPDX-License-Identifier: Apache-2.0
"""Results of `vllm bench serve --save-result` and of SGLang's `bench_serving`: one flat JSON object for each run.

Both tools descend from one script and share the keys of times (`mean_ttft_ms`, `mean_tpot_ms`, in ms), of tokens and of
`request_throughput`. Times are means over successful requests; TPOT leaves the first token out.
"""

import math
from collections.abc import Mapping
from typing import Any

from aicjax.measure.fields import Fields
from aicjax.measure.run import Run


def is_vllm(values: Mapping[str, Any]) -> bool:
    """Whether an object is a result of vLLM's tool, complete or not."""
    return "num_prompts" in values and "request_rate" in values


def is_sglang(values: Mapping[str, Any]) -> bool:
    """Whether an object is a result of SGLang's tool, complete or not."""
    return "dataset_name" in values and "random_range_ratio" in values


def vllm_run(fields: Fields) -> Run:
    """A run of `vllm bench serve`; without `max_concurrency` all prompts were in flight at once.

    Raises:
        DataError: A key is missing or of another kind; an open loop; speculative decoding.
    """
    prompts, completed = fields.count("num_prompts"), fields.count("completed")
    if "ramp_up_strategy" in fields:
        raise fields.refused("ramp_up_strategy", "makes the run an open loop: measurements are of closed loops")
    if "spec_decode_acceptance_rate" in fields:
        raise fields.refused("spec_decode_acceptance_rate", "is of speculative decoding, which measurements leave out")
    failed = fields.count("failed", 0) if "failed" in fields else max(prompts - completed, 0)
    return _run(fields, "vllm", "", fields.word("model_id"), completed, failed, otherwise=prompts)


def sglang_run(fields: Fields) -> Run:
    """A run of SGLang's `bench_serving`; failures are known where it ran with `--output-details`.

    Raises:
        DataError: A key is missing or of another kind; an open loop; speculative decoding.
    """
    completed, server = fields.count("completed"), fields.get("server_info")
    if "accept_length" in fields and fields.number("accept_length") > 1.0:
        raise fields.refused("accept_length", "is of speculative decoding, which measurements leave out")
    errors = fields.get("errors")
    failed = sum(bool(error) for error in errors) if isinstance(errors, list) else None
    known = Fields(fields.file, server if isinstance(server, Mapping) else {}, "server_info.")
    version, model = (str(known.get(key, "")) for key in ("version", "model_path"))
    return _run(fields, "sglang", version, model, completed, failed, otherwise=completed + (failed or 0))


def _run(
    fields: Fields, tool: str, version: str, model: str, completed: int, failed: int | None, *, otherwise: int
) -> Run:
    rate = fields.get("request_rate")
    if rate != "inf" and rate != math.inf:
        raise fields.refused("request_rate", f"is {rate!r}, an open loop: measurements are of closed loops")
    return Run(
        file=fields.file,
        tool=tool,
        version=version,
        model=model,
        concurrency=fields.count("max_concurrency") if "max_concurrency" in fields else otherwise,
        isl=fields.number("total_input_tokens") / completed,
        osl=fields.number("total_output_tokens") / completed,
        ttft_ms=fields.number("mean_ttft_ms"),
        tpot_ms=fields.number("mean_tpot_ms"),
        requests_per_s=fields.number("request_throughput"),
        requests=completed,
        failed_requests=failed,
    )
