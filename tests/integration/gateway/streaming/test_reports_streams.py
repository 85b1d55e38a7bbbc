"""Field reports on streams and websockets, replayed: nothing is held back, cut or invented."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from contracts.events import RequestCompleted, RequestFailed
from tests.browser.lively import Kind
from tests.control_server import RunningControl
from tests.integration.gateway.streaming.word_streams import ASK, CHAT, DONE, streams, told, word

pytestmark = pytest.mark.integration


@pytest.mark.case("P062")
async def test_nothing_on_the_way_is_invited_to_buffer_a_stream(kit, http):
    gateway = await kit.start()
    head = kit.event_stream_head.replace(b"\r\n\r\n", b"\r\nX-Accel-Buffering: no\r\n\r\n")
    for one in (kit.event_stream_head, head):
        streams(kit, word("x", finish_reason="stop"), DONE, head=one)
        async with http.post(gateway.url + CHAT, json=ASK) as answer:
            assert answer.headers.getall("X-Accel-Buffering") == ["no"]
            assert answer.headers.getall("Cache-Control") == ["no-cache"]
            await answer.read()

    async def talk(seen, writer):
        """Each next word waits until the caller has the one before it."""
        writer.write(kit.event_stream_head)
        while (piece := await pieces.get()) is not None:
            writer.write(kit.chunk(piece))
        writer.write(b"0\r\n\r\n")

    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
    kit.localai.script = talk
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        for number in range(50):
            piece = word(str(number), finish_reason="stop")
            pieces.put_nowait(piece)
            assert await answer.content.readany() == piece
        pieces.put_nowait(None)
        assert await answer.read() == b""


@pytest.mark.case("P062")
async def test_the_dashboards_stream_is_not_buffered_either(http):
    control = RunningControl(kinds=(Kind("m", 20.0, 1.0, 1.0),), minutes=1).start()
    try:
        async with http.get(control.url + "/v1/events") as answer:
            assert answer.headers.getall("X-Accel-Buffering") == ["no"]
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readany()
    finally:
        control.stop()


@pytest.mark.case("P064")
@pytest.mark.parametrize("space", [b"data: ", b"data:"])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_a_character_may_be_cut_anywhere(kit, http, space, end):
    gateway = await kit.start()
    document = json.dumps({"choices": [{"delta": {"content": "日🚀é"}}]}, ensure_ascii=False)
    event = space + document.encode() + end
    whole = event + event.replace("日🚀é".encode(), b"x") + space + b"[DONE]" + end
    start = whole.index("日".encode())
    for cut in range(start, start + len("日🚀é".encode()) + 1):
        streams(kit, whole[:cut], whole[cut:])
        async with http.post(gateway.url + CHAT, json=ASK) as answer:
            assert await answer.read() == whole
    thirds = [
        whole[place : place + len(whole) // 3 + 1]
        for place in range(0, len(whole), len(whole) // 3 + 1)
    ]
    streams(kit, *thirds)
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert await answer.read() == whole
    ends = await told(gateway, RequestCompleted)
    assert {(one.output_tokens, one.tokens_counted) for one in ends} == {(2, True)}


@pytest.mark.case("P066")
async def test_a_stream_without_done_is_complete_when_it_says_so(kit, http):
    gateway = await kit.start()
    streams(kit, word("x"), word("", finish_reason="stop"))
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        body = await answer.read()
    assert DONE not in body, "nothing is invented"
    assert len(await told(gateway, RequestCompleted)) == 1
    streams(kit, word("x"), word("y"))
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert await answer.read() == word("x") + word("y")
    (failed,) = await told(gateway, RequestFailed)
    assert (failed.error, failed.output_tokens) == ("truncated", 2)


@pytest.mark.case("P099")
async def test_a_browsers_key_travels_as_a_subprotocol_and_is_kept_by_nobody(kit, http):
    key = "openai-insecure-api-key.sk-very-secret"

    async def serve(request: web.Request) -> web.WebSocketResponse:
        offered.append(request.headers.get("Sec-WebSocket-Protocol"))
        protocols = ("realtime",) if request.query.get("pick") else ()
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        async for message in socket:
            await socket.close(code=4001, message=message.data.encode())
        return socket

    offered: list[str | None] = []
    app = web.Application()
    app.router.add_get("/v1/realtime", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await kit.localai.stop()
    await web.TCPSite(runner, "127.0.0.1", kit.localai.port).start()
    gateway = await kit.start()
    url = gateway.url + "/v1/realtime?model=voice"
    with capture_logs() as logs:
        async with http.ws_connect(url + "&pick=1", protocols=("realtime", key)) as socket:
            assert socket.protocol == "realtime"
            await socket.send_str("reason")
            closing = await socket.receive()
            assert (closing.data, closing.extra) == (4001, "reason")
        async with http.ws_connect(url) as socket:
            assert socket.protocol is None
        await kit.eventually(lambda: not gateway.service.in_flight())
    assert offered[0] is not None
    assert sorted(part.strip() for part in offered[0].split(",")) == [key, "realtime"]
    assert offered[1] is None
    everything = repr(logs) + repr(await gateway.told())
    assert "sk-very-secret" not in everything
    await runner.cleanup()
