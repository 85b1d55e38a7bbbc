"""Replicas of one model in LocalAI's distributed mode, through its own scheduling API."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import asyncio
import json

import structlog

from adapters.localai_answers import ABSENT, objects, refusal
from adapters.localai_calls import LocalAICalls
from contracts.errors import HeadstartError, Permanent
from contracts.ports import Clock
from contracts.scaling import Replicas

_log = structlog.get_logger("headstart.scaling")

_LIMIT_S = 10.0
_STOP_S = 45.0
_LOAD_S = 600.0
_SCHEDULING = "/api/nodes/scheduling"
_NOT_LOADED = 404

FIRST_LOAD_AFTER_S = 45.0
"""LocalAI looks at its schedules every 30 s."""


class LocalAIReplicas:
    """``Scaler``: LocalAI keeps at least as many as it is told and, by our order, no more.

    - It takes a schedule for any name, so a model that it does not know is refused here.
    - A schedule replaces the one before: the node selector that somebody has set is kept.
    - It copies only what it has loaded once. Where none is there after it has looked at its
      schedules, the first one is loaded.
    - By itself it always keeps one: for none the model is stopped.
    """

    def __init__(self, calls: LocalAICalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._first: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Give first loads up, and close all connections."""
        tasks = tuple(self._first.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._calls.close()

    async def replicas(self, place: str) -> Replicas:
        ready = await self._ready(place)
        least = (await self._rule(place)).get("min_replicas")
        return Replicas(ready=ready, wanted=least if isinstance(least, int) else ready)

    async def scale(self, place: str, replicas: int) -> None:
        known = await self._calls.call("GET", "/v1/models", limit_s=_LIMIT_S)
        if place not in {model.get("id") for model in objects(known.object().get("data"))}:
            raise Permanent(f"{self._calls.node} has no model {place!r}")
        rule = await self._rule(place)
        if rule.get("spread_all") is True:
            raise Permanent(f"{place} is on every node by LocalAI's own schedule")
        # Both bounds: with room above, LocalAI would add replicas by a rule of its own.
        body: dict[str, object] = {
            "model_name": place,
            "min_replicas": replicas,
            "max_replicas": max(1, replicas),
        }
        selector = _decoded(rule.get("node_selector"))
        if selector:
            body["node_selector"] = selector
        answer = await self._calls.call("POST", _SCHEDULING, body, limit_s=_LIMIT_S)
        if answer.status >= 300:
            raise refusal(answer, f"scaling of {place}: {answer.message}")
        if not replicas:
            await self._stop(place)
        elif place not in self._first:
            task = asyncio.get_running_loop().create_task(self._have_first(place))
            self._first[place] = task
            task.add_done_callback(lambda _done: self._first.pop(place, None))

    async def _stop(self, place: str) -> None:
        first = self._first.get(place)
        if first is not None:
            first.cancel()
        if not await self._ready(place):
            return
        body = {"model": place}
        answer = await self._calls.call(
            "POST", "/backend/shutdown", body, limit_s=_STOP_S, is_slow=True
        )
        if answer.status >= 300 and answer.status != _NOT_LOADED:
            raise refusal(answer, f"stop of {place}: {answer.message}")

    async def _have_first(self, place: str) -> None:
        await self._clock.sleep(FIRST_LOAD_AFTER_S)
        try:
            if await self._ready(place):
                return
            answer = await self._calls.call(
                "POST", "/backend/load", {"model": place}, limit_s=_LOAD_S, is_slow=True
            )
            if answer.status >= 300:
                raise refusal(answer, answer.message)
        except HeadstartError as error:
            _log.warning("first_replica_not_loaded", model=place, error=str(error))
        else:
            _log.info("first_replica_loaded", model=place)

    async def _ready(self, place: str) -> int:
        rows = await self._list("/api/nodes/models")
        return sum(row.get("model_name") == place and row.get("state") == "loaded" for row in rows)

    async def _rule(self, place: str) -> dict[str, object]:
        rules = await self._list(_SCHEDULING)
        return next((rule for rule in rules if rule.get("model_name") == place), {})

    async def _list(self, path: str) -> list[dict[str, object]]:
        answer = await self._calls.call("GET", path, limit_s=_LIMIT_S)
        if answer.status in ABSENT:
            raise Permanent(f"{self._calls.node} does not run in distributed mode")
        if answer.status >= 300:
            raise refusal(answer, f"GET {path}: {answer.message}")
        return objects(answer.body)


def _decoded(selector: object) -> object:
    """It is told as text, and taken as an object."""
    try:
        return json.loads(selector) if isinstance(selector, str) else None
    except ValueError:
        return None
