# SPDX-License-Identifier: Apache-2.0
"""Endpoints of fleets that clients keep."""

from typing import Any

from fastapi import APIRouter, Request

from aicjax._units import HOURS_PER_YEAR, USD_PER_KUSD
from aicjax.fleet.inputs import profile_of
from aicjax.service.catalogue import replica_of
from aicjax.service.schemas import FleetBody
from aicjax.service.state import Record, State

router = APIRouter(prefix="/api/fleets", tags=["fleets"])


def state_of(request: Request) -> State:
    """The records of the service that a request reached."""
    return request.app.state.records


@router.post("", summary="Keep a fleet")
def create(body: FleetBody, request: Request) -> dict[str, Any]:
    """The fleet with its identity, GPUs and cost."""
    priced(body)
    return _shown(state_of(request).create("fleets", body.model_dump()))


@router.get("", summary="All kept fleets")
def every(request: Request) -> list[dict[str, Any]]:
    """The kept fleets, oldest first."""
    return [_shown(record) for record in state_of(request).all("fleets")]


@router.get("/{identity}", summary="A kept fleet")
def one(identity: str, request: Request) -> dict[str, Any]:
    """The fleet."""
    return _shown(state_of(request).get("fleets", identity))


@router.delete("/{identity}", summary="Forget a fleet")
def delete(identity: str, request: Request) -> dict[str, str]:
    """The identity of what is gone."""
    state_of(request).delete("fleets", identity)
    return {"deleted": identity}


def priced(body: FleetBody) -> float:
    """Price of a fleet [USD/h].

    Raises:
        InputError: A pool names no kind of replica.
    """
    return sum(pool.n_gpus * float(profile_of(replica_of(pool.gpu)).price_per_hour) for pool in body.pools)


def _shown(record: Record) -> dict[str, Any]:
    body = FleetBody(**{name: record[name] for name in FleetBody.model_fields})
    price_per_hour = priced(body)
    return {
        **record,
        "total_gpus": sum(pool.n_gpus for pool in body.pools),
        "estimated_cost_per_hr": round(price_per_hour, 4),
        "estimated_annual_cost_kusd": round(price_per_hour * HOURS_PER_YEAR / USD_PER_KUSD, 1),
    }
