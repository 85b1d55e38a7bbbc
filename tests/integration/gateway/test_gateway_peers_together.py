"""A gateway that hears others keeps the slots, the queues and a key's rate with them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

import aiohttp
import pytest

from contracts.config import CallerKey
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId
from contracts.messages import GatewayBeat
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

CHAT = ModelId("small-chat")
MODELS = [{"name": CHAT, "footprint_mb": 100, "load_s": 1.0}]
SECRET = "a-key-of-somebody"
TEAM = CallerKey(name="team", digest=hashlib.sha256(SECRET.encode()).digest(), requests_per_min=2.0)


def beats(gateway: RunningGateway, **fields) -> None:
    beat = GatewayBeat(gateway=GatewayId("gateway-2"), at_s=gateway.clock.now_s(), **fields)
    gateway.do(gateway.to_controller.send(beat))


def until(gateway: RunningGateway, is_so: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not is_so():  # noqa: ASYNC110 - a few steps of the loop
            await asyncio.sleep(0.002)

    gateway.do(wait())


def test_what_others_hold_is_left_to_them_until_they_go():
    # In real time, so that a peer of one beat does not fall silent meanwhile.
    with (
        RunningEmulator(MODELS) as emulator,
        RunningGateway(emulator.url, scale=1.0, slots={CHAT: 4}) as gateway,
    ):
        admission = gateway.service._admission

        def limit() -> int | None:
            return admission.slots.limit(CHAT, 0.0)

        assert limit() == 4
        queued = {PriorityClass.BATCH: 45}
        beats(gateway, in_flight={CHAT: 3}, queued=queued)
        until(gateway, lambda: limit() == 2)
        places = admission.places(PriorityClass.BATCH, 50)
        assert places == 25
        beats(gateway, leaving=True)
        until(gateway, lambda: limit() == 4)


def test_what_a_key_was_let_in_for_elsewhere_counts_here():
    async def ask(gateway: RunningGateway) -> int:
        body = {"model": CHAT, "messages": []}
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{gateway.url}/v1/chat/completions", json=body) as answer,
        ):
            return answer.status

    with (
        RunningEmulator(MODELS) as emulator,
        RunningGateway(emulator.url, scale=1.0, callers=(TEAM,)) as gateway,
    ):
        gateway.routes({CHAT: Residency.HOT})
        beats(gateway, admitted={"team": 7})
        beats(gateway, admitted={"team": 9})
        peers = gateway.service.gate._peers
        until(gateway, lambda: peers._admitted["team"] == 2)
        assert asyncio.run(ask(gateway)) == 429
        beats(gateway, admitted={"team": 9})
        assert asyncio.run(ask(gateway)) == 429
