"""Replicas of one model in LocalAI's distributed mode, through its own scheduling API."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from adapters.localai_answers import ABSENT, refusal
from adapters.localai_calls import LocalAICalls
from contracts.errors import Permanent
from contracts.scaling import Replicas

_LIMIT_S = 10.0
_SCHEDULING = "/api/nodes/scheduling"


class LocalAIReplicas:
    """``Scaler``: LocalAI keeps at least as many as it is told and, by our order, no more.

    LocalAI takes a schedule for any name, so a model that it does not know is refused here.
    """

    def __init__(self, calls: LocalAICalls) -> None:
        self._calls = calls

    async def replicas(self, place: str) -> Replicas:
        rows = await self._list("/api/nodes/models")
        ready = sum(row.get("model_name") == place and row.get("state") == "loaded" for row in rows)
        for rule in await self._list(_SCHEDULING):
            least = rule.get("min_replicas")
            if rule.get("model_name") == place and isinstance(least, int):
                return Replicas(ready=ready, wanted=least)
        return Replicas(ready=ready, wanted=ready)

    async def scale(self, place: str, replicas: int) -> None:
        known = await self._calls.call("GET", "/v1/models", limit_s=_LIMIT_S)
        listed = known.object().get("data") or []
        if place not in {model.get("id") for model in listed if isinstance(model, dict)}:
            raise Permanent(f"{self._calls.node} has no model {place!r}")
        # Both bounds: with room above, LocalAI would add replicas by a rule of its own.
        body = {
            "model_name": place,
            "min_replicas": replicas,
            "max_replicas": max(1, replicas),
        }
        answer = await self._calls.call("POST", _SCHEDULING, body, limit_s=_LIMIT_S)
        if answer.status in ABSENT:
            raise Permanent(f"{self._calls.node} does not run in distributed mode")
        if answer.status >= 300:
            raise refusal(answer, f"scaling of {place}: {answer.message}")

    async def _list(self, path: str) -> list[dict[str, object]]:
        answer = await self._calls.call("GET", path, limit_s=_LIMIT_S)
        if answer.status in ABSENT:
            raise Permanent(f"{self._calls.node} does not run in distributed mode")
        if answer.status >= 300:
            raise refusal(answer, f"GET {path}: {answer.message}")
        return [row for row in answer.body if isinstance(row, dict)] if answer.body else []
