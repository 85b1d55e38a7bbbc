"""Requests for a model that is not resident, and a controller's word that it loads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from contracts.ids import ModelId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason

COLD = ModelId("cold")


def post(session: aiohttp.ClientSession, gateway, model: str = "cold", **body: object):
    """A chat that is under way: cancel it, and its connection is closed."""

    async def run() -> tuple[int, Mapping[str, str], bytes]:
        url = gateway.url + "/v1/chat/completions"
        async with session.post(url, json={"model": model, **body}) as answer:
            return answer.status, answer.headers, await answer.read()

    return asyncio.create_task(run())


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def accept(gateway, expected_s: float | None = None) -> None:
    answer = LoadAnswer(model=COLD, accepted=True, reason=Reason.DEMAND, expected_s=expected_s)
    await gateway.to_gateways.send(answer)
