# SPDX-License-Identifier: Apache-2.0
"""Reports of GuideLLM (`benchmarks.json`): one object with a list of runs.

`inter_token_latency_ms` is the time per output token after the first; `time_per_output_token_ms` of GuideLLM counts the
first too and is not read. Requests still under way at the end of a run (`incomplete`) are no failures.
"""

from collections.abc import Mapping
from typing import Any

from aicjax.measure.fields import Fields
from aicjax.measure.run import Run

REPORT_VERSION = 2


def is_guidellm(values: Mapping[str, Any]) -> bool:
    """Whether an object is a report of GuideLLM, complete or not."""
    return "benchmarks" in values and "metadata" in values


def guidellm_runs(fields: Fields) -> list[Run]:
    """The runs of a report.

    Raises:
        DataError: A key is missing or of another kind; another version of the report; an open loop; no run.
    """
    metadata = fields.part("metadata")
    if metadata.count("version") != REPORT_VERSION:
        raise metadata.refused("version", f"must be {REPORT_VERSION}, but is {metadata.get('version')}")
    version, model = str(metadata.get("guidellm_version", "")), _model(fields.get("config"))
    benchmarks = fields.parts("benchmarks")
    if not benchmarks:
        raise fields.refused("benchmarks", "holds no run")
    return [_run(benchmark, version, model) for benchmark in benchmarks]


def _run(benchmark: Fields, version: str, model: str) -> Run:
    metrics = benchmark.part("metrics")
    totals = metrics.part("request_totals")

    def mean(name: str) -> float:
        return metrics.part(name).part("successful").number("mean")

    return Run(
        file=benchmark.file,
        tool="guidellm",
        version=version,
        model=model,
        concurrency=_concurrency(benchmark.part("config").part("strategy")),
        isl=mean("prompt_token_count"),
        osl=mean("output_token_count"),
        ttft_ms=mean("time_to_first_token_ms"),
        tpot_ms=mean("inter_token_latency_ms"),
        requests_per_s=mean("requests_per_second"),
        requests=totals.count("successful"),
        failed_requests=totals.count("errored", 0),
    )


def _concurrency(strategy: Fields) -> int:
    """Requests in flight of a closed loop."""
    kind = strategy.word("type_")
    if kind == "synchronous":
        return 1
    if kind == "concurrent":
        return strategy.count("streams")
    if kind == "throughput":
        return strategy.count("max_concurrency")
    raise strategy.refused("type_", f"is {kind!r}, an open loop: measurements are of closed loops")


def _model(config: Any) -> str:
    """Model of the report's configuration; "" where it names none."""
    for key in ("spec", "backend"):
        config = config.get(key) if isinstance(config, Mapping) else None
    model = config.get("model") if isinstance(config, Mapping) else None
    return model if isinstance(model, str) else ""
