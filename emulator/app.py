"""The ASGI application: keys, limits, and which path is answered by what."""

from __future__ import annotations

import asyncio
import contextlib

from emulator import backends, control, listing, openai
from emulator.context import Emulator, Handler
from emulator.errors import send_echo_error, send_error, send_not_found
from emulator.http import CallerLeft, Receive, Reply, Request, Scope, Send
from emulator.keys import is_allowed, is_foreign_page
from emulator.work import Hangup

MAX_BODY_BYTES = 15_000_000
"""LocalAI's default upload limit."""

PAGE = (
    b"<!doctype html><html><head><title>LocalAI (emulated)</title></head>"
    b'<body><div id="root"></div></body></html>\n'
)

_OPENAI: dict[str, Handler] = {
    "/chat/completions": openai.chat,
    "/completions": openai.completions,
    "/edits": openai.edits,
}

ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "/v1/models"): listing.models,
    ("GET", "/models"): listing.models,
    ("GET", "/v1/models/capabilities"): listing.capabilities,
    ("GET", "/api/models/capabilities"): listing.ui_capabilities,
    ("GET", "/api/aliases"): listing.aliases,
    ("GET", "/healthz"): listing.health,
    ("GET", "/readyz"): listing.health,
    ("GET", "/version"): listing.version,
    ("POST", "/backend/load"): backends.load,
    ("POST", "/backend/shutdown"): backends.shutdown,
    ("GET", "/backend/monitor"): backends.monitor,
    ("GET", "/system"): backends.system,
    ("GET", "/emulator/events"): control.events,
    ("GET", "/emulator/state"): control.state,
    ("GET", "/emulator/faults"): control.list_faults,
    ("POST", "/emulator/faults"): control.add_faults,
    ("DELETE", "/emulator/faults"): control.clear_faults,
    **{("POST", prefix + path): to for path, to in _OPENAI.items() for prefix in ("", "/v1")},
}

STREAMING = frozenset(
    prefix + path for path in ("/chat/completions", "/completions") for prefix in ("", "/v1")
)
"""Paths whose answers LocalAI never compresses."""


class EmulatorApp:
    """Plain ASGI over one ``Emulator``."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._methods: dict[str, list[str]] = {}
        for method, path in ROUTES:
            self._methods.setdefault(path, []).append(method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            await self._answer(Request(scope, receive), send)

    async def _answer(self, request: Request, send: Send) -> None:
        path = request.path
        if len(path) > 1 and not path.startswith("//"):
            path = path.rstrip("/") or "/"
        reply = Reply(request, send, may_compress=path not in STREAMING)
        handler = ROUTES.get((request.method, path))
        if await self._refuse(request, reply, path, handler):
            return
        assert handler is not None
        if not await request.read_body(max_bytes=MAX_BODY_BYTES):
            await _refuse_size(reply)
            return
        await self._run(handler, request, reply)

    async def _refuse(
        self, request: Request, reply: Reply, path: str, handler: Handler | None
    ) -> bool:
        """Send what is answered without looking at the body; whether that was all."""
        if request.content_length > MAX_BODY_BYTES:
            await _refuse_size(reply)
        elif not is_allowed(request, self._emulator.options.api_keys):
            reply.add_header("Www-Authenticate", "Bearer")
            await send_error(
                reply, 401, "An authentication key is required", "invalid_request_error"
            )
        elif is_foreign_page(request):
            await send_echo_error(reply, 400, "missing csrf token in request header")
        elif handler is not None:
            return False
        elif request.method == "OPTIONS":
            await self._preflight(request, reply, path)
        elif path in self._methods:
            reply.add_header("Allow", ", ".join(["OPTIONS", *self._methods[path]]))
            await send_echo_error(reply, 405, "Method Not Allowed")
        elif request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            reply.add_header("Cache-Control", "no-cache")
            await reply.whole(200, PAGE, "text/html; charset=UTF-8")
        else:
            await send_not_found(reply)
        return True

    async def _preflight(self, request: Request, reply: Reply, path: str) -> None:
        asked = request.headers.get("access-control-request-headers")
        if asked:
            reply.add_header("Access-Control-Allow-Headers", asked)
        reply.add_header("Access-Control-Allow-Methods", "GET,HEAD,PUT,PATCH,POST,DELETE")
        if path in self._methods:
            reply.add_header("Allow", ", ".join(["OPTIONS", *self._methods[path]]))
        await reply.empty(204)

    async def _run(self, handler: Handler, request: Request, reply: Reply) -> None:
        """Answer, unless the caller leaves first: then the handler is cancelled at once."""
        handling = asyncio.current_task()
        assert handling is not None
        left = False

        async def watch() -> None:
            nonlocal left
            await request.wait_for_leaving()
            left = True
            handling.cancel()

        watcher = asyncio.get_running_loop().create_task(watch())
        try:
            await handler(self._emulator, request, reply)
        except (CallerLeft, Hangup):
            return  # the server closes a connection whose answer is not complete
        except asyncio.CancelledError:
            if not left:
                raise
            handling.uncancel()
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher


async def _refuse_size(reply: Reply) -> None:
    reply.add_header("Connection", "close")
    await send_echo_error(reply, 413, "Request Entity Too Large")
