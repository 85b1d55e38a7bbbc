"""The ASGI application: keys, limits, and which path is answered by what."""

from __future__ import annotations

import asyncio
import contextlib

from emulator.context import Emulator
from emulator.errors import send_echo_error, send_error, send_not_found
from emulator.http import CallerLeft, Receive, Reply, Request, Scope, Send
from emulator.keys import is_allowed, is_foreign_page, may_manage
from emulator.quiet import page
from emulator.routes import ROUTES, Match, Route, Router
from emulator.versions import is_there
from emulator.work import Hangup

LINGER_REAL_S = 0.5
LINGER_BYTES = 256 * 1024**2
MAX_BODY_BYTES = 15_000_000
"""LocalAI's default upload limit."""


class EmulatorApp:
    """Plain ASGI over one ``Emulator``."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = self._emulator = emulator
        options = emulator.options
        self._router = Router(
            tuple(
                route
                for route in ROUTES
                if is_there(route.template, options.version, has_ui=options.has_ui)
            )
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            await self._answer(Request(scope, receive), send)

    async def _answer(self, request: Request, send: Send) -> None:
        clock = self._emulator.clock
        started_s, began_at_s = clock.monotonic_s(), clock.now_s()
        match = self._router.find(request.method, request.raw_path)
        route = match.route
        reply = Reply(request, send, may_compress=route is None or not route.streams)
        if await self._refuse(request, reply):
            return
        if route is None:
            await self._answer_nothing(request, reply, match)
            return
        request.params = match.params
        if not await request.read_body(max_bytes=MAX_BODY_BYTES):
            await self._refuse_size(request, reply)
            return
        await self._run(route, request, reply)
        duration_s = clock.monotonic_s() - started_s
        self._emulator.call_times.add(route.method, route.template, duration_s)
        if self._emulator.settings.get("enable_tracing") is True and request.method == "POST":
            self._emulator.traces.add(request, reply.status, at_s=began_at_s, duration_s=duration_s)

    async def _refuse(self, request: Request, reply: Reply) -> bool:
        """Send what is answered without looking at the body; whether that was all."""
        if request.content_length > MAX_BODY_BYTES:
            await self._refuse_size(request, reply)
        elif not is_allowed(request, self._emulator.options.all_keys):
            reply.add_header("Www-Authenticate", "Bearer")
            await send_error(
                reply, 401, "An authentication key is required", "invalid_request_error"
            )
        elif not may_manage(request, self._emulator.options.user_keys):
            await send_error(reply, 403, "admin access required", "permission_error")
        elif is_foreign_page(request):
            await send_echo_error(reply, 400, "missing csrf token in request header")
        else:
            return False
        return True

    async def _refuse_size(self, request: Request, reply: Reply) -> None:
        """413, and a while to take it in: as Go's server, which lingers before it closes."""

        async def linger() -> None:
            clock = self._emulator.clock
            with contextlib.suppress(TimeoutError):
                async with clock.timeout(LINGER_REAL_S * clock.scale):
                    await request.discard_rest(max_bytes=LINGER_BYTES)

        reply.add_header("Connection", "close")
        reply.before_end = linger
        await send_echo_error(reply, 413, "Request Entity Too Large")

    async def _answer_nothing(self, request: Request, reply: Reply, match: Match) -> None:
        """A path or method that does not exist."""
        if match.methods:
            reply.add_header("Allow", ", ".join(["OPTIONS", *match.methods]))
        if request.method == "OPTIONS":
            await _preflight(request, reply)
        elif match.methods:
            await send_echo_error(reply, 405, "Method Not Allowed")
        elif request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            await page(self._emulator, request, reply)
        else:
            await send_not_found(reply)

    async def _run(self, route: Route, request: Request, reply: Reply) -> None:
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
            await route.handler(self._emulator, request, reply)
        except CallerLeft:
            return
        except Hangup:
            watcher.cancel()
            if self._emulator.script.door is not None:
                self._emulator.script.door.drop(request.client)
                # Whoever returns before the connection is gone has an error answered for it.
                await request.wait_for_leaving()
        except asyncio.CancelledError:
            if not left:
                raise
            handling.uncancel()
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher


async def _preflight(request: Request, reply: Reply) -> None:
    asked = request.headers.get("access-control-request-headers")
    if asked:
        reply.add_header("Access-Control-Allow-Headers", asked)
    if request.headers.get("origin"):
        reply.add_header("Access-Control-Allow-Methods", "GET,HEAD,PUT,PATCH,POST,DELETE")
    await reply.empty(204)
