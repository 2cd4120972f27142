# SPDX-License-Identifier: Apache-2.0
"""Result rows as a search saves them, for every engine, dense and with experts, together and apart."""

from typing import Any

INPUTS = {"isl": 4000, "osl": 500, "prefix": 0, "ttft": 2000.0, "tpot": 50.0, "total_gpus": 16, "constants": "silicon"}
SEARCHED = {**INPUTS, "model_path": "Qwen/Qwen3-32B", "system": "h200_sxm", "backend": "auto"}  # of a manifest
_VERSIONS = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
_FIGURES = {
    "ttft": 472.0,
    "tpot": 49.8,
    "tokens/s": 1222.3,
    "request_rate": 2.45,
    "isl": 4000,
    "osl": 500,
    "concurrency": 62,
}


def result_row(engine: str, *, experts: bool, disaggregated: bool) -> dict[str, Any]:
    """One row of a top list."""
    model = "Qwen/Qwen3-235B-A22B-FP8" if experts else "Qwen/Qwen3-32B"
    row: dict[str, Any] = {"model": model, **_FIGURES}
    if not disaggregated:
        return {**row, "num_total_gpus": 4, "num_tokens": 4021, **_worker(engine, "", 21, experts)}
    workers = {**_worker(engine, "(p)", 1, experts), **_worker(engine, "(d)", 59, experts)}
    return {**row, "num_total_gpus": 16, "(p)workers": 3, "(d)workers": 1, "(d)parallel": "", **workers}


def _worker(engine: str, prefix: str, batch: int, experts: bool) -> dict[str, Any]:
    layout = {"tp": 1, "pp": 1, "dp": 4, "moe_tp": 1, "moe_ep": 4} if experts else {"tp": 4, "pp": 1, "dp": 1}
    origin = {"backend": engine, "version": _VERSIONS[engine], "system": "h200_sxm", "kvcache": "fp8", "bs": batch}
    return {f"{prefix}{name}": value for name, value in {"moe_tp": 1, "moe_ep": 1, **layout, **origin}.items()}


def wide_row(
    engine: str, gpus: int, *, experts: bool = False, disaggregated: bool = False, system: str = "h200_sxm", pp: int = 1
) -> dict[str, Any]:
    """One row of a top list whose workers, one of each kind, have `gpus` GPUs."""
    row = result_row(engine, experts=experts, disaggregated=disaggregated)
    prefixes = ("(p)", "(d)") if disaggregated else ("",)
    sizes = {"dp": gpus // pp, "moe_ep": gpus // pp} if experts else {"tp": gpus // pp}
    for prefix in prefixes:
        changed = {**sizes, "pp": pp, "system": system, **({"workers": 1} if disaggregated else {})}
        row |= {f"{prefix}{name}": value for name, value in changed.items()}
    return {**row, "num_total_gpus": gpus * len(prefixes)}
