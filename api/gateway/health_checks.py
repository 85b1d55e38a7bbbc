"""Health checks that are inference: answered by what is resident, and never demand.

Monitoring that sends a test prompt to every model would have each of them loaded in turn, kept
warm, and forecast for ever. Callers that the configuration names are served past all that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

import structlog

from api.gateway.body import RequestBody
from api.gateway.caller import Caller
from api.gateway.detect import InferencePath, read_wishes
from api.gateway.headers import Header, RequestHead, header_text
from api.gateway.live import LiveConfig
from api.gateway.metrics import GatewayMetrics
from api.gateway.problems import Problem
from api.gateway.proxy import Relay
from api.gateway.recognition import Recognised, Recogniser
from api.gateway.residency import RouteBook
from api.gateway.standings import Kind, Standing
from contracts.agents import WARM_UP_AGENT
from contracts.ids import ModelId
from contracts.ports import Clock
from contracts.reasons import Reason

MAX_AGENTS = 1_000
_MAX_AGENT_CHARS = 256
_EXPECT = b"expect"
_WARM_UPS = WARM_UP_AGENT.encode()
_LIKELY = re.compile(r"health|probe|uptime|monitor", re.IGNORECASE)

_log = structlog.get_logger("gateway")


class HealthCheckDesk:
    """Serves requests of callers that are named as health checks.

    A resident model answers; the request makes no events, and no model count as used by it. Of
    one that is not resident the state is told, and nothing is loaded.
    """

    def __init__(
        self,
        *,
        config: LiveConfig,
        recogniser: Recogniser,
        book: RouteBook,
        relay: Relay,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._live = config
        self._recogniser = recogniser
        self._book = book
        self._relay = relay
        self._metrics = metrics
        self._clock = clock
        self._agents: set[bytes] = set()

    def takes(self, head: RequestHead) -> bool:
        """Whether the caller is named as one; one that may be is told once in the log."""
        agent = head.get(b"user-agent")
        if agent is None:
            return False
        if agent.startswith(_WARM_UPS):
            return True
        patterns = self._live.now.health_check_agents
        if patterns and matcher(patterns).fullmatch(_text(agent)) is not None:
            return True
        if agent not in self._agents:
            self._look_at(agent)
        return False

    async def serve(self, head: RequestHead, path: InferencePath, caller: Caller) -> None:
        """Serve one. Raises Problem, CallerLeft or AnswerCut as the inference desk does."""
        config = self._live.now
        body = RequestBody(
            caller, limit_bytes=config.max_body_bytes, spool_bytes=config.spool_bytes
        )
        try:
            request = await self._recogniser.read(head, path, body, read_wishes(()))
            try:
                await self._serve(head, path, body, request, caller)
            finally:
                self._recogniser.forget(request)
        finally:
            body.close()

    async def _serve(
        self,
        head: RequestHead,
        path: InferencePath,
        body: RequestBody,
        request: Recognised,
        caller: Caller,
    ) -> None:
        model = request.subject.model
        standing = self._book.standing(model, self._clock.now_s())
        headers: list[Header] = [(b"x-request-id", request.shown_id.encode())]
        if model is not None:
            headers.append((b"x-headstart-model", header_text(model)))
        if model is not None and (standing.kind is not Kind.FORWARD or standing.is_cold):
            self._metrics.health_check("not_resident")
            problem = not_resident(model, standing, expected_s=self._book.load_p99_s(model))
            await caller.refuse(problem, path.style, headers)
            return
        if body.is_complete:
            caller.watch()
        headers.append((b"x-headstart-decision", standing.reason.value.encode()))
        has_body = head.has_body or body.size_bytes > 0
        response = await self._relay.send(
            head,
            body if has_body else None,
            self._relay.node_for(standing.node),
            drop=[_EXPECT] if body.is_complete else (),
        )
        self._metrics.health_check("forwarded")
        await self._relay.answer(response, caller, headers=headers, style=path.style)

    def _look_at(self, agent: bytes) -> None:
        """Say once that a caller looks like a health check."""
        if len(self._agents) >= MAX_AGENTS:
            self._agents.clear()
        self._agents.add(agent)
        text = _text(agent)
        if _LIKELY.search(text):
            _log.warning(
                "inference_by_health_check",
                agent=text,
                consequence="its requests count as demand and load models",
                instead="name it in gateway.health_check_agents",
            )


def not_resident(model: ModelId, standing: Standing, *, expected_s: float | None) -> Problem:
    """A health check of a model that would have to be loaded for it."""
    state = "cooling_down" if standing.kind is Kind.REFUSE else "cold"
    return Problem(
        status=503,
        type="model_loading",
        message=f"The model {model} is not resident, and a health check does not load it.",
        retry_after_s=standing.retry_after_s or expected_s or 5.0,
        loading={"model": model, "state": state, "elapsed_s": None, "expected_s": expected_s},
        decision=Reason.MODEL_LOADING,
    )


@lru_cache(maxsize=8)
def matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    """One expression for all patterns (``*`` and ``?``), whatever their case."""
    return re.compile("|".join(translate(pattern) for pattern in patterns), re.IGNORECASE)


def _text(agent: bytes) -> str:
    return agent[:_MAX_AGENT_CHARS].decode("latin-1")
