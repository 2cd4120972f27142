# SPDX-License-Identifier: Apache-2.0
"""From a job to its answer: checked when it is sent, answered in the background."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicjax._results import InputError
from aicjax.fleet import answers, requests
from aicjax.fleet.inputs import profile_of
from aicjax.fleet.plan_request import PlanRequest
from aicjax.fleet.replica_spec import EngineReplica
from aicjax.fleet.request_fields import CompatName, Request
from aicjax.report.fleet_json import as_json
from aicjax.service import classic
from aicjax.service.jobs import Run
from aicjax.service.schemas import CLASSIC, JobBody
from aicjax.service.state import Record, State
from aicjax.service.traces import file_of

KINDS: dict[str, type[Request]] = {
    "size": requests.SizeRequest,
    "pareto": requests.ParetoRequest,
    "routers": requests.RoutersRequest,
    "disagg": requests.DisaggRequest,
    "power": requests.PowerRequest,
    "plan": PlanRequest,
}
_PATHS = ("workload", "trace", "model_path", "model", "constants")  # fields that name files on a command line


def job_record(body: JobBody) -> Record:
    """What is remembered of a job."""
    sent = body.model_dump()
    return {"type": body.type, "request": sent}


def check(body: JobBody, state: State) -> None:
    """Refuses a job that cannot run: a name that is not known, or a parameter out of range.

    Raises:
        InputError: Naming the parameter.
        NotFound: No such fleet or trace.
    """
    for request in _requests(body, state, "default"):
        for replica in _replicas(request):
            if not isinstance(replica, EngineReplica):
                profile_of(replica)


def runner(state: State, compat: CompatName) -> Run:
    """What runs the jobs of a service."""

    def run(record: Record) -> Mapping[str, Any]:
        body = JobBody(**record["request"])
        asked = _requests(body, state, compat)
        if body.type in CLASSIC:
            return {f"result_{body.type}": classic.result(body, asked)}
        answer = getattr(answers, body.type)(asked[0])
        return {"result": as_json(answer)}

    return run


def _requests(body: JobBody, state: State, compat: CompatName) -> list[Any]:
    rules = body.compat or compat
    if body.type in CLASSIC:
        return classic.requests(body, state, rules)
    fields = {"compat": rules, **(body.parameters or {})}
    _refuse_files(fields)
    if "trace_id" in fields:
        fields["trace"] = file_of(state, state.get("traces", str(fields.pop("trace_id"))))
    return [KINDS[body.type](**fields)]


def _refuse_files(fields: Mapping[str, Any]) -> None:
    """Clients name what ships and what they uploaded, no files of this machine."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            _refuse_files(value)
        elif isinstance(value, (list, tuple)):
            for each in value:
                _refuse_files(each if isinstance(each, Mapping) else {name: each})
        elif isinstance(value, str) and (name == "trace" or _is_path(name, value)):
            raise InputError(name, value, "a name that ships; traces are uploaded and named by trace_id")


def _is_path(name: str, value: str) -> bool:
    """Whether a text names a file, by itself or among the fields of a replica."""
    parts = [part.partition("=")[2] or part for part in value.split(",")] if "=" in value else [value]
    suspects = parts if name in _PATHS or "=" in value else []
    return any(part.startswith((".", "/", "~")) or part.endswith(".json") or Path(part).exists() for part in suspects)


def _replicas(request: Any) -> list[Any]:
    named = [getattr(request, name, None) for name in ("replica", "replica_long", "prefill", "decode")]
    fleet = getattr(request, "fleet", None)
    pools = [] if fleet is None else [pool.replica for pool in fleet.pools]
    return [replica for replica in (*named, *(getattr(request, "compare", None) or ()), *pools) if replica is not None]
