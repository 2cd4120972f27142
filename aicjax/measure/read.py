# SPDX-License-Identifier: Apache-2.0
"""Result files of load generators, recognised by what they hold and not by their names."""

import json
from pathlib import Path
from typing import Any

from aicjax._results import DataError, InputError
from aicjax.measure.aiperf import aiperf_csv_run, aiperf_run, is_aiperf, is_aiperf_csv
from aicjax.measure.bench_serving import is_sglang, is_vllm, sglang_run, vllm_run
from aicjax.measure.fields import Fields
from aicjax.measure.guidellm import guidellm_runs, is_guidellm
from aicjax.measure.run import Run

KNOWN = "a result of aiperf (JSON, CSV), vllm bench serve (JSON), SGLang bench_serving (JSONL) or GuideLLM (JSON)"


def read_runs(file: Path) -> list[Run]:
    """The runs of one result file.

    Raises:
        InputError: No such file, or of none of the tools.
        DataError: A key is missing or of another kind; an open loop; the message names file and key.
    """
    if not file.is_file():
        raise InputError("FILE", str(file), "an existing file")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("FILE", str(file), KNOWN) from None
    if is_aiperf_csv(text):
        return [aiperf_csv_run(file, text)]
    return [run for values in _objects(file, text) for run in _runs(file, values)]


def _runs(file: Path, values: Any) -> list[Run]:
    if not isinstance(values, dict):
        raise InputError("FILE", str(file), KNOWN)
    fields = Fields(file, values)
    if is_aiperf(values):
        return [aiperf_run(fields)]
    if is_guidellm(values):
        return guidellm_runs(fields)
    if is_sglang(values):
        return [sglang_run(fields)]
    if is_vllm(values):
        return [vllm_run(fields)]
    raise InputError("FILE", str(file), KNOWN)


def _objects(file: Path, text: str) -> list[Any]:
    """The objects of a JSON file, or of a file with one on each line."""
    if not text.lstrip().startswith("{"):
        raise InputError("FILE", str(file), KNOWN)
    try:
        return [json.loads(text)]
    except json.JSONDecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        objects = []
        for number, line in lines:
            try:
                objects.append(json.loads(line))
            except json.JSONDecodeError as error:
                at = f"line {number}: {error.msg}" if objects else f"line {whole.lineno}: {whole.msg}"
                raise DataError(f"{file}: no JSON: {at}") from None
        return objects
