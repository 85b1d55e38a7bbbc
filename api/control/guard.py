"""The outermost layer of the app: bounded bodies, headers for browsers, no unshaped error."""

from __future__ import annotations

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.control.errors import ApiError, as_response
from api.control.metrics import ControlMetrics
from contracts.batches import MAX_INPUT_BYTES
from contracts.jobs import PAYLOAD_MAX_BYTES

_log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 64 * 1024
MAX_UPLOAD_BYTES = MAX_INPUT_BYTES + 1024**2
"""A file, and the form around it."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Wraps the whole app. Plain ASGI, so that a stream's client may leave unhindered."""

    def __init__(self, app: ASGIApp, metrics: ControlMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        try:
            await self._app(scope, exchange.receive, exchange.send)
            if exchange.too_large:
                await exchange.refuse(exchange.too_large_error())
        except ClientDisconnect:
            # In the middle of its body: there is nobody to answer, and nothing is wrong here.
            _log.debug("control.caller_left", path=scope["path"])
        except Exception:
            # The last resort: whatever a bug of ours did, the caller gets the one shape.
            _log.exception("control.unhandled_error", path=scope["path"])
            if exchange.status is not None:
                raise
            await exchange.refuse(
                ApiError(500, "server_error", "internal error; see the log", code="internal_error")
            )
        finally:
            if exchange.status is not None:
                self._metrics.count(scope["method"][:10], _route(scope), exchange.status)


class _BodyTooLarge(Exception):
    """Ends the reading of a body; the framework turns it into an answer of its own."""


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._received_bytes = 0
        self._limit_bytes = _limit_bytes(scope)
        self.too_large = False
        self.status: int | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
            if self._received_bytes > self._limit_bytes:
                self.too_large = True
                raise _BodyTooLarge
        return message

    async def send(self, message: Message) -> None:
        if self.too_large:
            return  # the refusal follows when the app is done
        await self._send_on(message)

    async def _send_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if "cache-control" not in headers:
                headers["Cache-Control"] = "no-store"
        await self._send(message)

    def too_large_error(self) -> ApiError:
        return ApiError(
            413,
            "invalid_request_error",
            f"the body is larger than {self._limit_bytes} bytes",
            code="body_too_large",
            headers={"Connection": "close"},
        )

    async def refuse(self, error: ApiError) -> None:
        if self.status is None:
            await as_response(error)(self._scope, self._receive, self._send_on)


def _limit_bytes(scope: Scope) -> int:
    if scope["method"] == "POST" and scope["path"] == "/v1/files":
        return MAX_UPLOAD_BYTES
    return PAYLOAD_MAX_BYTES if scope["path"].startswith("/v1/background/") else MAX_BODY_BYTES


def _route(scope: Scope) -> str:
    """The template that matched: paths as labels would grow without bound."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"
