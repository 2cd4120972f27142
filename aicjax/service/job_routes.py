# SPDX-License-Identifier: Apache-2.0
"""Endpoints of jobs."""

from typing import Any

from fastapi import APIRouter, Request

from aicjax.service.fleets import state_of
from aicjax.service.run import check, job_record
from aicjax.service.schemas import JobBody

router = APIRouter(prefix="/api/jobs", tags=["jobs"])
RESULTS = ("result_optimize", "result_simulate", "result_whatif", "result")


@router.post("", summary="Start a job")
def create(body: JobBody, request: Request) -> dict[str, Any]:
    """The job, which waits to run; what cannot run is refused here."""
    check(body, state_of(request))
    return shown(request.app.state.jobs.submit(job_record(body)))


@router.get("", summary="All jobs")
def every(request: Request) -> list[dict[str, Any]]:
    """The jobs, oldest first."""
    return [shown(record) for record in state_of(request).all("jobs")]


@router.get("/{identity}", summary="A job and, once it is done, its result")
def one(identity: str, request: Request) -> dict[str, Any]:
    """The job."""
    return shown(state_of(request).get("jobs", identity))


@router.delete("/{identity}", summary="Forget a job")
def delete(identity: str, request: Request) -> dict[str, str]:
    """The identity of what is gone; a job in hand ends without a result."""
    state_of(request).delete("jobs", identity)
    return {"deleted": identity}


def shown(record: dict[str, Any]) -> dict[str, Any]:
    """A job with all its fields, those of other types of job null."""
    return {**dict.fromkeys(RESULTS), **record}
