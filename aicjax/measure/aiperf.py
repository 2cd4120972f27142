# SPDX-License-Identifier: Apache-2.0
"""Results of aiperf: `profile_export_aiperf.json`, and the CSV file beside it, which does not state the load.

Every metric states its unit. `inter_token_latency` is the time per output token after the first, by request.
"""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicjax._results import DataError
from aicjax.measure.fields import Fields
from aicjax.measure.run import Run

_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3}  # milliseconds of a unit
_TIME, _RATE, _TOKENS, _REQUESTS = tuple(_MS), ("requests/sec",), ("tokens",), ("requests",)
_METRICS = {  # units of each metric that is read, and its name in the CSV file
    "time_to_first_token": (_TIME, "Time to First Token"),
    "inter_token_latency": (_TIME, "Inter Token Latency"),
    "input_sequence_length": (_TOKENS, "Input Sequence Length"),
    "output_sequence_length": (_TOKENS, "Output Sequence Length"),
    "request_throughput": (_RATE, "Request Throughput"),
    "request_count": (_REQUESTS, "Request Count"),
    "error_request_count": (_REQUESTS, "Error Request Count"),
}


def is_aiperf(values: Mapping[str, Any]) -> bool:
    """Whether an object is a summary of aiperf, complete or not."""
    return "input_config" in values or "aiperf_version" in values


def is_aiperf_csv(text: str) -> bool:
    """Whether a text is the CSV file of aiperf."""
    return text.lstrip("\ufeff\r\n").startswith(("Metric,avg", "Metric,Value"))


def aiperf_run(fields: Fields) -> Run:
    """The run of a JSON summary.

    Raises:
        DataError: A key is missing or of another kind, or a unit unknown; an open loop; a run that was broken off.
    """
    if fields.get("was_cancelled"):
        raise fields.refused("was_cancelled", "is true: the run was broken off")
    if fields.get("is_complete", True) is False:
        raise fields.refused("is_complete", f"is false: {fields.get('incomplete_reason', 'the run did not finish')}")
    config = fields.part("input_config")
    return _run(fields, str(fields.get("aiperf_version", "")), _model(config), _concurrency(config))


def aiperf_csv_run(file: Path, text: str) -> Run:
    """The run of a CSV summary.

    Raises:
        DataError: A metric is missing or no number, or its unit unknown.
    """
    units = {name: allowed for allowed, name in _METRICS.values()}
    keys = {name: key for key, (_, name) in _METRICS.items()}
    metrics: dict[str, Any] = {}
    for row in csv.reader(text.lstrip("\ufeff").splitlines()):
        matched = re.fullmatch(r"(.*?)(?: \(([^()]*)\))?", row[0]) if len(row) > 1 else None
        if matched is None or matched[1] not in keys:
            continue
        try:
            average = float(row[1])
        except ValueError:
            raise DataError(f"{file}: {row[0]} must be a number, but is {row[1]!r}") from None
        default = "requests" if units[matched[1]] is _REQUESTS else ""
        metrics[keys[matched[1]]] = {"unit": matched[2] or default, "avg": average}
    return _run(Fields(file, metrics), "", "", None)


def _run(fields: Fields, version: str, model: str, concurrency: int | None) -> Run:
    def mean(key: str, least: int | None = None) -> float:
        metric = fields.part(key)
        unit, allowed = metric.word("unit"), _METRICS[key][0]
        if unit not in allowed:
            raise metric.refused("unit", f"must be {' or '.join(allowed)}, but is {unit!r}")
        value = metric.number("avg") if least is None else metric.count("avg", least)
        return value * (_MS[unit] if allowed is _TIME else 1.0)

    return Run(
        file=fields.file,
        tool="aiperf",
        version=version,
        model=model,
        concurrency=concurrency,
        isl=mean("input_sequence_length"),
        osl=mean("output_sequence_length"),
        ttft_ms=mean("time_to_first_token"),
        tpot_ms=mean("inter_token_latency"),
        requests_per_s=mean("request_throughput"),
        requests=int(mean("request_count", 1)),
        failed_requests=int(mean("error_request_count", 0)) if "error_request_count" in fields else 0,
    )


def _concurrency(config: Fields) -> int | None:
    """Requests in flight of the measured phase; None where the configuration does not say."""
    if "loadgen" in config:  # versions before there were phases
        load = config.part("loadgen")
        if "request_rate" in load:
            raise load.refused("request_rate", "makes the run an open loop: measurements are of closed loops")
        return load.count("concurrency") if "concurrency" in load else None
    if "phases" not in config:
        return None
    phases = [phase for phase in config.parts("phases") if not _is_warm_up(phase)]
    if len(phases) != 1:
        raise config.refused("phases", f"must hold one measured phase, but holds {len(phases)}")
    kind = phases[0].word("type")
    if kind != "concurrency":
        raise phases[0].refused("type", f"is {kind!r}, an open loop: measurements are of closed loops")
    return phases[0].count("concurrency") if "concurrency" in phases[0] else None


def _is_warm_up(phase: Fields) -> bool:
    return bool(phase.get("exclude_from_results")) or "warmup" in (phase.get("kind"), phase.get("name"))


def _model(config: Fields) -> str:
    """The one model of a configuration; "" where it names none or several."""
    names: list[Any] = []
    if "models" in config:
        names = [item.get("name") for item in config.part("models").parts("items")]
    elif "endpoint" in config:
        names = list(config.part("endpoint").get("model_names", ()))
    return names[0] if len(names) == 1 and isinstance(names[0], str) else ""
