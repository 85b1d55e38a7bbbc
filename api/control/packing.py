"""Long answers go packed to who takes them so: a hundred models' figures are half a megabyte."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

PATHS = ("/v1/kpis", "/v1/heat", "/v1/panels", "/v1/requests", "/v1/models", "/v1/settings")
"""Summed up and plain; never a stream, nor somebody's file."""

_LEAST_BYTES = 2048
_LEVEL = 4


class Packing:
    """Wraps the app: what is below ``PATHS`` may be packed, all else passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._packed = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        long = scope["type"] == "http" and scope["path"].startswith(PATHS)
        await (self._packed if long else self._app)(scope, receive, send)
