# SPDX-License-Identifier: Apache-2.0
"""Result folders under the names of AIConfigurator 0.12.0, beside the files that a run writes anyway.

A folder is called after the whole model name; each experiment has `exp_config.yaml`, each top row the deployment files
by their names there, and aggregated rows `per_ops_source.json`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from aicjax import _paths
from aicjax._results import InputError, Provenance
from aicjax.explore import experiment_keys as keys
from aicjax.explore import frame as frames
from aicjax.explore.request import PARALLEL_AXES, QUANT_ROLES, SearchRequest
from aicjax.explore.result import SearchResult, TaskResult

LAYOUTS = ("default", "reference")
EXPERIMENT_FILE = "exp_config.yaml"
SOURCES_FILE = "per_ops_source.json"
_EXECUTABLE, _READABLE = 0o755, 0o644
_TABLE = "compat/aiconfigurator.yaml"
_STEPS = {"mixed step": "mix_step", "decode step": "genonly_step"}
_MEASURED = (Provenance.EXACT, Provenance.INTERPOLATED)
_OF_MODE = {"agg_": "agg", "prefill_": "disagg", "decode_": "disagg", "afd_": "afd"}
_OF_REPLICA = ("num_gpu_per_replica", "max_gpu_per_replica", "max_prefill_workers", "max_decode_workers")
_OURS = (  # keys of experiments that are not keys there
    *("compat", "constants", "grid", "family", "load", "waves", "length_low", "kv_transfer_gb_per_s", "strict_sla"),
    *("serving_mode", "model_path", "backend_version"),  # stated for each role
)


def directory_for(model_path: str, save_dir: Path) -> Path:
    """Where the folder of a run goes: a Hugging Face name keeps its organisation as a folder."""
    return save_dir if Path(model_path).is_dir() else save_dir / Path(model_path).parent


def add(result: SearchResult, folder: Path) -> None:
    """Writes the files of a run's folder under their names in AIConfigurator too.

    Args:
        result: The run.
        folder: Its folder, with tables and deployment files in it.

    Raises:
        InputError: A file cannot be written.
    """
    try:
        for name, task in result.tasks.items():
            if frames.length(task.best):
                _add_experiment(result, name, task, folder / name)
    except OSError as error:
        raise InputError("save_dir", str(folder), f"a folder that can be written ({error.strerror})") from None


def experiment(request: SearchRequest, task: TaskResult) -> dict[str, Any]:
    """An experiment with everything that was left open, by the keys of experiment files; absent ones are left out."""
    stated = {
        name: value for name, value in request.model_dump(mode="json").items() if _belongs(name, task.serving_mode)
    }
    resolved: dict[str, Any] = {"serving_mode": task.serving_mode}
    for role, facts in task.resolved.get("roles", {}).items():
        prefix = "" if task.serving_mode == "agg" else f"{role}_"
        resolved |= {
            f"{prefix}model_path": request.model_path,
            f"{prefix}system_name": facts["system"],
            f"{prefix}backend_name": facts["backend"],
            f"{prefix}backend_version": facts["version"],
            **{f"{prefix}{part}_quant_mode": facts["quantisation"][part] for part in QUANT_ROLES},
            **{f"{role}_{axis}_candidates": facts["candidates"][axis] for axis in PARALLEL_AXES},
        }
    return {**resolved, **{name: value for name, value in stated.items() if name not in resolved}}


def _belongs(name: str, mode: str) -> bool:
    """Whether a field of the request is a key of an experiment of a serving mode, and not stated by role."""
    if name not in keys.KNOWN or name in _OURS or (mode == "disagg" and name in (*keys.OF_ONE_WORKER, "enable_eplb")):
        return False
    role = next((prefix for prefix in _OF_MODE if name.startswith(prefix)), None)
    return mode == "disagg" if name in _OF_REPLICA else role is None or _OF_MODE[role] == mode


def _add_experiment(result: SearchResult, name: str, task: TaskResult, folder: Path) -> None:
    parts = [part for part in result.by_backend.values() if part.serving_mode == task.serving_mode and part.resolved]
    for part in parts if task.backend == "auto" else [task]:
        prefix = f"{part.backend}_" if task.backend == "auto" else ""
        content = experiment(result.request, part)
        kept = {key: value for key, value in content.items() if value is not None}
        (folder / f"{prefix}{EXPERIMENT_FILE}").write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")
    for row in range(frames.length(task.best)):
        top = folder / f"top{row + 1}"
        sources = _sources(task, row)
        if sources:
            top.mkdir(exist_ok=True)
            (top / SOURCES_FILE).write_text(json.dumps(sources, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        if top.is_dir():
            add_names(top)


def add_names(folder: Path) -> None:
    """Copies the deployment files in the folders of a folder into it, under their names in AIConfigurator."""
    names = dict(_renamed(folder))
    for path, called in names.items():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".sh":
            for other, name in names.items():
                text = text.replace(other.name, name) if other.parent == path.parent else text
        (folder / called).write_text(text, encoding="utf-8")
        (folder / called).chmod(_EXECUTABLE if path.suffix == ".sh" else _READABLE)


def _sources(task: TaskResult, row: int) -> dict[str, dict[str, str]]:
    """How each operator of an aggregated row was obtained, by step; empty where that is not known."""
    if task.explain is None or task.serving_mode != "agg":
        return {}
    return {
        _STEPS[step.step]: {
            operator: "silicon" if code in _MEASURED else "empirical"
            for operator, code in zip(step.names, step.provenance, strict=True)
        }
        for step in task.explain(row).steps
        if step.step in _STEPS
    }


def _renamed(folder: Path) -> Iterator[tuple[Path, str]]:
    """Deployment files of a row with their names in AIConfigurator."""
    for path in sorted(folder.glob("*/*")):
        for pattern, called in _file_names().items():
            if match := re.fullmatch(re.escape(pattern).replace(r"\{\}", r"(\d+)"), path.name):
                yield path, called.format(*match.groups())


def _file_names() -> Mapping[str, str]:
    table = yaml.safe_load((_paths.configs_dir() / _TABLE).read_text(encoding="utf-8"))
    return table["file_names"]
