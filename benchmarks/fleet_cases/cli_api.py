# SPDX-License-Identifier: Apache-2.0
"""Command lines with what they write, and requests of the service with what it answers.

Numbers are compared where they follow from closed forms; of simulations, which draw other random numbers and free a
slot when its request ends, the shape alone. What is infinite there is null here.
"""

import contextlib
import importlib.util
import io
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aicjax.cli.app import run
from benchmarks.fleet_cases import Row

_JOB = "/api/jobs/{id}"
_OK, _REFUSED = 200, 422
_PAUSE_S = 0.02
_CLOSED = ("whatif", "pareto", "disagg", "grid-flex", "tok-per-watt")  # commands without a simulation
_OPTIONAL = {"examples/multi_model_fleet.json"}  # files of the fleet reference that are not part of the answers


def rows(answers: Mapping[str, Any], path: Path) -> Iterator[Row]:
    """Every command whose files are there."""
    for stated in answers["cli"]:
        words = stated["command"].split()[1:]
        if not _OPTIONAL & set(words):
            yield from _command_rows(words, stated["json"])
    if importlib.util.find_spec("fastapi") and importlib.util.find_spec("httpx2"):
        yield from _service_rows(answers["api"])


def _service_rows(stated: list[Any]) -> Iterator[Row]:
    """Status and names of every answer of the service; numbers of distributions and of sizings in closed form."""
    from fastapi.testclient import TestClient

    from aicjax.service.app import Settings, create_app

    identities: dict[str, str] = {}  # ours by theirs
    last_job = ""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder), allowed_hosts=("testserver",), compat="fleet-reference")
        with TestClient(create_app(settings)) as client:
            for call in stated:
                if call.get("path") is None or (call["path"] == _JOB and not last_job):
                    continue  # a remark, or the job was refused
                path = call["path"].replace("{id}", last_job)
                for theirs, ours in identities.items():
                    path = path.replace(theirs, ours)
                answer = _called(client, call, path)
                label, theirs = f"{call['method']} {call['path']} ({call['status']})", call["response"]
                if call["path"] == _JOB:
                    label, answer = f"{label} {theirs['type']}", _finished(client, path)
                refused_here = answer.status_code == _REFUSED and call["path"] == "/api/jobs"  # there when it runs
                yield Row(f"{label}: status", refused_here or answer.status_code == call["status"], True, "exact")
                if answer.status_code != call["status"]:
                    last_job = ""
                    continue
                found = answer.json()
                yield Row(f"{label}: names", sorted(_names(theirs) - _names(found)), [], "exact")
                if isinstance(theirs, dict) and "id" in theirs:
                    identities[theirs["id"]] = found["id"]
                    last_job = found["id"] if call["path"] == "/api/jobs" else last_job
                if call["path"].endswith("/cdf"):
                    yield from _numbers(label, found, theirs)
                if isinstance(theirs, dict) and theirs.get("result_optimize"):
                    analytic = [_analytic(result["result_optimize"]["sweep"]) for result in (found, theirs)]
                    yield from _numbers(label, *analytic)


def _called(client: Any, call: Mapping[str, Any], path: str) -> Any:
    if "rows" in call:
        text = "\n".join(json.dumps(row) for row in call["rows"])
        return client.post(path, files={"file": ("t.jsonl", text)})
    return client.request(call["method"], path, json=call.get("body"))


def _finished(client: Any, path: str) -> Any:
    """The answer about a job that has ended."""
    while True:
        answer = client.get(path)
        if answer.status_code != _OK or answer.json()["status"] in ("done", "failed"):
            return answer
        time.sleep(_PAUSE_S)


def _names(value: Any, name: str = "") -> set[str]:
    """Names at every level; entries of lists count as one. What is null there may have names here."""
    if isinstance(value, dict):
        return {name}.union(*(_names(each, f"{name}.{key}") for key, each in value.items()))
    return {name}.union(*(_names(each, f"{name}[]") for each in value)) if isinstance(value, list) else {name}


def _analytic(found: list[Any]) -> list[Any]:
    return [row for row in found if row["source"] == "analytical"]


def _command_rows(words: list[str], theirs: Any) -> Iterator[Row]:
    label = " ".join(words[:1] + words[3:])
    ours = _written([word.removeprefix("data/").removesuffix("_cdf.json") for word in words])
    yield Row(f"{label}: shape", _shape(ours), _shape(theirs), "exact")
    if words[0] in _CLOSED:
        yield from _numbers(label, ours, theirs)
    elif words[0] == "optimize":
        yield from _numbers(label, _analytic(ours), _analytic(theirs))


def _written(words: list[str]) -> Any:
    """What a command writes, by the rules of the fleet reference."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        quiet = contextlib.ExitStack()
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            quiet.enter_context(redirect(io.StringIO()))
        with quiet:
            code = run(["fleet", *words, "--compat", "fleet-reference", "--out", str(out)])
        if code not in (0, 3):
            return {"exit code": code}
        return json.loads(out.read_text(encoding="utf-8"))


def _shape(value: Any) -> Any:
    """Names at every level; of a list, of its first entry."""
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    return [_shape(value[0])] if isinstance(value, list) and value else None


def _numbers(label: str, ours: Any, theirs: Any) -> Iterator[Row]:
    flat = [_flat(value) for value in (ours, theirs)]
    names = [name for name, each in flat[1].items() if _is_number(each)]
    words = [{name: each for name, each in part.items() if name not in names} for part in flat]
    yield Row(f"{label}: words", sorted(words[0].items()), sorted(words[1].items()), "exact")
    found = [_number(flat[0].get(name, np.nan)) for name in names]
    yield Row(f"{label}: numbers", found, [float(flat[1][name]) for name in names])


def _number(value: Any) -> float:
    return np.inf if value is None else float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        return {name: value}
    return {key: leaf for place, each in parts for key, leaf in _flat(each, f"{name}.{place}").items()}
