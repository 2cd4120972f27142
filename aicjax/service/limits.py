# SPDX-License-Identifier: Apache-2.0
"""A limit on the size of what a client sends, whether or not the client states the size."""

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOO_LARGE = 413


class BodyLimit:
    """Refuses requests with larger bodies, before they are in memory."""

    def __init__(self, app: ASGIApp, *, most_bytes: int):
        self._app, self._most = app, most_bytes
        self._rule = f"The body must have at most {most_bytes} bytes."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, as long as it stays below the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > self._most:
            await JSONResponse({"detail": self._rule}, TOO_LARGE)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(TOO_LARGE, self._rule)
            return message

        await self._app(scope, counted, send)
