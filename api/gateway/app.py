"""The gateway as one plain ASGI callable: own paths, keys, and who serves what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from api.gateway.body import RequestBody
from api.gateway.caller import Caller, CallerLeft, Receive, Send
from api.gateway.cycle import ANSWERING, LEAVING, WRITING
from api.gateway.detect import (
    ApiStyle,
    InferencePath,
    lists_models,
    match_path,
    match_websocket,
    straight_path,
)
from api.gateway.gate import Gate
from api.gateway.headers import RequestHead
from api.gateway.health_checks import HealthCheckDesk
from api.gateway.inference import InferenceDesk
from api.gateway.jobs_desk import JobsDesk
from api.gateway.list_desk import ListDesk
from api.gateway.live import LiveConfig
from api.gateway.metrics import GatewayMetrics
from api.gateway.model_lists import ModelLists
from api.gateway.origins import OriginBook
from api.gateway.own_paths import OWN_PREFIX, OwnPaths
from api.gateway.problems import Problem, body_too_large, shutting_down
from api.gateway.proxy import AnswerCut, Relay
from api.gateway.recognition import Recogniser
from api.gateway.telemetry import Telemetry
from api.gateway.websockets import WebsocketDesk
from contracts.config import GatewayConfig
from contracts.events import IntentKind, IntentSignal

Scope = Mapping[str, Any]

_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""LocalAI's own probes need no key, and neither do ours."""


class GatewayApp:
    """Serves everything that comes in."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        desk: InferenceDesk,
        health_checks: HealthCheckDesk,
        jobs: JobsDesk,
        websockets: WebsocketDesk,
        relay: Relay,
        own: OwnPaths,
        recogniser: Recogniser,
        telemetry: Telemetry,
        metrics: GatewayMetrics,
        gate: Gate,
        lists: ListDesk,
        model_lists: ModelLists,
    ) -> None:
        self._live = config
        self._gate = gate
        self._lists = lists
        self._model_lists = model_lists
        self._desk = desk
        self._health_checks = health_checks
        self._jobs = jobs
        self._websockets = websockets
        self._relay = relay
        self._own = own
        self._recogniser = recogniser
        self._telemetry = telemetry
        self._metrics = metrics
        self._origins = OriginBook()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry: ``http`` and ``websocket`` (of ``tunnel.TunnelProtocol``)."""
        self._live.hold()
        head = _straight(_head(scope))
        head.key = self._gate.key_of(head)
        if scope["type"] == "websocket":
            problem = self._gate.problem_of(head, match_websocket(head.path))
            await self._websockets.serve(head, receive, send, problem)
            return
        extensions = scope.get("extensions", {})
        caller = Caller(
            receive,
            send,
            origin=head.get(b"origin"),
            origins=self._origins,
            # Taken out, since the request would hold itself by them.
            when_left=extensions.pop(LEAVING, None),
            write_now=extensions.pop(WRITING, None),
            answer_now=extensions.pop(ANSWERING, None),
        )
        try:
            await self._serve(head, caller)
        except (CallerLeft, asyncio.CancelledError):
            # Else the server stops: it cuts what is not complete, and that is no fault.
            if caller.has_left:
                caller.resume()
        except AnswerCut:
            # To return without the answer's end makes the server cut the connection.
            pass
        finally:
            caller.let_go()

    async def _serve(self, head: RequestHead, caller: Caller) -> None:
        path: InferencePath | None = None
        try:
            if head.path.startswith(OWN_PREFIX):
                await self._own.serve(head, caller)
                return
            path = match_path(head.method, head.path)
            if self._jobs.takes(head):
                await self._jobs.serve(head, caller)
            else:
                await self._admitted(head, path, caller)
        except Problem as problem:
            if caller.is_over:
                return
            if caller.has_answer:
                raise AnswerCut(problem.message) from problem
            self._metrics.refused(problem.type)
            await self._refuse(problem, head, path, caller)
        except asyncio.CancelledError:
            if caller.has_left or caller.has_answer:
                raise
            await self._refuse(shutting_down(), head, path, caller)

    async def _refuse(
        self, problem: Problem, head: RequestHead, path: InferencePath | None, caller: Caller
    ) -> None:
        """Before anything was made of it but what its address says."""
        if path is None:
            await caller.refuse(problem, ApiStyle.OTHER)
            return
        shown_id = self._recogniser.shown_id(head)
        await caller.refuse(problem, path.style, [(b"x-request-id", shown_id.encode())])

    async def _admitted(
        self, head: RequestHead, path: InferencePath | None, caller: Caller
    ) -> None:
        """What is LocalAI's to answer, for those who may come in."""
        problem = self._gate.problem_of(head, path)
        if problem is not None:
            raise problem
        length = head.content_length
        if length is not None and length > self._config.max_body_bytes:
            raise body_too_large(self._config.max_body_bytes)
        if path is None:
            await self._pass_through(head, caller)
        elif self._health_checks.takes(head):
            await self._health_checks.serve(head, path, caller)
        else:
            await self._desk.serve(head, path, caller)

    async def _pass_through(self, head: RequestHead, caller: Caller) -> None:
        """All that makes no answer out of a model: no use, no demand, never held back."""
        if lists_models(head.method, head.path):
            self._telemetry.emit(
                IntentSignal(
                    **self._telemetry.stamp(),
                    client=self._recogniser.client_digest(head),
                    kind=IntentKind.MODELS_LISTED,
                    model=None,
                )
            )
        body = None
        if head.has_body:
            body = RequestBody(
                caller,
                limit_bytes=self._config.max_body_bytes,
                spool_bytes=self._config.spool_bytes,
            )
        else:
            caller.watch()
        listing = self._lists.listing_for(head)
        drop = () if listing is None else (b"accept-encoding",)
        merging = self._model_lists.listing_for(head)
        if merging is not None:
            response = await self._model_lists.send(head, merging)
        else:
            primary = self._relay.node_for(None)
            response = await self._relay.send(head, body, primary, drop=drop)
        self._metrics.passed(response.status)
        if listing is not None and self._lists.is_list(response):
            await self._lists.answer(head, listing, response, caller)
        else:
            await self._relay.answer(response, caller)

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now


def _straight(head: RequestHead) -> RequestHead:
    """Without doubled slashes, where LocalAI would serve it then."""
    if b"//" not in head.target:
        return head
    raw_path, mark, query = head.target.partition(b"?")
    straight = straight_path(head.method, raw_path)
    if straight is None:
        return head
    path = unquote(straight.decode("ascii", "replace"))
    return replace(head, path=path, target=straight + mark + query)


def _head(scope: Scope) -> RequestHead:
    client = scope.get("client")
    query = scope["query_string"]
    target = scope.get("target") or scope["raw_path"] + (b"?" + query if query else b"")
    return RequestHead(
        method=scope.get("method", "GET"),
        path=scope["path"],
        target=target,
        query=query,
        headers=tuple(scope["headers"]),
        scheme=scope.get("scheme", "http"),
        client=client[0] if client else None,
    )
