"""Websockets: admitted and metered as other inference, then relayed byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from api.gateway.caller import Receive, Send
from api.gateway.detect import ApiStyle, match_websocket
from api.gateway.dispatch import Dispatcher, Errand
from api.gateway.headers import Header, RequestHead, outgoing_headers
from api.gateway.inference import InferenceDesk
from api.gateway.live import LiveConfig
from api.gateway.meter import RequestMeter
from api.gateway.passes import Pass
from api.gateway.problems import Problem, error_body, retry_after, upstream_error, upstream_timeout
from api.gateway.proxy import Relay
from api.gateway.recognition import Recognised, Recogniser
from api.gateway.tunnel_relay import (
    SWITCHED,
    Activity,
    Beside,
    CallerGone,
    CallerSide,
    TunnelRelay,
    handshake_bytes,
)
from api.gateway.waiting_room import WaitingRoom
from contracts.config import GatewayConfig
from contracts.errors import Transient
from contracts.events import Origin
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock
from contracts.upstream import Unanswered

SILENT_S = 60.0
"""A websocket over which nothing passed for so long no longer keeps its model resident."""

_REASONS = {401: b"Unauthorized", 429: b"Too Many Requests", 502: b"Bad Gateway"}


class WebsocketDesk:
    """Relays websockets in both directions until either side ends."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        desk: InferenceDesk,
        recogniser: Recogniser,
        room: WaitingRoom,
        relay: Relay,
        dispatcher: Dispatcher,
        clock: Clock,
    ) -> None:
        self._live = config
        self._desk = desk
        self._recogniser = recogniser
        self._room = room
        self._relay = relay
        self._dispatcher = dispatcher
        self._clock = clock

    async def serve(
        self, head: RequestHead, receive: Receive, send: Send, problem: Problem | None
    ) -> None:
        """Serve one handshake and what follows; ``problem`` is why it may not come in."""
        side = CallerSide(receive, send)
        path = match_websocket(head.path)
        headers: list[Header] = []
        try:
            if problem is not None:
                raise problem
            if path is None:
                await self._tunnel(head, None, None, side, Activity(self._clock), lambda: None)
                return
            request = self._desk.recognise(head, path)
            headers = self._desk.answer_headers(request, None)
            try:
                await self._metered(head, request, side)
            finally:
                self._recogniser.forget(request)
        except Problem as refusal:
            if side.status is None:
                style = ApiStyle.OTHER if path is None else path.style
                await side.give(_refusal(refusal, style, headers))
        except CallerGone:
            pass
        finally:
            await side.close()

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now

    async def _metered(self, head: RequestHead, request: Recognised, side: CallerSide) -> None:
        meter = self._desk.open_meter(request)
        activity = Activity(self._clock)
        passed: Pass | None = None
        errand: Errand | None = None
        try:
            passed = await self._admit(request, side)
            errand = way = self._dispatcher.open(request.subject, passed.node)
            node = way.begin().node
            meter.dispatched(node=node, queue_wait_s=passed.queue_wait_s, cold=passed.is_cold)

            def on_answer() -> None:
                meter.first_content(self._clock.monotonic_s())
                way.note_first_content()

            async with Beside(self._keep_count(passed, activity)):
                await self._tunnel(head, node, passed.model, side, activity, on_answer)
            _tell_end(meter, side.status)
        except Problem as problem:
            if errand is not None:
                errand.broke(problem)
            status = side.status or problem.status
            meter.failed(status=status, error=problem.type, origin=problem.origin)
            raise
        except CallerGone:
            # Once it is open, leaving is how a websocket ends.
            if side.status == SWITCHED:
                _tell_end(meter, side.status)
            meter.cancelled()
            raise
        finally:
            if errand is not None:
                errand.close()
            if passed is not None and activity.counts:
                self._room.leave(passed)
            meter.failed(status=side.status, error="shutting_down", origin=Origin.GATEWAY)

    async def _admit(self, request: Recognised, side: CallerSide) -> Pass:
        subject = request.subject
        wishes = request.wishes
        entry = self._room.enter(
            subject.request_id,
            subject.model,
            subject.priority,
            deadline_s=wishes.deadline_s,
            client=subject.client,
            user_weight=request.weight,
        )
        if isinstance(entry, Pass):
            return entry
        waiting = asyncio.ensure_future(self._room.wait(entry))
        leaving = asyncio.ensure_future(_until_gone(side))
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                leaving.result()
            return waiting.result()
        except CallerGone:
            waiting.cancel()
            await asyncio.wait({waiting})
            if not waiting.cancelled() and waiting.exception() is None:
                self._room.leave(waiting.result())
            raise
        finally:
            leaving.cancel()
            waiting.cancel()
            await asyncio.wait({leaving, waiting})

    async def _tunnel(
        self,
        head: RequestHead,
        node_id: NodeId | None,
        model: ModelId | None,
        side: CallerSide,
        activity: Activity,
        on_answer: Callable[[], None],
    ) -> None:
        node = self._relay.node_for(node_id)
        first_byte_s = self._dispatcher.limits(model).first_byte_s
        try:
            tunnel = await self._relay.upstream_of(node).open_tunnel()
        except Unanswered as error:
            raise upstream_timeout(f"LocalAI did not take the connection: {error}.") from error
        except Transient as error:
            raise upstream_error(f"LocalAI could not be reached: {error}.") from error
        headers = outgoing_headers(head, node_key=self._relay.key_for(node))
        relay = TunnelRelay(tunnel, side, activity, self._clock, on_answer)
        await relay.run(
            handshake_bytes(head, headers, tunnel.prefix),
            first_byte_timeout_s=first_byte_s,
        )

    async def _keep_count(self, passed: Pass, activity: Activity) -> None:
        """Take a silent websocket out of what is in flight, and back in when it speaks."""
        while True:
            rest_s = SILENT_S - activity.silent_s
            if rest_s > 0.0:
                await self._clock.sleep(rest_s)
                continue
            self._room.leave(passed)
            activity.counts = False
            await activity.spoken()
            self._room.come_back(passed)
            activity.counts = True


async def _until_gone(side: CallerSide) -> None:
    while True:
        await side.fill()


def _tell_end(meter: RequestMeter, status: int | None) -> None:
    if status == SWITCHED:
        meter.completed(status=SWITCHED)
    else:
        origin = Origin.UPSTREAM if status is None or status >= 500 else Origin.CLIENT
        meter.failed(status=status, error=f"http_{status}", origin=origin)


def _refusal(problem: Problem, style: ApiStyle, headers: list[Header]) -> bytes:
    """An answer to the handshake instead of a websocket."""
    body = error_body(problem, style)
    lines = [
        b"HTTP/1.1 %d %s" % (problem.status, _REASONS.get(problem.status, b"Refused")),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    if problem.retry_after_s is not None:
        lines.append(b"retry-after: " + retry_after(problem.retry_after_s))
    lines.extend(name + b": " + value for name, value in [*headers, *problem.headers])
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
