"""The gateway's own health and metrics, under ``/headstart``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from api.gateway.caller import Caller
from api.gateway.headers import RequestHead
from api.gateway.metrics import GatewayMetrics
from api.gateway.problems import Problem, not_found
from api.gateway.proxy import Relay
from api.gateway.residency import RouteBook
from contracts.ports import Clock

OWN_PREFIX = "/headstart/"
_READY_CACHE_S = 1.0
_READY_REAL_S = 2.0
_METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = b"application/openmetrics-text"
_OPENMETRICS_TYPE = b"application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class Links:
    """How the gateway stands with Redis. None: there is none to stand with."""

    redis_is_up: bool | None = None


class OwnPaths:
    """Answers for itself; depends on nothing but what it reports."""

    def __init__(
        self,
        *,
        relay: Relay,
        book: RouteBook,
        links: Links,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._relay = relay
        self._book = book
        self._links = links
        self._metrics = metrics
        self._clock = clock
        self._checked_at_s: float | None = None
        self._fault: str | None = None

    async def serve(self, head: RequestHead, caller: Caller) -> None:
        """Answer one request. Raises Problem (404)."""
        if head.method not in ("GET", "HEAD"):
            raise not_found(f"{head.method} {head.path}")
        match head.path:
            case "/headstart/healthz":
                await _say(caller, 200, {"status": "ok"})
            case "/headstart/readyz":
                await self._ready(caller)
            case "/headstart/metrics":
                is_open = _OPENMETRICS in (head.get(b"accept") or b"")
                text = await asyncio.to_thread(self._metrics.render, openmetrics=is_open)
                told = _OPENMETRICS_TYPE if is_open else _METRICS_TYPE
                await caller.answer(200, text, [(b"content-type", told)])
            case _:
                raise not_found(head.path)

    async def _ready(self, caller: Caller) -> None:
        """Ready when LocalAI answers; Redis and the controller may be away."""
        fault = await self._localai_fault()
        table = self._book.table
        redis = self._links.redis_is_up
        routing: dict[str, object] | None = None
        if table is not None:
            age_s = max(0.0, self._clock.now_s() - table.made_at_s)
            routing = {"mode": table.mode.value, "age_s": round(age_s, 1)}
        report: Mapping[str, object] = {
            "status": "ready" if fault is None else "not_ready",
            "localai": "answers" if fault is None else fault,
            "redis": "off" if redis is None else ("up" if redis else "away"),
            "routing": routing,
        }
        await _say(caller, 200 if fault is None else 503, report)

    async def _localai_fault(self) -> str | None:
        """Why LocalAI cannot be reached; asked at most once a second."""
        now_s = self._clock.monotonic_s()
        if self._checked_at_s is None or now_s - self._checked_at_s >= _READY_CACHE_S:
            self._checked_at_s = now_s
            self._fault = await self._ask_localai()
        return self._fault

    async def _ask_localai(self) -> str | None:
        node = self._relay.node_for(None)
        probe = RequestHead(
            method="GET",
            path="/readyz",
            target=b"/readyz",
            query=b"",
            headers=((b"host", b"localhost"),),
            scheme="http",
            client=None,
        )
        try:
            async with self._clock.timeout(_READY_REAL_S * self._clock.scale):
                response = await self._relay.send(probe, None, node)
        except TimeoutError:
            return f"{node.node} does not answer in {_READY_REAL_S:g} s"
        except Problem as problem:
            return problem.message
        response.close()
        return None if response.status < 500 else f"{node.node} answers {response.status}"


async def _say(caller: Caller, status: int, report: Mapping[str, object]) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await caller.answer(status, msgspec.json.encode(report), headers)
