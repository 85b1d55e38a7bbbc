"""Everything passes as it is: paths, headers, bodies, answers, streams."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
from dataclasses import replace

import aiohttp
import pytest

from contracts.events import PriorityClass, RequestReceived
from contracts.ids import ModelId

pytestmark = pytest.mark.integration

AWKWARD_STREAM = (
    ': a comment\r\n\r\nevent: x\r\ndata: {"choices":[{"delta":{"content":"grüße 🚀"}}]}\r\n\r\n'
    'data:{"choices":[{"delta":{"content":"日本"},"finish_reason":"stop"}]}\n\n: tail\n\n'
    "data: [DONE]\n\n"
).encode()


async def raw(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_path_method_query_headers_and_body_arrive_as_they_were_sent(kit):
    gateway = await kit.start()
    request = (
        b"PROPFIND /a%2Fb/../c%20d//e?x=%C3%A4&y=1+2&y= HTTP/1.1\r\nHost: models.example:81\r\n"
        b"User-Agent: odd/1\r\nX-Thing: one\r\nX-Thing: two\r\nAccept-Encoding: br;q=0.5\r\n"
        b"Connection: close, X-Hop\r\nX-Hop: gone\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n"
        b"X-Headstart-Class: batch\r\nX-Headstart-Other: 1\r\nX-Forwarded-For: 10.9.8.7\r\n"
        b"Content-Length: 5\r\n\r\n\x00\xffabc"
    )
    await raw(gateway.port, request)
    seen = kit.localai.seen[0]
    assert seen.method == "PROPFIND"
    assert seen.target == "/a%2Fb/../c%20d//e?x=%C3%A4&y=1+2&y="
    assert seen.body == b"\x00\xffabc"
    assert sorted((name.lower(), value) for name, value in seen.headers) == [
        ("accept-encoding", "br;q=0.5"),
        ("content-length", "5"),
        ("host", "models.example:81"),
        ("user-agent", "odd/1"),
        ("x-forwarded-for", "10.9.8.7, 127.0.0.1"),
        ("x-forwarded-host", "models.example:81"),
        ("x-forwarded-proto", "http"),
        ("x-thing", "one"),
        ("x-thing", "two"),
    ]


async def test_an_answer_comes_back_as_it_was_given(kit):
    gateway = await kit.start()
    body = gzip.compress(b'{"usage": {}}' * 100)

    async def script(seen, writer):
        head = (
            b"HTTP/1.1 418 I'm a teapot\r\nX-A: 1\r\nX-A: 2\r\nContent-Encoding: gzip\r\n"
            b"Set-Cookie: a=b; Path=/\r\nConnection: keep-alive, X-Gone\r\nX-Gone: 1\r\n"
            b"Keep-Alive: timeout=9\r\nServer: them\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
        )
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    kit.localai.script = script
    answer = await raw(gateway.port, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    head, _, got = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith("HTTP/1.1 418")
    assert sorted(lines[1:]) == [
        "connection: close",
        "content-encoding: gzip",
        f"content-length: {len(body)}",
        "date: Thu, 01 Jan 1970 00:00:00 GMT",
        "server: them",
        "set-cookie: a=b; Path=/",
        "x-a: 1",
        "x-a: 2",
    ]
    assert got == body


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
async def test_a_stream_passes_byte_by_byte(kit, step):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head)
        for start in range(0, len(AWKWARD_STREAM), step):
            writer.write(kit.chunk(AWKWARD_STREAM[start : start + step]))
            if step > 1:
                await writer.drain()
        writer.write(b"0\r\n\r\n")

    kit.localai.script = script
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "stream": True}
        async with session.post(gateway.url + "/v1/chat/completions", json=body) as answer:
            assert await answer.read() == AWKWARD_STREAM
            assert answer.headers.getall("X-Accel-Buffering") == ["no"]
            assert answer.headers["Cache-Control"] == "no-cache"
            assert "Content-Length" not in answer.headers
    completed = (await gateway.told())[-1]
    assert completed.output_tokens == 2


async def test_each_piece_passes_before_the_next_one_is_there(kit):
    gateway = await kit.start()
    go_on = asyncio.Event()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/v1/completions", json={"model": "m"}) as answer,
    ):
        assert await answer.content.readany() == b"data: 1\n\n"
        go_on.set()
        assert await answer.read() == b"data: 2\n\n"


@pytest.mark.parametrize(
    ("method", "answer_head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nContent-Type: a/b\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'),
        ("OPTIONS", b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n\r\n"),
    ],
)
async def test_answers_without_a_body(kit, method, answer_head):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(answer_head)

    kit.localai.script = script
    request = f"{method} /v1/models HTTP/1.1\r\nHost: h\r\n\r\n".encode() * 2
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    # Two in a row: the first one's end must be where both sides think that it is.
    writer.write(request)
    for _ in range(2):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split(b" ")[1] == answer_head.split(b" ")[1]
        assert b"transfer-encoding" not in head
        assert (b"content-length: 1234" in head) == (method == "HEAD")
    writer.close()


async def test_a_redirect_is_the_callers_business(kit):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.reply(b"", status="307 Temporary Redirect", headers=("Location: /there",)))

    kit.localai.script = script
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/here", data=b"x", allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (307, "/there")


async def test_a_chunked_upload_is_streamed_while_it_arrives(kit):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"PUT /files/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    digest = hashlib.sha256()
    for number in range(50):
        piece = bytes([number]) * 50_000
        digest.update(piece)
        writer.write(kit.chunk(piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert hashlib.sha256(kit.localai.seen[0].body).digest() == digest.digest()
    writer.close()


def multipart(parts: list[tuple[str, bytes]]) -> tuple[bytes, str]:
    body = b"".join(
        b"--bOuNd\r\nContent-Disposition: form-data; " + how.encode() + b"\r\n\r\n" + data + b"\r\n"
        for how, data in parts
    )
    return body + b"--bOuNd--\r\n", "multipart/form-data; boundary=bOuNd"


@pytest.mark.parametrize("model_first", [True, False])
async def test_a_form_passes_byte_by_byte_wherever_its_model_stands(kit, model_first):
    gateway = await kit.start()
    file = ('name="file"; filename="ü \\"x\\".wav"', b"\r\n--bOuN not yet\x00" * 200_000)
    model = ('name="model"', b"whisper")
    body, kind = multipart([model, file] if model_first else [file, model])
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            gateway.url + "/v1/audio/transcriptions",
            data=io.BytesIO(body),
            headers={"Content-Type": kind},
        ) as answer,
    ):
        assert answer.status == 200
        assert answer.headers["X-Headstart-Model"] == "whisper"
    seen = kit.localai.seen[0]
    assert hashlib.sha256(seen.body).digest() == hashlib.sha256(body).digest()
    assert seen.one("content-length") == str(len(body))
    assert (await gateway.told())[0].model == "whisper"


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_a_json_body_passes_whole_and_with_its_length(kit, size):
    gateway = await kit.start()
    body = b'{"input": "' + b"x" * size + b'", "model": "embed"}'

    async def pieces():
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/v1/embeddings", data=pieces()) as answer,
    ):
        assert answer.headers["X-Headstart-Model"] == "embed"
    assert kit.localai.seen[0].body == body


async def test_expect_100_continue_is_answered(kit):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        b"POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
        b"Content-Length: 13\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    writer.write(b'{"model":"m"}')
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert kit.localai.seen[0].one("expect") is None
    writer.close()


async def test_what_answers_say_about_an_inference_request(kit):
    gateway = await kit.start()

    async def script(seen, writer):
        headers = ("Content-Type: application/json", "X-Request-Id: theirs")
        writer.write(kit.reply(b'{"model": "m"}', headers=headers))

    kit.localai.script = script
    async with aiohttp.ClientSession() as session:
        url = gateway.url + "/v1/chat/completions"
        ours = {"X-Request-ID": "mine-1"}
        async with session.post(url, json={"model": "tugão:x"}, headers=ours) as answer:
            assert answer.headers.getall("X-Request-ID") == ["mine-1"]
            assert answer.headers["X-Headstart-Model"] == "tug%C3%A3o:x"
            assert answer.headers["X-Headstart-Cold"] == "false"
            assert answer.headers["X-Headstart-Queue-Ms"] == "0"
            assert answer.headers["X-Headstart-Decision"] == "pass_through"
            assert "X-Headstart-Backend" not in answer.headers
        async with session.post(url, json={}) as answer:
            assert answer.headers["X-Request-ID"].startswith("gateway-1-")
            assert "X-Headstart-Model" not in answer.headers
    events = await gateway.told()
    assert events[-1].model == "m", "the model was learnt from the answer"


async def test_the_node_is_named_only_where_that_is_wanted(kit):
    gateway = await kit.start(expose_topology=True)
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/v1/embeddings", json={"model": "m"}) as answer,
    ):
        assert answer.headers["X-Headstart-Backend"] == "localai"


@pytest.mark.parametrize(
    ("headers", "body", "model"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"model=form", "form"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b'{"model": "packed"}', mtime=0), None),
        ({"Authorization": "Bearer hot"}, b"{}", "hot"),
        ({"Authorization": "Bearer sk-secret"}, b"{}", None),
    ],
)
async def test_where_else_a_model_may_stand(kit, headers, body, model):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/v1/completions", data=body, headers=headers) as answer,
    ):
        assert answer.headers.get("X-Headstart-Model") == model
    assert kit.localai.seen[0].body == body


async def test_classes_come_from_the_table_where_the_caller_names_none(kit):
    gateway = await kit.start()
    classes = {ModelId("hot"): PriorityClass.BATCH}
    await gateway.publish(replace(kit.table(kit.route("hot", kit.hot)), classes=classes))
    async with aiohttp.ClientSession() as session:
        url = gateway.url + "/v1/embeddings"
        for headers in ({}, {"X-Headstart-Class": "background"}):
            async with session.post(url, json={"model": "hot"}, headers=headers) as answer:
                assert answer.status == 200
    received = [one for one in await gateway.told() if isinstance(one, RequestReceived)]
    assert [one.priority for one in received] == ["batch", "background"]


async def test_one_id_sent_twice_at_a_time_is_told_apart(kit):
    gateway = await kit.start()
    go_on = kit.answers_on_word()
    async with aiohttp.ClientSession(headers={"X-Request-ID": "same"}) as session:
        url = gateway.url + "/v1/embeddings"
        posts = [asyncio.create_task(session.post(url, json={"model": "m"})) for _ in range(2)]
        await kit.eventually(lambda: len(kit.localai.seen) == 2)
        go_on.set()
        for post in posts:
            answer = await post
            assert answer.headers["X-Request-ID"] == "same"
            answer.release()


async def test_keys_of_the_gateway(kit):
    gateway = await kit.start(keys=("secret-1", "secret-2"))
    async with aiohttp.ClientSession() as session:
        for headers, status in [
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer secret-2"}, 200),
            ({"Authorization": "secret-1"}, 200),
            ({"x-api-key": "secret-1"}, 200),
            ({"xi-api-key": "secret-2"}, 200),
            ({"Cookie": "a=b; token=secret-1"}, 200),
        ]:
            async with session.get(gateway.url + "/v1/models", headers=headers) as answer:
                assert answer.status == status, headers
                if status == 401:
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert (await answer.json())["error"]["code"] == "invalid_api_key"
        async with session.post(gateway.url + "/v1/messages", json={"model": "m"}) as answer:
            assert (await answer.json())["type"] == "error"
        async with session.get(gateway.url + "/headstart/healthz") as answer:
            assert answer.status == 200
        async with session.options(
            gateway.url + "/v1/models", headers={"Access-Control-Request-Method": "GET"}
        ) as answer:
            assert answer.status == 200
    assert kit.localai.seen[0].one("authorization") == "Bearer secret-2"


async def test_a_list_of_the_models_is_an_intent_and_no_use(kit):
    gateway = await kit.start()
    async with aiohttp.ClientSession() as session:
        for path in ("/v1/models", "/favicon.ico", "/metrics", "/v1/responses/abc"):
            async with session.get(gateway.url + path) as answer:
                assert "X-Headstart-Model" not in answer.headers
    (event,) = await gateway.told()
    assert event.kind == "models_listed"


async def test_own_paths(kit):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    async with aiohttp.ClientSession() as session:
        async with session.get(gateway.url + "/headstart/readyz") as answer:
            report = await answer.json()
            assert (answer.status, report["status"]) == (200, "ready")
            assert report["redis"] == "up"
            assert report["routing"]["mode"] == "active"
        for number in range(300):
            body = {"model": f"junk-{number}"}
            async with session.post(gateway.url + "/v1/embeddings", json=body) as answer:
                await answer.read()
        async with session.post(gateway.url + "/v1/embeddings", json={"model": "hot"}) as answer:
            assert answer.headers["X-Headstart-Decision"] == "resident"
        async with session.get(gateway.url + "/headstart/metrics") as answer:
            text = await answer.text()
        assert 'model="other"' in text
        assert 'model="hot"' in text
        assert "junk" not in text
        async with session.get(gateway.url + "/headstart/nothing") as answer:
            assert answer.status == 404
        async with session.post(gateway.url + "/headstart/healthz") as answer:
            assert answer.status == 404
