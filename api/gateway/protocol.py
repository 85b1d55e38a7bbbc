"""HTTP/1 as callers speak it: uvicorn's protocol, strict about what it takes and for how long.

What the parser lets through and servers read differently is refused (``heads``), everything
that a caller can make us keep is bounded, and nothing is waited for without an end
(``connections.EdgeLimits``). docs/http-edge.md has the table.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, NoReturn
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api.gateway.connections import Connections
from api.gateway.cycle import ANSWERING, LEAVING, WRITING, EdgeCycle, OldCallerCycle
from api.gateway.heads import (
    WATCHED,
    HeadRefused,
    Target,
    head_too_large,
    judge_head,
    judge_websocket,
    malformed,
    split_target,
    target_too_long,
)
from api.gateway.refusals import (
    body_too_slow,
    head_too_slow,
    no_place,
    refusal_bytes,
    too_many_pipelined,
)
from api.gateway.tunnel import TunnelProtocol


class EdgeHttp(HttpToolsProtocol):
    """One connection. A server makes a subclass of it that knows its ``places``."""

    places: ClassVar[Connections]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """A caller connects."""
        self._watched: dict[bytes, list[bytes]] = {}
        self._max_headers = self.places.limits.head.max_headers
        self._why: HeadRefused | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._newest: RequestResponseCycle | None = None
        self._running: RequestResponseCycle | None = None
        self._has_place = False
        self._has_begun = self._is_upgrading = self._is_deaf = False
        self._is_in_head = True
        self._head_bytes = self._wire_bytes = self._body_bytes = self._dry_bytes = 0
        self._window_bytes = self._rest_bytes = 0
        self._was_paused = False
        super().connection_made(transport)
        self._has_place = self.places.enter(self)
        if not self._has_place:
            self._is_deaf = True
            self.places.refused("connections")
            transport.write(refusal_bytes(no_place()))
            transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: whatever still runs or waits for it has nobody to answer."""
        self._end_timer()
        self._unset_keepalive_if_required()
        self._leave_place()
        for cycle in (self._running, *(queued for queued, _ in self.pipeline)):
            if isinstance(cycle, EdgeCycle) and not cycle.response_complete:
                cycle.leave()
        self.pipeline.clear()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Close, since somebody else needs the place."""
        self._leave_place()
        self._is_deaf = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes come in: parse them, and look at what they cost."""
        if self._is_deaf:
            self._take_rest(len(data))
            return
        self._unset_keepalive_if_required()
        if self._is_in_head:
            self._head_bytes += len(data)
        else:
            self._wire_bytes += len(data)
            self._dry_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :] if upgrade.args else b""
            if self._is_upgrading:
                self._hand_over(rest)
            elif rest:
                # Another protocol was offered and not taken: it goes on as it is.
                self.data_received(rest)
            return
        except httptools.HttpParserError:
            self._refuse(self._why or malformed())
            return
        self._look_at_cost()

    def on_message_begin(self) -> None:
        """A head begins."""
        if len(self.pipeline) >= self.places.limits.max_pipelined:
            self._give_up(too_many_pipelined())
        self._has_begun = True
        self._watched = {}
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self.url += url
        if len(self.url) > self.places.limits.head.max_target_bytes:
            self._give_up(target_too_long())

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one that comes behind the body is none, and goes nowhere."""
        if not self._is_in_head:
            return
        headers = self.headers
        if len(headers) >= self._max_headers:
            self._give_up(head_too_large())
        name = name.lower()
        if name in WATCHED:
            self._watched.setdefault(name, []).append(value)
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole: judge it, and serve the request when it is its turn."""
        self._is_in_head = self._has_begun = False
        self._wire_bytes = self._body_bytes = self._dry_bytes = self._window_bytes = 0
        self._end_timer()
        parser, headers = self.parser, self.headers
        version, method = parser.get_http_version(), parser.get_method().decode("ascii")
        try:
            judge_head(method, version, self._watched)
            target = split_target(self.url)
            if parser.should_upgrade() and self._should_upgrade():
                judge_websocket(method, version, self._watched)
                self._is_upgrading = True
        except HeadRefused as why:
            self._give_up(why)
        if target.authority is not None:
            # An address counts more than the header beside it.
            headers[:] = [one for one in headers if one[0] != b"host"]
            headers.insert(0, (b"host", target.authority))
        self._fill_scope(method, version, target)
        if not self._is_upgrading:
            self._begin(version)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._dry_bytes = 0
        self._body_bytes += len(body)
        self._window_bytes += len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self._was_paused = True
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._is_in_head, self._head_bytes = True, 0
        self._end_timer()
        if not self._is_upgrading:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is whole."""
        is_whole = self._running is not None and not self._running.more_body
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if not is_whole:
            # It was answered before its body was here; who sends on need not be heard for ever.
            self._end_deaf()
        elif self._running is None or self._running.response_complete:
            self.places.waits(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self.places.busy(self)
        super()._start_asgi_task(cycle, app)

    def _fill_scope(self, method: str, version: str, target: Target) -> None:
        scope: Any = self.scope
        path = target.path.decode("ascii")
        scope["method"] = method
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query
        # As it came, down to a question mark with nothing behind it.
        scope["target"] = self.url if target.authority is None else _rebuilt(target)

    def _begin(self, version: str) -> None:
        kind = OldCallerCycle if version == "1.0" else EdgeCycle
        before = self._newest
        scope: Any = self.scope
        expect = self._watched.get(b"expect")
        self.cycle = self._newest = kind(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expect is not None and version == "1.1",
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {
            LEAVING: self.cycle.when_left,
            WRITING: self.cycle.write_now,
            ANSWERING: self.cycle.answer_now,
        }
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((self.cycle, self.app))

    def _look_at_cost(self) -> None:
        limits = self.places.limits
        if self._is_in_head:
            if not (self._has_begun or self._head_bytes):
                return
            if self._head_bytes > limits.head.max_bytes:
                self._refuse(head_too_large())
            elif self._timer is None:
                self._timer = self.loop.call_later(limits.head_s, self._head_takes_long)
            return
        overhead_bytes = self._wire_bytes - self._body_bytes
        if max(self._dry_bytes, overhead_bytes - 16 * self._body_bytes) > limits.max_dry_bytes:
            self._refuse(malformed())
        elif self._timer is None:
            self._timer = self.loop.call_later(limits.body_window_s, self._look_at_body)

    def _head_takes_long(self) -> None:
        self._timer = None
        self._refuse(head_too_slow())

    def _look_at_body(self) -> None:
        """Once a window: has the caller sent enough, where we let it?"""
        limits = self.places.limits
        self._timer = None
        is_ours = self._was_paused or self.flow.read_paused
        if self._window_bytes < limits.body_window_bytes and not is_ours:
            self._refuse(body_too_slow())
            return
        self._window_bytes, self._was_paused = 0, False
        self._timer = self.loop.call_later(limits.body_window_s, self._look_at_body)

    def _give_up(self, why: HeadRefused) -> NoReturn:
        """From inside a callback of the parser: it stops, and ``data_received`` refuses."""
        self._why = why
        raise why

    def _refuse(self, why: HeadRefused) -> None:
        """Answer in place of the app where nothing else is being answered, and end."""
        self._end_timer()
        self._is_deaf = True
        self.places.refused(why.code)
        cycle = self._newest
        if cycle is not None and cycle is not self._running and cycle.more_body:
            # Half a request that waits for its turn: it never gets it.
            self.pipeline.popleft()
            cycle = self.pipeline[0][0] if self.pipeline else self._running
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False  # answered first, and then it ends
                return
            if isinstance(cycle, EdgeCycle):
                cycle.leave()
            if cycle.response_started:
                self.transport.close()
                return
        self.transport.write(refusal_bytes(why))
        self._end_deaf()

    def _end_deaf(self) -> None:
        """Say that nothing more comes, and take what is under way before closing."""
        self._end_timer()
        self._is_deaf = True
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(self.places.limits.linger_s, self.transport.close)

    def _take_rest(self, size: int) -> None:
        self._rest_bytes += size
        if self._rest_bytes > self.places.limits.linger_bytes:
            self.transport.abort()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave_place(self) -> None:
        if self._has_place:
            self._has_place = False
            self.places.leave(self)

    def _hand_over(self, rest: bytes) -> None:
        """The connection becomes a tunnel, which keeps the place."""
        self._end_timer()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        scope: Any = self.scope
        lines = [scope["method"].encode() + b" " + scope["target"] + b" HTTP/1.1"]
        lines.extend(name + b": " + value for name, value in scope["headers"])
        tunnel = TunnelProtocol(
            config=self.config,
            server_state=self.server_state,
            app_state=self.app_state,
            on_lost=self._leave_place,
        )
        self.places.busy(self)
        tunnel.connection_made(self.transport)
        tunnel.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        self.transport.set_protocol(tunnel)


def _rebuilt(target: Target) -> bytes:
    return target.path + (b"?" + target.query if target.query else b"")
