"""Field reports on streams, bodies and bytes, replayed against a gateway on a real socket."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.events import FirstTokenSent, RequestCompleted, RequestFailed, RequestReceived
from contracts.ids import ModelId, NodeId
from tests.browser.lively import Kind
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
DONE = b"data: [DONE]\n\n"


def word(text: str, **more: object) -> bytes:
    return said({"choices": [{"index": 0, "delta": {"content": text}, **more}]})


def said(document: object, *, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


def streams(kit, *pieces: bytes, end: bytes = b"0\r\n\r\n", head: bytes | None = None) -> None:
    """LocalAI answers each request with these pieces, one chunk each."""

    async def script(seen, writer):
        writer.write(head or kit.event_stream_head)
        for piece in pieces:
            writer.write(kit.chunk(piece))
            await writer.drain()
        writer.write(end)

    kit.localai.script = script


async def told(gateway, kind):
    return [event for event in await gateway.told() if isinstance(event, kind)]


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


ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.mark.case("P067")
@pytest.mark.parametrize(
    ("pieces", "tokens"),
    [
        (
            [said({"choices": [{"delta": {"content": word}}], "usage": ZEROS}) for word in "abc"],
            (None, 3, True),
        ),
        ([word(letter) for letter in "abc"], (None, 3, True)),
        (
            [*(word(letter) for letter in "abc"), said({"choices": [], "usage": USAGE})],
            (7, 5, False),
        ),
    ],
)
async def test_usage_that_is_missing_or_zero_is_counted_and_marked(kit, http, pieces, tokens):
    gateway = await kit.start()
    streams(kit, *pieces, word("", finish_reason="stop"), DONE)
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert await answer.read() == b"".join(pieces) + word("", finish_reason="stop") + DONE
    (end,) = await told(gateway, RequestCompleted)
    assert (end.input_tokens, end.output_tokens, end.tokens_counted) == tokens


@pytest.mark.case("P067")
async def test_no_option_is_added_to_what_the_caller_asks_for(kit, http):
    """A server that takes no ``stream_options`` would refuse a request that was fine."""
    gateway = await kit.start()
    body = json.dumps(ASK).encode()

    async def refuse(seen, writer):
        writer.write(kit.reply(b'{"error":"stream_options"}', status="400 Bad Request"))

    kit.localai.script = refuse
    for sent in (body, body.replace(b"}", b', "stream_options": {"include_usage": true}}', 1)):
        async with http.post(gateway.url + CHAT, data=sent) as answer:
            assert answer.status == 400
        assert kit.localai.seen[-1].body == sent
    assert len(kit.localai.seen) == 2


def message_events() -> list[bytes]:
    usage = {"input_tokens": 11, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "c", "usage": usage}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
    last = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}}
    return [
        said(start, name="message_start"),
        said({"type": "ping"}, name="ping"),
        said(text, name="content_block_delta"),
        said(last, name="message_delta"),
        said({"type": "message_stop"}, name="message_stop"),
    ]


def response_events() -> list[bytes]:
    response = {"model": "r", "usage": {"input_tokens": 11, "output_tokens": 9}}
    return [
        said({"type": "response.output_text.delta", "delta": "x"}),
        said({"type": "response.completed", "response": response}),
    ]


@pytest.mark.case("P068")
@pytest.mark.parametrize(
    ("path", "pieces", "tokens"),
    [
        ("/v1/messages", message_events(), (11, 9)),
        ("/v1/responses", response_events(), (11, 9)),
        (CHAT, [word("x", finish_reason="stop"), said({"x_groq": {"usage": USAGE}})], (7, 5)),
        (CHAT, [word("x", finish_reason="stop"), said({"timings": {"predicted_n": 4}})], (None, 4)),
    ],
)
async def test_usage_of_streams_wherever_it_stands(kit, http, path, pieces, tokens):
    gateway = await kit.start()
    streams(kit, *pieces)
    async with http.post(gateway.url + path, json=ASK) as answer:
        assert await answer.read() == b"".join(pieces)
    (end,) = await told(gateway, RequestCompleted)
    assert (end.input_tokens, end.output_tokens, end.tokens_counted) == (*tokens, False)


@pytest.mark.case("P068")
@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        (
            "/v1/embeddings",
            {"data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}},
            (3, None),
        ),
        (
            "/v1/embeddings",
            {"data": [[0.25] * 40_000], "usage": {"prompt_tokens": 3, "total_tokens": 3}},
            (3, None),
        ),
        (CHAT, [{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}], (3, 4)),
        (CHAT, {"metrics": {"num_tokens": 7}}, (None, None)),
        ("/api/chat", {"done": True, "prompt_eval_count": 3, "eval_count": 4}, (3, 4)),
    ],
)
async def test_usage_of_documents_wherever_it_stands(kit, http, path, body, tokens):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.reply(json.dumps(body).encode()))

    kit.localai.script = script
    with capture_logs() as logs:
        async with http.post(gateway.url + path, json={"model": "m"}) as answer:
            assert await answer.json() == body
    (end,) = await told(gateway, RequestCompleted)
    assert (end.input_tokens, end.output_tokens) == tokens
    assert logs == []


@pytest.mark.case("P069")
@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
async def test_a_compressed_answer_keeps_its_bytes_and_its_header(kit, http, status):
    gateway = await kit.start()
    document = json.dumps({"text": "x" * 5_000, "usage": USAGE}).encode()
    packed = gzip.compress(document)
    headers = ("Content-Type: application/json", "Content-Encoding: gzip")

    async def script(seen, writer):
        assert seen.one("accept-encoding") == "gzip"
        writer.write(kit.reply(packed, status=status, headers=headers))

    kit.localai.script = script
    asked = {"Accept-Encoding": "gzip"}
    async with http.post(gateway.url + CHAT, json=ASK, headers=asked) as answer:
        assert answer.status == int(status[:3])
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Length"] == str(len(packed))
        assert gzip.decompress(await answer.read()) == document
    ends = await told(gateway, RequestCompleted | RequestFailed)
    assert (ends[0].input_tokens, ends[0].output_tokens) == (7, 5)


@pytest.mark.case("P069")
async def test_a_compressed_stream_is_looked_into(kit, http):
    gateway = await kit.start()
    packed = gzip.compress(word("x", finish_reason="stop") + said({"usage": USAGE}) + DONE)
    head = kit.event_stream_head.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    streams(kit, packed[:30], packed[30:], head=head)
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert await answer.read() == packed
    (end,) = await told(gateway, RequestCompleted)
    assert (end.input_tokens, end.output_tokens) == (7, 5)
    assert len(await told(gateway, FirstTokenSent)) == 1


@pytest.mark.case("P070")
async def test_an_answer_says_once_where_it_ends(kit):
    gateway = await kit.start()
    hop_by_hop = (
        b"Keep-Alive: timeout=5\r\nTE: trailers\r\nTrailer: X-T\r\nUpgrade: h2c\r\n"
        b"Proxy-Authenticate: Basic\r\nProxy-Connection: close\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
    )

    async def script(seen, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n" + hop_by_hop + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(kit.chunk(b"abc") + b"0\r\n\r\n")

    kit.localai.script = script
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    asked = hop_by_hop.replace(b"Upgrade: h2c\r\n", b"").replace(b": X-Hop", b": X-Hop, close")
    writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n" + asked + b"\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    names = [line.split(b":")[0] for line in head.lower().split(b"\r\n")[1:]]
    assert sorted(names) == [b"connection", b"transfer-encoding"]
    assert body == b"3\r\nabc\r\n0\r\n\r\n"
    sent = {name.lower() for name, _ in kit.localai.seen[0].headers}
    assert sent == {"host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"}


@pytest.mark.case("P071")
async def test_a_json_body_in_chunks_goes_on_with_its_length(kit, http):
    gateway = await kit.start()
    body = json.dumps(ASK).encode()

    async def pieces():
        yield body[:10]
        yield body[10:]

    async with http.post(gateway.url + CHAT, data=pieces()) as answer:
        assert answer.status == 200
    seen = kit.localai.seen[0]
    assert (seen.one("content-length"), seen.one("transfer-encoding")) == (str(len(body)), None)
    assert seen.body == body


@pytest.mark.case("P071")
async def test_a_form_in_chunks_is_streamed_on_in_chunks(kit, http):
    gateway = await kit.start()
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + b"x" * 200_000
        + b"\r\n--b--\r\n"
    )

    async def pieces():
        for start in range(0, len(form), 50_000):
            yield form[start : start + 50_000]

    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    url = gateway.url + "/v1/audio/transcriptions"
    async with http.post(url, data=pieces(), headers=kind) as answer:
        assert answer.status == 200
    seen = kit.localai.seen[0]
    assert (seen.one("content-length"), seen.one("transfer-encoding")) == (None, "chunked")
    assert seen.body == form


@pytest.mark.case("P077")
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v1/chat/completions/", "/v1/chat/completions/?a=1"),
        ("//v1/chat/completions", "/v1/chat/completions?a=1"),
        ("/v1//chat/completions", "/v1/chat/completions?a=1"),
        ("/chat/completions", "/chat/completions?a=1"),
    ],
)
async def test_slashes_too_many_lead_nowhere_else(kit, path, target):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    body = json.dumps(ASK).encode()
    head = (
        f"POST {path}?a=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer k\r\n"
    )
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()
    (seen,) = kit.localai.seen
    assert (seen.method, seen.target, seen.body) == ("POST", target, body)
    assert seen.one("authorization") == "Bearer k"
    (received,) = await told(gateway, RequestReceived)
    assert received.model == "m"


@pytest.mark.case("P078")
@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/models", "/metrics", "/v1/messages"])
@pytest.mark.parametrize("status", ["200 OK", "405 Method Not Allowed"])
async def test_head_is_localais_to_answer_and_no_use(kit, http, path, status):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 120\r\n\r\n".encode())

    kit.localai.script = script
    async with http.head(gateway.url + path) as answer:
        assert answer.status == int(status[:3])
        assert answer.headers["Content-Length"] == "120"
    async with http.head(gateway.url + "/headstart/healthz") as answer:
        assert answer.status == 200
    assert [seen.method for seen in kit.localai.seen] == ["HEAD"]
    assert await gateway.told() == []
    assert await gateway.wanted() == []


@pytest.mark.case("P079")
async def test_a_picture_in_a_message_reaches_localai_whole(kit, http):
    gateway = await kit.start(max_body_bytes=16 * 1024**2)
    picture = "data:image/png;base64," + "iVBORw0K" * (12 * 1024**2 // 8)
    for content in ([{"type": "image_url", "image_url": {"url": picture}}], "old " * 330_000):
        body = json.dumps({"messages": [{"role": "user", "content": content}], "model": "m"})
        async with http.post(gateway.url + CHAT, data=io.BytesIO(body.encode())) as answer:
            assert answer.status == 200
            assert answer.headers["X-Headstart-Model"] == "m"
        assert kit.localai.seen[-1].body == body.encode()
        assert kit.localai.seen[-1].one("content-length") == str(len(body))
    async with http.post(gateway.url + CHAT, data=io.BytesIO(b" " * (16 * 1024**2 + 1))) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "body_too_large"
    assert len(kit.localai.seen) == 2


@pytest.mark.case("P080")
@pytest.mark.parametrize("prompt_first", [True, False])
async def test_a_long_field_of_a_form_passes(kit, http, prompt_first):
    gateway = await kit.start()
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n'
        + b"p" * 1_500_000
        + b"\r\n",
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n',
    ]
    form = b"".join(parts if prompt_first else reversed(parts)) + b"--b--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    url = gateway.url + "/v1/images/inpainting"
    async with http.post(url, data=io.BytesIO(form), headers=kind) as answer:
        assert answer.headers["X-Headstart-Model"] == "m"
    assert kit.localai.seen[0].body == form


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


@pytest.mark.case("P100")
async def test_counting_tokens_is_no_generation(kit, http):
    gateway = await kit.start()

    async def count(seen, writer):
        writer.write(kit.reply(b'{"input_tokens": 12}'))

    kit.localai.script = count
    url = gateway.url + "/v1/messages"
    for _ in range(20):
        async with http.post(url + "/count_tokens?beta=true", json=ASK) as answer:
            assert await answer.json() == {"input_tokens": 12}
    assert kit.localai.seen[-1].target == "/v1/messages/count_tokens?beta=true"
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def talk(seen, writer):
        writer.write(kit.event_stream_head)
        while (piece := await pieces.get()) is not None:
            writer.write(kit.chunk(piece))
        writer.write(b"0\r\n\r\n")

    kit.localai.script = talk
    async with http.post(url, json=ASK) as answer:
        for piece in message_events():
            pieces.put_nowait(piece)
            assert await answer.content.readany() == piece
            await gateway.clock.advance(1.0)
        pieces.put_nowait(None)
        await answer.read()
    (received,) = await told(gateway, RequestReceived)
    (first,) = await told(gateway, FirstTokenSent)
    (end,) = await told(gateway, RequestCompleted)
    assert received.operation == "messages"
    assert first.ttft_s == pytest.approx(2.0), "the third event: neither start nor ping"
    assert (end.input_tokens, end.output_tokens) == (11, 9)


POLLS = [
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/readyz"),
    ("GET", "/system"),
    ("GET", "/api/resources"),
    ("GET", "/headstart/metrics"),
    ("GET", "/headstart/healthz"),
]


@pytest.mark.case("P051")
async def test_polls_do_not_keep_a_model_warm(kit, http):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("m", kit.hot)))
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert answer.status == 200
    for method, path in POLLS * 3:
        async with http.request(method, gateway.url + path) as answer:
            assert answer.status == 200
        await gateway.clock.advance(1.0)
    uses = await told(gateway, RequestReceived | RequestCompleted)
    assert [type(use).__name__ for use in uses] == ["RequestReceived", "RequestCompleted"]
    assert gateway.service.in_flight() == {}
    beats = await gateway.beats()
    assert all(not beat.in_flight for beat in beats[1:])


@pytest.mark.case("P052")
async def test_what_is_no_inference_takes_no_slot_and_loads_nothing(kit, http):
    gateway = await kit.start(slots={ModelId("m"): 1})
    await gateway.publish(kit.table(kit.route("m", kit.hot), kit.route("cold", kit.cold)))
    end = asyncio.Event()

    async def script(seen, writer):
        if seen.method == "POST":
            writer.write(kit.event_stream_head + kit.chunk(word("x")))
            await end.wait()
            writer.write(kit.chunk(word("", finish_reason="stop")) + b"0\r\n\r\n")
        else:
            writer.write(kit.reply(b"", status="404 Not Found"))

    kit.localai.script = script
    answer = await http.post(gateway.url + CHAT, json=ASK)
    await answer.content.readany()
    for path in ("/sw.js", "/favicon.ico", "/static/x.css", "/browse/models", "/no/such/path"):
        async with http.get(gateway.url + path) as passed:
            assert passed.status == 404
            assert "X-Headstart-Decision" not in passed.headers
    end.set()
    await answer.read()
    assert len(await told(gateway, RequestReceived)) == 1
    assert await gateway.wanted() == []


@pytest.mark.case("P044")
async def test_looking_around_loads_no_model(kit, http):
    gateway = await kit.start()
    names = [f"model-{number}" for number in range(12)]
    await gateway.publish(kit.table(*(kit.route(name, kit.cold) for name in names)))
    looks = [("GET", "/v1/models"), ("HEAD", "/"), ("GET", "/api/tags"), ("GET", "/api/ps")]
    looks += [("GET", f"/v1/models/{name}") for name in names]
    looks += [("GET", f"/props?model={name}") for name in names]
    looks += [("GET", f"/upstream/{name}/props") for name in names]
    looks += [("POST", "/api/show")]
    for method, path in looks:
        sent = {"model": names[0]} if method == "POST" else None
        async with http.request(method, gateway.url + path, json=sent) as answer:
            assert answer.status == 200
    await gateway.advance(30.0)
    assert await told(gateway, RequestReceived) == []
    assert await gateway.wanted() == []


@pytest.mark.case("P035")
async def test_a_load_behind_our_back_is_counted(kit, http):
    """A request with other load-time options makes LocalAI load the model anew."""
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("m", kit.hot)))

    async def script(seen, writer):
        await asyncio.sleep(0)
        await gateway.clock.advance(9.0 if b"num_gpu" in seen.body else 0.2)
        writer.write(
            kit.event_stream_head + kit.chunk(word("x", finish_reason="stop")) + b"0\r\n\r\n"
        )

    kit.localai.script = script
    for options in ({}, {}, {}, {}, {"num_gpu": 7}, {}):
        async with http.post(gateway.url + CHAT, json={**ASK, **options}) as answer:
            await answer.read()
    assert [json.loads(seen.body).get("num_gpu") for seen in kit.localai.seen].count(7) == 1
    async with http.get(gateway.url + "/headstart/metrics") as answer:
        text = (await answer.read()).decode()
    assert 'headstart_gateway_unexpected_cold_total{model="m"} 1.0' in text


@pytest.mark.case("P035")
async def test_an_order_to_load_holds_nothing_but_the_name(kit):
    async def script(seen, writer):
        if seen.target.startswith("/v1/models"):
            writer.write(kit.reply(b'{"object":"list","data":[{"id":"a","object":"model"}]}'))
        else:
            writer.write(kit.reply(b'{"loaded":["a"],"message":"model loaded"}'))

    kit.localai.script = script
    node = NodeConfig(node=NodeId("localai"), url=kit.localai.url)
    server = LocalAIServer(node, ScaledClock(1.0))
    await server.load(ModelId("a"))
    await server.close()
    (order,) = [seen for seen in kit.localai.seen if seen.method == "POST"]
    assert (order.target, json.loads(order.body)) == ("/backend/load", {"model": "a"})
