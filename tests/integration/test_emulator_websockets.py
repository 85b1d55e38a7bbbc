"""The emulator's websockets, as a client's library speaks to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

PARTS = {"vad": "gate", "transcription": "ears", "llm": "talk", "tts": "voice"}
MODELS = (
    {"name": "talk", "load_s": 0.1, "answer_tokens": 3},
    {"name": "pipe", "load_s": 0.1, "pipeline": PARTS},
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture(params=["alone", "through the gateway"])
async def url(request, emulator: RunningEmulator) -> AsyncIterator[str]:
    if request.param == "alone":
        yield emulator.url
        return
    with RunningGateway(emulator.url) as gateway:
        gateway.routes({"talk": Residency.HOT, "pipe": Residency.HOT})
        yield gateway.url


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def read(socket: aiohttp.ClientWebSocketResponse, last: str) -> list[dict[str, Any]]:
    """Events up to one of this type."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != last:
        events.append(await socket.receive_json(timeout=10.0))
    return events


async def test_a_realtime_session_answers_in_text(http, url):
    async with http.ws_connect(f"{url}/v1/realtime?model=pipe", protocols=["realtime"]) as socket:
        assert socket.protocol is None, "LocalAI agrees on no subprotocol"
        created = await socket.receive_json()
        assert created["type"] == "session.created"
        assert created["session"]["model"] == "pipe"
        await socket.send_json({"type": "session.update", "session": {"instructions": "be brief"}})
        assert (await socket.receive_json())["session"]["instructions"] == "be brief"
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
        await socket.send_json({"type": "conversation.item.create", "item": item})
        assert (await socket.receive_json())["type"] == "conversation.item.added"
        options = {"output_modalities": ["text"]}
        await socket.send_json({"type": "response.create", "response": options})
        events = await read(socket, "response.done")
        text = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert "".join(text) == "word word word "
        assert events[-1]["response"]["status"] == "completed"


async def test_a_spoken_answer_can_be_cancelled(http, url, emulator):
    before = len(emulator.events("caller_left"))
    headers = {"X-Emulator-Service-S": "500"}
    async with http.ws_connect(f"{url}/v1/realtime?model=pipe", headers=headers) as socket:
        await socket.receive_json()
        await socket.send_json({"type": "response.create"})
        await read(socket, "response.output_audio.delta")
        await socket.send_json({"type": "response.cancel"})
        events = await read(socket, "response.done")
        assert events[-1]["response"]["status"] == "cancelled"
    await emulator.wait_for("caller_left", count=before + 1)


async def test_a_model_that_is_no_pipeline_is_an_event_after_the_handshake(http, url):
    async with http.ws_connect(f"{url}/v1/realtime?model=talk") as socket:
        error = await socket.receive_json()
        assert error["error"]["code"] == "invalid_model"
        assert (await socket.receive()).type in (
            aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR,
        )  # fmt: skip


async def test_responses_over_a_websocket(http, url):
    async with http.ws_connect(f"{url}/v1/responses") as socket:
        await socket.send_json({"type": "nonsense"})
        assert "unsupported message type" in (await socket.receive_json())["error"]["message"]
        await socket.send_str("no json")
        assert (await socket.receive_json())["error"]["message"] == "invalid JSON message"
        await socket.send_json({"type": "response.create", "model": "none", "input": "hi"})
        assert (await socket.receive_json())["error"]["code"] == "model_not_found"
        await socket.send_json({"type": "response.create", "model": "talk", "input": "hi"})
        events = await read(socket, "response.completed")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_pings_are_answered_and_closing_is_agreed_on(http, url):
    async with http.ws_connect(f"{url}/v1/responses", autoping=False) as socket:
        await socket.ping(b"still there?")
        message = await socket.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.PONG, b"still there?")
        await socket.close(code=4001)
        assert socket.close_code == 4001


async def test_other_paths_and_missing_keys_are_answered_without_a_handshake(http):
    with RunningEmulator(MODELS, api_keys=("k",)) as emulator:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(f"{emulator.url}/v1/realtime?model=pipe")
        assert caught.value.status == 401
        headers = {"Authorization": "Bearer k"}
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(f"{emulator.url}/v1/nothing", headers=headers)
        assert caught.value.status == 404
        async with http.ws_connect(f"{emulator.url}/v1/realtime?model=pipe", headers=headers):
            await asyncio.sleep(0)
