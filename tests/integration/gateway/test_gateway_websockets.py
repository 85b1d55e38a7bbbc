"""Websockets: relayed as they are, admitted and counted as other inference."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from contracts.events import RequestCancelled, RequestCompleted, RequestFailed
from contracts.ids import ModelId

pytestmark = pytest.mark.integration


@pytest.fixture
async def realtime(kit):
    """A LocalAI that speaks websocket, in the scripted one's place."""
    seen: list[web.Request] = []

    async def talk(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        if request.query.get("model") == "refused":
            return web.json_response({"error": {"message": "no pipeline"}}, status=400)
        socket = web.WebSocketResponse(protocols=("realtime",), max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                if message.data == "bye":
                    await socket.close(code=4001, message=b"enough")
                    break
                await socket.send_str(message.data.upper())
            else:
                await socket.send_bytes(message.data[::-1])
        close_codes.append(socket.close_code)
        return socket

    close_codes = kit.close_codes
    app = web.Application()
    app.router.add_get("/{tail:.*}", talk)
    runner = web.AppRunner(app)
    await runner.setup()
    await kit.localai.stop()
    await web.TCPSite(runner, "127.0.0.1", kit.localai.port).start()
    yield seen
    await runner.cleanup()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.case("P099")
async def test_frames_subprotocol_and_close_code_pass(kit, realtime, session):
    gateway = await kit.start()
    url = gateway.url + "/v1/realtime?model=voice"
    headers = {"X-Headstart-Class": "realtime", "X-Thing": "1"}
    async with session.ws_connect(
        url, protocols=("realtime", "other"), headers=headers, compress=15, max_msg_size=0
    ) as socket:
        assert socket.protocol == "realtime"
        await socket.send_str("grüße")
        assert await socket.receive_str() == "GRÜSSE"
        await socket.send_bytes(b"\x00\x01\x02")
        assert await socket.receive_bytes() == b"\x02\x01\x00"
        await socket.send_str("x" * 2_000_000)
        assert len(await socket.receive_str()) == 2_000_000
        assert gateway.service.in_flight() == {ModelId("voice"): 1}
        await socket.send_str("bye")
        closing = await socket.receive()
        assert (closing.type, closing.data, closing.extra) == (
            aiohttp.WSMsgType.CLOSE,
            4001,
            "enough",
        )
    request = realtime[0]
    assert request.headers["Host"] == f"127.0.0.1:{gateway.port}"
    assert request.headers["X-Thing"] == "1"
    assert "X-Headstart-Class" not in request.headers
    assert request.headers["X-Forwarded-For"] == "127.0.0.1"
    await kit.eventually(lambda: not gateway.service.in_flight())
    completed = (await gateway.told())[-1]
    assert isinstance(completed, RequestCompleted)
    assert (completed.model, completed.status) == ("voice", 101)


@pytest.mark.case("P099")
async def test_the_callers_close_code_passes(kit, realtime, session):
    gateway = await kit.start()
    socket = await session.ws_connect(gateway.url + "/v1/responses")
    await socket.send_str("a")
    await socket.receive_str()
    await socket.close(code=4002, message=b"done")
    await kit.eventually(lambda: kit.close_codes == [4002])


async def test_without_subprotocols_none_is_made_up(kit, realtime, session):
    gateway = await kit.start()
    async with session.ws_connect(gateway.url + "/ws/backend-logs/m") as socket:
        assert socket.protocol is None
        await socket.send_str("a")
        assert await socket.receive_str() == "A"
    assert "Sec-WebSocket-Protocol" not in realtime[0].headers
    assert await gateway.told() == [], "log streams are no inference"


async def test_a_refused_handshake_passes_and_ends_the_connection(kit, realtime):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    handshake = (
        b"GET /v1/realtime?model=refused HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    # What follows on the same connection must not reach LocalAI past the gateway.
    writer.write(handshake + b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in answer
    assert answer.endswith(b'{"error": {"message": "no pipeline"}}')
    assert [request.path for request in realtime] == ["/v1/realtime"]
    writer.close()
    failed = (await gateway.told())[-1]
    assert isinstance(failed, RequestFailed)
    assert failed.status == 400


async def test_a_websocket_waits_for_its_model(kit, realtime, session):
    gateway = await kit.start()
    cold = ModelId("cold")
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    opening = asyncio.ensure_future(session.ws_connect(gateway.url + "/v1/realtime?model=cold"))
    await kit.eventually(lambda: gateway.service.waiting() == {cold: 1})
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_001.0))
    socket = await opening
    await socket.send_str("a")
    assert await socket.receive_str() == "A"
    await socket.close()


async def test_a_caller_that_leaves_while_it_waits_is_forgotten(kit, realtime, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    opening = asyncio.ensure_future(session.ws_connect(gateway.url + "/v1/realtime?model=cold"))
    await kit.eventually(gateway.service.waiting)
    opening.cancel()
    await kit.eventually(lambda: not gateway.service.waiting())
    assert isinstance((await gateway.told())[-1], RequestCancelled)
    assert not realtime


async def test_refusals_of_ours_come_before_the_handshake(kit, realtime, session):
    gateway = await kit.start(keys=("k",))
    await gateway.publish(kit.table(kit.route("cold", kit.failed, cooldown_until_s=1_020.0)))
    url = gateway.url + "/v1/realtime?model=cold"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(url)
    assert refused.value.status == 401
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(url, protocols=("realtime", "openai-insecure-api-key.k"))
    assert refused.value.status == 503
    assert refused.value.headers is not None
    assert refused.value.headers["Retry-After"] == "20"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(url, headers={"x-api-key": "k", "X-Headstart-Class": "odd"})
    assert refused.value.status == 400


async def test_a_silent_websocket_does_not_keep_its_model(kit, realtime, session):
    gateway = await kit.start()
    voice = ModelId("voice")
    socket = await session.ws_connect(gateway.url + "/v1/realtime?model=voice")
    assert gateway.service.in_flight() == {voice: 1}
    await gateway.advance(61.0)
    assert gateway.service.in_flight() == {}
    await socket.send_str("a")
    assert await socket.receive_str() == "A"
    assert gateway.service.in_flight() == {voice: 1}
    await gateway.advance(61.0)
    await socket.close()


async def test_a_localai_that_is_down_is_told_in_the_handshake(kit, session):
    gateway = await kit.start()
    await kit.localai.stop()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(gateway.url + "/v1/realtime?model=m")
    assert refused.value.status == 502


async def test_a_gateway_that_stops_closes_its_websockets(kit, realtime, session):
    gateway = await kit.start()
    socket = await session.ws_connect(gateway.url + "/v1/realtime?model=voice")
    await gateway.stop()
    message = await socket.receive()
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    await socket.close()
