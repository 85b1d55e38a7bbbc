"""Field reports on bodies, lengths, paths and methods, replayed byte for byte."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from contracts.events import RequestReceived
from tests.integration.gateway.streaming.word_streams import ASK, CHAT, told

pytestmark = pytest.mark.integration


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
