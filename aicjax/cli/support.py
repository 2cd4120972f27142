# SPDX-License-Identifier: Apache-2.0
"""`aicjax support`: whether a model can be served on a system with an engine, and if not, why."""

from typing import Annotated, Any

from typer import Context

from aicjax._results import AicjaxError, InputError
from aicjax.cli import options
from aicjax.cli.options import flag

ALL = "all"
_UNLIMITED_MS = 1e9  # latency limits that no configuration misses
_MODES = ("agg", "disagg")


def command(
    ctx: Context,
    model_path: options.Model = None,
    system: Annotated[str | None, flag("--system", metavar="NAME|all", text="GPU system, or all of them.")] = None,
    backend: Annotated[
        str | None,
        flag(
            "--backend",
            default="trtllm; all with --system all",
            metavar=f"{options.BACKENDS}|all",
            text="Engine, or all of them.",
        ),
    ] = None,
    backend_version: options.Version = None,
    database_mode: options.Mode = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Say whether a model runs aggregated and disaggregated, and what is missing where it does not.

    Every pair is tried with a small search without latency limits. Exit code 3 when nothing runs.
    """
    from aicjax.explore.request import BACKENDS
    from aicjax.hardware import load_system, system_names
    from aicjax.models import load_model
    from aicjax.report import support as report
    from aicjax.report.progress import shown_when_slow

    if model_path is None or system is None:
        raise InputError("model" if model_path is None else "system", None, "given")
    load_model(model_path)
    systems = system_names() if system == ALL else [load_system(system).name]
    backends = list(BACKENDS) if backend == ALL or (backend is None and system == ALL) else [backend or "trtllm"]
    if unknown := set(backends) - set(BACKENDS):
        raise InputError("backend", unknown.pop(), f"one of {', '.join(BACKENDS)}, {ALL}")
    shared = {"model_path": model_path, "backend_version": backend_version, "database_mode": database_mode}
    given = {name: value for name, value in shared.items() if value is not None}
    with shown_when_slow(f"trying {len(systems) * len(backends)} pairs of system and engine"):
        verdicts = [_verdict(name, engine, given) for name in systems for engine in backends]
    report.print_verdicts(verdicts, as_json=json, plain=no_color)


def _verdict(system: str, backend: str, shared: dict[str, Any]) -> dict[str, Any]:
    """One row of the answer: a reason per serving mode, None where it runs."""
    from aicjax.explore import SearchRequest, search
    from aicjax.hardware import load_system
    from aicjax.tables import available

    row = {"system": system, "backend": backend, "version": None}
    if backend not in available(system) and "backend_version" not in shared:
        return row | dict.fromkeys(_MODES, "no measured tables")
    inputs = {
        "system": system,
        "backend": backend,
        "total_gpus": load_system(system).gpus_per_node,
        "ttft": _UNLIMITED_MS,
        "tpot": _UNLIMITED_MS,
        "pareto_sweep": False,
        **shared,
    }
    try:
        tasks = search(SearchRequest(**inputs)).tasks
    except AicjaxError as error:
        return row | dict.fromkeys(_MODES, str(error))
    reasons = {name: None if task.error is None else str(task.error) for name, task in tasks.items()}
    return row | {"version": tasks["agg"].version or None} | reasons
