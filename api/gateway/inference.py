"""One inference request, from its first byte to its one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.gateway.body import RequestBody, SpoolRoom
from api.gateway.caller import Caller, CallerLeft
from api.gateway.detect import BadHeader, InferencePath, Peek, Wishes
from api.gateway.detours import Detours
from api.gateway.dispatch import Dispatcher, Errand
from api.gateway.endings import late_error, tell_end
from api.gateway.first_words import listen
from api.gateway.ghosts import Ghost, GhostDesk
from api.gateway.head_words import LENGTH
from api.gateway.headers import Header, RequestHead
from api.gateway.keepalive import KeepAlive
from api.gateway.known_names import KnownNames
from api.gateway.live import LiveConfig
from api.gateway.meter import RequestMeter
from api.gateway.metrics import GatewayMetrics
from api.gateway.passes import Pass, TurnedOff, Waiter
from api.gateway.problems import Problem, bad_header, preempted, shutting_down
from api.gateway.proxy import (
    AnswerCut,
    Relay,
    is_plain_event_stream,
)
from api.gateway.recognition import Recognised, Recogniser
from api.gateway.renamed_answers import RenamedBody, with_asked_name
from api.gateway.repeats import Repeats
from api.gateway.serving_headers import serving_headers
from api.gateway.slots import NoSlot
from api.gateway.sse import observe
from api.gateway.telemetry import Telemetry
from api.gateway.turns import Turn
from api.gateway.undropped import Undropped
from api.gateway.waiting_room import WaitingRoom
from contracts.config import GatewayConfig
from contracts.events import Origin, RequestPhase
from contracts.ports import Clock
from contracts.upstream import UpstreamResponse

_EXPECT = b"expect"
_ACCEPT_ENCODING = b"accept-encoding"


class InferenceDesk:
    """Serves inference requests: recognise, admit, relay, and tell how each ended."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        recogniser: Recogniser,
        room: WaitingRoom,
        relay: Relay,
        dispatcher: Dispatcher,
        ghosts: GhostDesk,
        detours: Detours,
        names: KnownNames,
        telemetry: Telemetry,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._live = config
        self._bodies = SpoolRoom()
        self._recogniser = recogniser
        self._room = room
        self._relay = relay
        self._dispatcher = dispatcher
        self._ghosts = ghosts
        self._detours = detours
        self._names = names
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._repeats = Repeats(metrics, clock)
        self._keepalive = KeepAlive(config, room, clock)

    async def serve(self, head: RequestHead, path: InferencePath, caller: Caller) -> None:
        """Serve one request. Raises CallerLeft, AnswerCut, or Problem while nothing was said."""
        body = RequestBody(
            caller,
            limit_bytes=self._config.max_body_bytes,
            spool_bytes=self._config.spool_bytes,
            room=self._bodies,
        )
        try:
            wishes = self.wishes(head)
            request = await self._recogniser.read(head, path, body, wishes)
            try:
                await self._metered(head, path, body, request, caller)
            finally:
                self._recogniser.forget(request)
        finally:
            body.close()

    def wishes(self, head: RequestHead) -> Wishes:
        """What the caller asks of us. Raises Problem (400)."""
        try:
            return head.wishes
        except BadHeader as error:
            raise bad_header(error.header, str(error)) from None

    def recognise(self, head: RequestHead, path: InferencePath) -> Recognised:
        """What a request is that has no body, such as a websocket."""
        return self._recogniser.recognise(head, path, Peek(), self.wishes(head))

    def open_meter(self, request: Recognised) -> RequestMeter:
        """Tell that a request was received; it must come to an end."""
        return RequestMeter(
            request.subject, telemetry=self._telemetry, metrics=self._metrics, clock=self._clock
        )

    def answer_headers(
        self,
        request: Recognised,
        passed: Pass | None,
        problem: Problem | None = None,
        *,
        has_gone: bool = True,
    ) -> list[Header]:
        """What every answer to an inference request says about how it was served.

        ``has_gone``: it was sent to the node of ``passed``; else no node served it yet.
        """
        node = None
        if passed is not None and has_gone and self._config.expose_topology:
            node = self._relay.node_for(passed.node).node
        return serving_headers(request, passed, problem, node=node)

    def _refusal_headers(self, request: Recognised, turn: Turn, problem: Problem) -> list[Header]:
        """The same for an answer of our own, also where the request never went anywhere."""
        return self.answer_headers(request, turn.so_far, problem, has_gone=turn.passed is not None)

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now

    async def _metered(
        self,
        head: RequestHead,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        caller: Caller,
    ) -> None:
        request = self._repeats.marked(request, body)
        meter = self.open_meter(request)
        detour = self._detours.open(head, path, body, request)
        turn = Turn(self._room, head, request, caller, detour)
        was_served = False
        try:
            await self._served(head, path, body, request, turn, caller, meter)
            was_served = True
        except Problem as problem:
            status = caller.status or problem.status
            meter.failed(status=status, error=problem.type, origin=problem.origin)
            self._metrics.refused(problem.type)
            self._repeats.note(request, body, problem)
            if not caller.is_over:
                headers = self._refusal_headers(request, turn, problem)
                await caller.refuse(problem, path.style, headers)
        except AnswerCut as cut:
            if cut.by_caller:
                meter.cancelled()
            meter.failed(status=caller.status, error="upstream_error", origin=Origin.UPSTREAM)
            raise
        except (asyncio.CancelledError, CallerLeft):
            if caller.has_left:
                meter.cancelled()
                raise
            if turn.is_preempted:
                await self._give_way(path, body, request, turn, caller, meter)
                return
            stopping = shutting_down()
            status = caller.status or stopping.status
            meter.failed(status=status, error=stopping.type, origin=stopping.origin)
            if caller.has_answer and turn.passed is not None:
                raise  # in the middle of LocalAI's answer: it is cut
            headers = self._refusal_headers(request, turn, stopping)
            await caller.refuse(stopping, path.style, headers)
        finally:
            turn.end(was_served=was_served)
            # Whatever else happens is a bug; still the request has one end.
            meter.failed(status=caller.status, error="internal_error", origin=Origin.GATEWAY)

    async def _served(
        self,
        head: RequestHead,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> None:
        """Wait and relay; and wait again where LocalAI has no slot and said nothing else."""
        await self._names.check(request.subject.model)
        entry = turn.enter()
        while True:
            await self._admitted(path, body, request, entry, turn, caller, meter)
            refusal = await self._relayed(head, path, body, request, turn, caller, meter)
            if refusal is None:
                return
            if isinstance(refusal, Ghost):
                self._dispatcher.note_retry("ghost")
                meter.waits_again()
                entry = turn.wait_again()
                # Where it is cleared already nothing else lets it go.
                self._room.reconsider_all()
                continue
            self._metrics.put_back(request.subject.priority)
            entry = turn.put_back(refusal)

    async def _admitted(
        self,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        entry: Pass | Waiter,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> None:
        while isinstance(entry, Waiter):
            meter.phase = RequestPhase.LOADING if entry.is_cold else RequestPhase.QUEUED
            try:
                async with self._attended(path, body, request, entry, caller):
                    # In here: a caller that leaves while the comments are stopped must give
                    # it back.
                    turn.go(await self._room.wait(entry))
                return
            except (Problem, TurnedOff) as cause:
                entry = turn.enter_elsewhere(cause)
        turn.go(entry)
        if body.is_complete:
            caller.watch()

    async def _give_way(
        self,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> None:
        """It was cancelled for a realtime request, and its caller is told to come again."""
        meter.cancelled(reason="preempted")
        self._metrics.preempted(request.subject.priority)
        caller.resume()
        if turn.has_begun:
            raise AnswerCut("preempted in the middle of its answer")
        problem = preempted()
        self._repeats.note(request, body, problem)
        await caller.refuse(problem, path.style, self._refusal_headers(request, turn, problem))

    @asynccontextmanager
    async def _attended(
        self,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        waiter: Waiter,
        caller: Caller,
    ) -> AsyncIterator[None]:
        """While it waits: notice when the caller leaves, and keep its connection alive."""
        tasks = []
        if body.is_complete:
            caller.watch()
        else:
            # Reading on is the only way to notice that an uploading caller leaves.
            tasks.append(asyncio.ensure_future(self._read_on(body, caller)))
        if request.subject.stream and path.takes_comments and self._config.keepalive_comments:
            comments = self._keepalive.run(
                waiter,
                caller,
                lambda: self.answer_headers(
                    request, self._room.so_far(waiter.ticket.model, waiter), has_gone=False
                ),
            )
            tasks.append(asyncio.ensure_future(comments))
        try:
            yield
        except asyncio.CancelledError:
            if body.problem is None:
                raise
            caller.resume()
            raise body.problem from None
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _read_on(self, body: RequestBody, caller: Caller) -> None:
        try:
            await body.read_all()
        except CallerLeft:
            caller.interrupt()
        except Problem:
            caller.interrupt(has_left=False)
        else:
            caller.watch()

    async def _relayed(
        self,
        head: RequestHead,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> NoSlot | Ghost | None:
        """Send it and relay the answer, unless it may wait once more for a slot or a load."""
        passed = turn.passed
        assert passed is not None
        errand = self._dispatcher.open(turn.subject, passed.node)
        try:
            return await self._run(errand, head, path, body, request, turn, caller, meter)
        finally:
            errand.close()

    async def _sent(
        self,
        errand: Errand,
        head: RequestHead,
        body: RequestBody,
        request: Recognised,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> UpstreamResponse:
        # What was expected has been answered by us; and comments went out unencoded.
        drop = [_EXPECT] if body.is_complete else []
        outgoing: RequestBody | RenamedBody | None = body
        if not head.has_body and body.size_bytes == 0:
            outgoing = None
        if turn.detour is not None and turn.is_renamed:
            outgoing = RenamedBody(body, turn.detour)
            drop.append(LENGTH)
        if caller.has_answer or turn.is_renamed:
            drop.append(_ACCEPT_ENCODING)
        sending = errand.send(
            head,
            outgoing,
            drop=drop,
            on_node=lambda node: turn.goes_to(node, meter),
        )
        if body.is_complete and request.subject.model in self._config.drains_on_leave:
            turn.undropped = Undropped(self._clock, errand.limits.between_bytes_s)
            return await turn.undropped.send(sending)
        return await sending

    async def _run(
        self,
        errand: Errand,
        head: RequestHead,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        turn: Turn,
        caller: Caller,
        meter: RequestMeter,
    ) -> NoSlot | Ghost | None:
        may_be_put_back = turn.may_be_put_back and body.is_complete
        response = await self._sent(errand, head, body, request, turn, caller, meter)
        if may_be_put_back:
            response, refusal = await listen(response)
            if refusal is not None:
                response.close()
                return refusal
            ghost = await self._ghosts.met(turn.subject.model, errand.node, response)
            if ghost is not None:
                response.close()
                return ghost
        if turn.detour is not None and turn.is_renamed:
            limit_s = errand.limits.between_bytes_s
            response = await with_asked_name(response, turn.detour, self._clock, limit_s)
        if caller.has_answer and not is_plain_event_stream(response):
            errand.answered(response.status, is_whole=True)
            raise await late_error(response)
        turn.begin_answer()
        observer = observe(path.style, response.headers)
        meter.watch(observer)

        def on_data() -> None:
            # The words of an error are no content: else a name that somebody made up had a
            # measured model behind it, and would be kept like one.
            is_answer = response.status < 400 and observer.error is None
            if is_answer and observer.first_content_at_s is not None:
                meter.first_content(observer.first_content_at_s)
                errand.note_first_content()

        try:
            await self._relay.answer(
                response,
                caller,
                headers=self.answer_headers(request, turn.passed),
                observer=observer,
                on_data=on_data,
                style=path.style,
                between_bytes_s=errand.limits.between_bytes_s,
            )
        except (Problem, AnswerCut) as broken:
            errand.broke(broken)
            raise
        errand.answered(
            response.status, is_whole=observer.error is None and not observer.is_truncated
        )
        tell_end(meter, observer, response.status)
        return None
