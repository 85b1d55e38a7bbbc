"""The relay: a request on to LocalAI, and its answer back, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from api.gateway.body import Sendable
from api.gateway.caller import Caller
from api.gateway.detect import ApiStyle
from api.gateway.faults import Faults
from api.gateway.fleet import Fleet
from api.gateway.headers import (
    Header,
    RequestHead,
    answer_headers,
    content_encoding,
    content_type,
    outgoing_headers,
)
from api.gateway.live import LiveConfig
from api.gateway.problems import Problem, no_backend, upstream_error, upstream_timeout
from api.gateway.sse import AnswerObserver
from api.gateway.timeouts import Limits, limits_of
from contracts.config import GatewayConfig, NodeConfig
from contracts.errors import Transient
from contracts.ids import NodeId
from contracts.ports import Clock
from contracts.reasons import Reason
from contracts.upstream import (
    OutgoingRequest,
    Unanswered,
    Unreachable,
    Upstream,
    UpstreamResponse,
)

EVENT_STREAM = b"text/event-stream"
_LARGE_BODY_BYTES = 10 * 1024**2
_LINE_STREAM = b"application/x-ndjson"
_UNBUFFERED: Header = (b"x-accel-buffering", b"no")


class AnswerCut(Exception):
    """An answer broke off without a way to say so: the connection is cut.

    Either its format has none, or the caller takes nothing any more (``by_caller``).
    """

    def __init__(self, message: str, *, by_caller: bool = False) -> None:
        super().__init__(message)
        self.by_caller = by_caller


class Relay:
    """Sends to the nodes of a configuration.

    Parameters
    ----------
    upstreams : mapping
        One for each node.
    fleet : Fleet or None
        Who is there; None: the nodes of the configuration.
    """

    def __init__(
        self,
        config: LiveConfig,
        upstreams: Mapping[NodeId, Upstream],
        clock: Clock,
        fleet: Fleet | None = None,
    ) -> None:
        self._live = config
        self._upstreams = upstreams
        self._clock = clock
        self.fleet = Fleet(config, {}, None, clock) if fleet is None else fleet
        self._faults = Faults("localai_unreachable")
        self.fleet.on_left.append(self._faults.forget)

    @property
    def primary(self) -> NodeId:
        """The node for lists, UI and admin calls."""
        return self.fleet.primary

    def node_for(self, node: NodeId | None) -> NodeConfig:
        """The node to send to: the one that is asked for, where it is there."""
        nodes = self.fleet.nodes
        return nodes[self.fleet.primary if node is None or node not in nodes else node]

    def upstream_of(self, node: NodeConfig) -> Upstream:
        """The way there. Raises Problem where it has left long ago."""
        upstream = self._upstreams.get(node.node)
        if upstream is None:
            raise no_backend(f"{node.node} has left.", decision=Reason.NODE_LOST)
        return upstream

    def key_for(self, node: NodeConfig) -> str | None:
        """The key that replaces the caller's.

        Only where this gateway has judged the caller itself: else everybody would come in
        with our key.
        """
        config = self._config
        if not config.asks_for_keys:
            return None
        for one in config.nodes:
            if one.node == node.node or (node.behind and one.behind == node.behind):
                return one.api_key
        return None

    async def send(
        self,
        head: RequestHead,
        body: Sendable | None,
        node: NodeConfig,
        *,
        drop: Iterable[bytes] = (),
        limits: Limits | None = None,
    ) -> UpstreamResponse:
        """Send the request, and wait for the head of its answer. Raises Problem or CallerLeft.

        ``limits`` None: those of the configuration.
        """
        limits = limits or self._limits()
        first_byte_s = limits.first_byte_s
        outgoing = None if body is None else body.outgoing()
        request = OutgoingRequest(
            method=head.method,
            target=head.target,
            headers=self._headers(head, node, drop, is_whole=isinstance(outgoing, bytes)),
            body=outgoing,
            connect_timeout_s=limits.connect_s,
        )
        fault = self._faults.of(node.node)
        try:
            if body is None or isinstance(outgoing, bytes):
                async with self._clock.timeout(first_byte_s):
                    response = await self.upstream_of(node).send(request)
            else:
                response = await self._send_streamed(node, request, body, first_byte_s)
        except TimeoutError:
            raise upstream_timeout(f"LocalAI sent nothing for {first_byte_s:g} s.") from None
        except Transient as error:
            if body is not None:
                body.raise_early_end()
            fault.begin(error, node=node.node, url=node.url)
            if isinstance(error, Unanswered):
                raise upstream_timeout(f"LocalAI did not take the connection: {error}.") from error
            raise upstream_error(_what_broke(error, body)) from error
        fault.end(node=node.node)
        return response

    async def answer(
        self,
        response: UpstreamResponse,
        caller: Caller,
        *,
        headers: Iterable[Header] = (),
        observer: AnswerObserver | None = None,
        on_data: Callable[[], None] = lambda: None,
        style: ApiStyle = ApiStyle.OTHER,
        between_bytes_s: float | None = None,
    ) -> None:
        """Relay an answer to its end; ``headers`` are ours and replace LocalAI's.

        ``between_bytes_s`` None: the limit of the configuration. Any byte counts.
        What was relayed is shown to ``observer`` afterwards, so that it delays nothing, and
        then ``on_data`` is called.
        Raises AnswerCut when the answer broke off without a way to tell the caller, Problem
        when it broke off and the caller was told.
        """
        limit_s = self._limits().between_bytes_s if between_bytes_s is None else between_bytes_s
        try:
            if not caller.has_answer:
                head = _answer_head(response, headers)
                whole = response.rest()
                if whole is None:
                    await caller.start(response.status, head)
                else:
                    # As of most short answers. Nothing is left to wait for, since there is room
                    # behind a head that was just taken.
                    await caller.pass_whole(response.status, head, whole)
                    if observer is not None:
                        observer.feed(whole, self._clock.monotonic_s())
                        on_data()
            while not caller.is_over:
                data = await self._pass_piece(response, caller, observer, limit_s)
                if observer is not None:
                    observer.feed(data, self._clock.monotonic_s())
                    on_data()
                    if not caller.is_over:
                        await self._pour(response, caller, observer, on_data, limit_s)
        except Problem as problem:
            await self._tell_cut(problem, response, caller, observer, style)
            raise
        finally:
            response.close()
        if observer is not None:
            observer.end(self._clock.monotonic_s())
            on_data()

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now

    def _headers(
        self, head: RequestHead, node: NodeConfig, drop: Iterable[bytes], *, is_whole: bool
    ) -> tuple[Header, ...]:
        node_key = self.key_for(node)
        if is_whole:
            return head.outgoing(node_key=node_key, drop=frozenset(drop))
        return tuple(outgoing_headers(head, node_key=node_key, drop=drop))

    def _limits(self) -> Limits:
        return limits_of(self._config, None, load_p99_s=None, ttft_p99_s=None)

    async def _pass_piece(
        self,
        response: UpstreamResponse,
        caller: Caller,
        observer: AnswerObserver | None,
        limit_s: float,
    ) -> bytes:
        """Read and give one piece.

        Its time is limited on both sides: a caller that takes nothing any more must not
        hold its model for ever.
        """
        data: bytes | None = None
        try:
            async with self._clock.timeout(limit_s):
                data = await response.read()
                if not data or response.is_complete:
                    await caller.finish(data)
                else:
                    await caller.give(data)
        except TimeoutError:
            if data is not None:
                raise AnswerCut("the caller takes nothing any more", by_caller=True) from None
            if observer is not None and observer.is_finished:
                # All was said; only the connection was left open.
                await caller.finish()
                return b""
            raise upstream_timeout(f"LocalAI sent nothing more for {limit_s:g} s.") from None
        except Transient as error:
            raise upstream_error(f"LocalAI broke off its answer: {error}.") from error
        return data

    async def _pour(
        self,
        response: UpstreamResponse,
        caller: Caller,
        observer: AnswerObserver,
        on_data: Callable[[], None],
        limit_s: float,
    ) -> None:
        """Pass pieces on as they come, for as long as the caller takes them at once.

        A stream's piece costs half as much this way. Its end, and whatever keeps it waiting, is
        for ``_pass_piece``.
        """
        clock = self._clock
        last_s = clock.monotonic_s()

        def sink(data: bytes) -> bool:
            nonlocal last_s
            if not caller.give_now(data):
                return False
            last_s = clock.monotonic_s()
            observer.feed(data, last_s)
            on_data()
            return True

        rest_s = limit_s
        while rest_s > 0.0:
            try:
                async with clock.timeout(rest_s):
                    await response.pour(sink)
            except TimeoutError:
                rest_s = last_s + limit_s - clock.monotonic_s()
            except Transient as error:
                raise upstream_error(f"LocalAI broke off its answer: {error}.") from error
            else:
                return
        if observer.is_finished:
            # All was said; only the connection was left open.
            await caller.finish()
            return
        raise upstream_timeout(f"LocalAI sent nothing more for {limit_s:g} s.")

    async def _tell_cut(
        self,
        problem: Problem,
        response: UpstreamResponse,
        caller: Caller,
        observer: AnswerObserver | None,
        style: ApiStyle,
    ) -> None:
        """Tell the caller of a stream; of anything else the connection is cut."""
        kind = content_type(response.headers)
        is_events = kind == EVENT_STREAM and style is not ApiStyle.OLLAMA
        is_lines = kind == _LINE_STREAM and style is ApiStyle.OLLAMA
        if observer is None or not (is_events or is_lines) or content_encoding(response.headers):
            raise AnswerCut(problem.message) from problem
        await caller.refuse(problem, style, is_between_events=observer.is_between_events)

    async def _send_streamed(
        self, node: NodeConfig, request: OutgoingRequest, body: Sendable, first_byte_s: float
    ) -> UpstreamResponse:
        """An upload may take long: the time for the first byte begins when it has gone out."""
        sending = asyncio.ensure_future(self.upstream_of(node).send(request))
        try:
            while True:
                before_bytes = body.sent_bytes
                try:
                    async with self._clock.timeout(first_byte_s):
                        return await asyncio.shield(sending)
                except TimeoutError:
                    if body.sent_bytes == before_bytes:
                        raise
        finally:
            if not sending.done():
                sending.cancel()
                await asyncio.wait({sending})


async def read_bounded(response: UpstreamResponse, limit_bytes: int) -> bytes:
    """The beginning of an answer, and then it is closed."""
    pieces: list[bytes] = []
    try:
        while (data := await response.read()) and sum(map(len, pieces)) < limit_bytes:
            pieces.append(data)
    finally:
        response.close()
    return b"".join(pieces)[:limit_bytes]


def is_plain_event_stream(response: UpstreamResponse) -> bool:
    """Whether its bytes can follow on what a stream of ours has begun with."""
    return (
        response.status == 200
        and content_type(response.headers) == EVENT_STREAM
        and content_encoding(response.headers) is None
    )


def _answer_head(response: UpstreamResponse, headers: Iterable[Header]) -> list[Header]:
    """LocalAI's headers, and ours behind them."""
    own = list(headers)
    if content_type(response.headers) == EVENT_STREAM:
        own.append(_UNBUFFERED)
    return [*answer_headers(response.headers, drop=[name for name, _ in own]), *own]


def _what_broke(error: Transient, body: Sendable | None) -> str:
    if isinstance(error, Unreachable):
        return f"LocalAI could not be reached: {error}."
    message = f"LocalAI broke the connection before it answered: {error}."
    if body is not None and body.size_bytes >= _LARGE_BODY_BYTES:
        # It closes while such a body is still being sent, and its own 413 may be lost with it.
        size_mb = body.size_bytes / 1024**2
        message += (
            f" {size_mb:.0f} MB of the body were taken here; "
            "LocalAI may allow less (LOCALAI_UPLOAD_LIMIT, 15 MB unless set)."
        )
    return message
