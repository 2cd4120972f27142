# SPDX-License-Identifier: Apache-2.0
"""Endpoints of uploaded traces."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, UploadFile

from aicjax._results import InputError
from aicjax.fleet.trace_statistics import trace_statistics
from aicjax.fleet.traces import Trace, load_trace
from aicjax.service.fleets import state_of
from aicjax.service.state import State, now, replace_file
from aicjax.service.statistics import statistics

router = APIRouter(prefix="/api/traces", tags=["traces"])

Format = Literal["jsonl", "csv", "semantic_router", "auto"]
_SUFFIX = {"jsonl": ".jsonl", "csv": ".csv"}
_MOST_SAMPLE = 500


@router.post("", summary="Keep a trace: the file as the form field `file`")
async def create(file: UploadFile, request: Request, fmt: Format = "auto") -> dict[str, Any]:
    """The trace with its statistics; layout and columns are found by their names."""
    state = state_of(request)
    content = await file.read()
    suffix = _SUFFIX.get(fmt) or Path(file.filename or "").suffix.lower()
    if suffix not in (".jsonl", ".ndjson", ".csv", ".tsv", ".json"):
        suffix = ".jsonl" if content.lstrip()[:1] == b"{" else ".csv"
    name = Path(file.filename or "trace").name[:200]
    record = state.create("traces", {"name": name, "format": fmt, "upload_time": now(), "suffix": suffix})
    path = file_of(state, record)
    replace_file(path, content)
    try:
        trace = load_trace(path)
    except Exception as error:
        path.unlink()
        state.delete("traces", record["id"])
        raise InputError("file", name, _rule(error, path)) from None
    figures = {"n_requests": trace.isl.size, "refused_rows": trace.refused, "stats": _statistics(trace)}
    return _shown(state.update("traces", record["id"], **figures))


@router.get("", summary="All kept traces")
def every(request: Request) -> list[dict[str, Any]]:
    """The kept traces, oldest first."""
    return [_shown(record) for record in state_of(request).all("traces") if "stats" in record]


@router.get("/{identity}", summary="A kept trace")
def one(identity: str, request: Request) -> dict[str, Any]:
    """The trace."""
    return _shown(state_of(request).get("traces", identity))


@router.get("/{identity}/sample", summary="First requests of a trace")
def sample(identity: str, request: Request, limit: Annotated[int, Query(ge=1, le=_MOST_SAMPLE)] = 50) -> dict[str, Any]:
    """Requests in the order of their arrival, and how many there are."""
    state = state_of(request)
    trace = load_trace(file_of(state, state.get("traces", identity)))
    rows = zip(trace.time_s[:limit], trace.isl[:limit], trace.osl[:limit], trace.model[:limit], strict=True)
    records = [
        {
            "timestamp": float(time_s),
            "prompt_tokens": int(isl),
            "generated_tokens": int(osl),
            "selected_model": str(model),
        }
        for time_s, isl, osl, model in rows
    ]
    return {"records": records, "total": int(trace.isl.size)}


@router.delete("/{identity}", summary="Forget a trace")
def delete(identity: str, request: Request) -> dict[str, str]:
    """The identity of what is gone."""
    state = state_of(request)
    path = file_of(state, state.get("traces", identity))
    state.delete("traces", identity)
    path.unlink(missing_ok=True)
    return {"deleted": identity}


def file_of(state: State, record: dict[str, Any]) -> Path:
    """The uploaded file of a trace."""
    return state.path("traces", record["id"], f".trace{record['suffix']}")


def _statistics(trace: Trace) -> dict[str, Any]:
    figures = trace_statistics(trace)
    weight = np.full(trace.isl.size, 1 / trace.isl.size)
    return {
        **statistics(trace.isl, trace.osl, weight, trace.isl.size),
        "duration_s": figures.duration_s,
        "arrival_rate_rps": figures.rate_per_s,
        "gap_cv2": figures.gap_cv2,
        "routing_distribution": figures.models,
    }


def _rule(error: Exception, path: Path) -> str:
    """What is wrong with a file, without the name by which it was kept."""
    return "a trace: " + str(error).replace(f"{path}: ", "").rstrip(".")


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("suffix", "created_at")}
