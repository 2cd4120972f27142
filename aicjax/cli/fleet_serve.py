# SPDX-License-Identifier: Apache-2.0
"""`aicjax fleet serve`: answers about fleets over HTTP."""

import importlib.util
from pathlib import Path
from typing import Annotated

from typer import Option

from aicjax._results import InputError
from aicjax.cli.flags import flag, switch

_NEEDED = ("fastapi", "uvicorn", "multipart")


def serve(
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", min=1, max=65535, metavar="N", help="Port to listen on.")] = 8000,
    state_dir: Annotated[
        Path, Option("--state-dir", metavar="DIR", help="Where traces, fleets and jobs are kept.")
    ] = Path(".aicjax-fleet"),
    allowed_hosts: Annotated[
        list[str] | None,
        Option("--allowed-host", metavar="NAME", help="Further name by which clients may call; may be repeated."),
    ] = None,
    root_path: Annotated[
        str, Option("--root-path", metavar="PATH", help="Prefix that a proxy in front takes away.")
    ] = "",
    compat: Annotated[
        str | None,
        flag(
            "--compat",
            default="default",
            metavar="default|fleet-reference",
            text="Rules of jobs that do not state them.",
        ),
    ] = None,
    log_level: Annotated[
        str, Option("--log-level", metavar="critical|error|warning|info|debug", help="What is logged.")
    ] = "info",
    quiet: Annotated[bool, switch("--quiet", text="Log errors alone.")] = False,
) -> None:
    """Serve answers about fleets over HTTP, on this machine alone unless told otherwise; there are no passwords.

    The description of all endpoints is at /api/docs.
    """
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise InputError("serve", "without its packages", "installed with them: pip install 'aicjax[serve]'")
    levels = ("critical", "error", "warning", "info", "debug")
    if log_level not in levels:
        raise InputError("log_level", log_level, f"one of {', '.join(levels)}")
    if compat not in (None, "default", "fleet-reference"):
        raise InputError("compat", compat, "one of default, fleet-reference")

    import uvicorn

    from aicjax.service.app import Settings, create_app

    settings = Settings(
        state_dir=state_dir,
        allowed_hosts=("localhost", "127.0.0.1", "[::1]", host, *(allowed_hosts or ())),
        root_path=root_path,
        compat=compat or "default",
    )
    uvicorn.run(create_app(settings), host=host, port=port, log_level="error" if quiet else log_level)
