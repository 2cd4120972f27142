# SPDX-License-Identifier: Apache-2.0
"""The service as a whole: its endpoints, its limits, and one line for every refusal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

import aicjax
from aicjax._results import AicjaxError
from aicjax.fleet.request_fields import CompatName
from aicjax.service import catalogue, fleets, job_routes, traces
from aicjax.service.jobs import Busy, Jobs
from aicjax.service.limits import BodyLimit
from aicjax.service.run import runner
from aicjax.service.state import NotFound, State

NAME = "aicjax-fleet"
_STATUS = {NotFound: 404, Busy: 429}
_REFUSED = 422


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Attributes:
        state_dir: Where traces, fleets and jobs are kept.
        allowed_hosts: Names by which clients may call; others are refused, so that no web page can reach it.
        root_path: Prefix that a proxy in front takes away.
        compat: Rules of jobs that do not state them.
        most_body_bytes: Largest body of a request.
        most_waiting: Jobs that may wait.
    """

    state_dir: Path
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    root_path: str = ""
    compat: CompatName = "default"
    most_body_bytes: int = 64 << 20
    most_waiting: int = 64


def create_app(settings: Settings) -> FastAPI:
    """The service; its jobs run while it does."""
    state = State(settings.state_dir)
    jobs = Jobs(state, runner(state, settings.compat), most_waiting=settings.most_waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        jobs.start()
        yield
        jobs.stop()

    app = FastAPI(
        title="aicjax fleets",
        description="How many replicas, at which percentile, at what cost and power.",
        version=aicjax.__version__,
        root_path=settings.root_path,
        docs_url="/api/docs",
        redoc_url="/api/redoc",
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.records, app.state.jobs = state, jobs
    for routes in (catalogue.router, traces.router, fleets.router, job_routes.router):
        app.include_router(routes)
    app.add_middleware(BodyLimit, most_bytes=settings.most_body_bytes)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(settings.allowed_hosts))
    app.add_exception_handler(AicjaxError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)

    @app.get("/healthz", tags=["service"], summary="Whether the service is there")
    def healthz() -> dict[str, str]:
        return {"status": "ok", "service": NAME}

    @app.get("/", tags=["service"], summary="Where the documentation is")
    def root() -> dict[str, str]:
        return {"service": NAME, "status": "ok", "docs": "/api/docs", "openapi": "/api/openapi.json"}

    return app


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": " ".join(str(error).split())}, _STATUS.get(type(error), _REFUSED))


def _malformed(_: Request, error: Exception) -> JSONResponse:
    """The first thing that is wrong with a body, as one line."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    message = str(first["msg"]).removeprefix("Value error, ")
    return JSONResponse({"detail": f"{place}: {message}" if place else message}, _REFUSED)
