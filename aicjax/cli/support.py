# SPDX-License-Identifier: Apache-2.0
"""`aicjax support`: whether a model can be served on a system with an engine, and if not, why."""

from typing import Annotated

from typer import Context

from aicjax._results import InputError
from aicjax.cli import options
from aicjax.cli.flags import flag

ALL = "all"


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
    transfer_policy: options.TransferPolicy = None,
    family: options.Family = None,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Say whether a model runs aggregated and disaggregated, and what is missing where it does not.

    It runs where one of the layouts that a search tries fits the GPUs and is measured. Exit code 3 when nothing runs.
    """
    from aicjax.explore.request import BACKENDS
    from aicjax.explore.support import support
    from aicjax.hardware import load_system, system_names
    from aicjax.models import load_model
    from aicjax.report.progress import shown_when_slow
    from aicjax.report.support import print_verdicts

    if model_path is None or system is None:
        raise InputError("model" if model_path is None else "system", None, "given")
    load_model(model_path, family)
    systems = system_names() if system == ALL else [load_system(system).name]
    backends = list(BACKENDS) if backend == ALL or (backend is None and system == ALL) else [backend or "trtllm"]
    if unknown := set(backends) - set(BACKENDS):
        raise InputError("backend", unknown.pop(), f"one of {', '.join(BACKENDS)}, {ALL}")
    shared = {
        "backend_version": backend_version,
        "database_mode": database_mode,
        "transfer_policy": transfer_policy,
        "family": family,
    }
    given = {name: value for name, value in shared.items() if value is not None}
    with shown_when_slow(f"trying {len(systems) * len(backends)} pairs of system and engine"):
        verdicts = [support([model_path], name, engine, **given)[0] for name in systems for engine in backends]
    print_verdicts(verdicts, as_json=json, plain=no_color)
