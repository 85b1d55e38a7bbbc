"""Callers that leave, and a LocalAI that is down, slow or breaks off."""

from __future__ import annotations

import asyncio
import io
import json

import aiohttp
import pytest
from structlog.testing import capture_logs

from contracts.events import (
    FirstTokenSent,
    Origin,
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
    RequestPhase,
)

pytestmark = pytest.mark.integration

INFERENCE_PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/api/chat",
]


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def leave(task) -> None:
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.case("P057")
@pytest.mark.parametrize("path", [*INFERENCE_PATHS, "/api/models/apply"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_that_leaves_before_the_first_byte_ends_the_work(kit, session, path, stream):
    gateway = await kit.start()

    async def script(seen, writer):
        await asyncio.sleep(60)

    kit.localai.script = script
    body = {"model": "m", "stream": stream}
    post = asyncio.ensure_future(session.post(gateway.url + path, json=body))
    await kit.eventually(lambda: kit.localai.seen)
    await leave(post)
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 2.0)
    if path in INFERENCE_PATHS:
        await kit.eventually(lambda: not gateway.service.in_flight())
        (event,) = [one for one in await gateway.told() if isinstance(one, RequestCancelled)]
        assert event.phase is RequestPhase.DISPATCHED


async def test_a_caller_that_leaves_mid_stream_ends_the_work(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        piece = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
        writer.write(kit.event_stream_head + kit.chunk(piece))
        await asyncio.sleep(60)

    kit.localai.script = script
    url = gateway.url + "/v1/chat/completions"
    answer = await session.post(url, json={"model": "m", "stream": True})
    await answer.content.readany()
    answer.close()
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 2.0)
    await kit.eventually(lambda: not gateway.service.in_flight())
    (event,) = [one for one in await gateway.told() if isinstance(one, RequestCancelled)]
    assert event.phase is RequestPhase.STREAMING


async def test_a_caller_that_leaves_a_flooding_stream_ends_the_work(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head)
        while True:
            writer.write(kit.chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
            await writer.drain()

    kit.localai.script = script
    answer = await session.post(gateway.url + "/v1/chat/completions", json={"model": "m"})
    await answer.content.readany()
    # The caller does not read, so that all buffers on the way fill up.
    await asyncio.sleep(0.3)
    answer.close()
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 5.0)


async def test_a_caller_that_leaves_in_the_middle_of_its_upload(kit):
    gateway = await kit.start()
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n")
    writer.write(b"Content-Type: multipart/form-data; boundary=b\r\n\r\n")
    writer.write(b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\n')
    writer.write(b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"x" * 5000)
    await kit.eventually(gateway.service.in_flight)
    writer.close()
    await kit.eventually(lambda: not gateway.service.in_flight())
    (event,) = [one for one in await gateway.told() if isinstance(one, RequestCancelled)]
    assert event.phase is RequestPhase.DISPATCHED
    assert not kit.localai.seen, "the request never came to its end over there"


async def test_a_caller_that_leaves_its_upload_while_it_waits(kit):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n")
    writer.write(b"Content-Type: multipart/form-data; boundary=b\r\n\r\n")
    writer.write(b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ncold\r\n--b\r\n')
    writer.write(
        b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"x" * 500_000
    )
    await kit.eventually(gateway.service.waiting)
    writer.close()
    await kit.eventually(lambda: not gateway.service.waiting())
    (event,) = [one for one in await gateway.told() if isinstance(one, RequestCancelled)]
    assert event.phase is RequestPhase.LOADING


async def test_a_caller_that_leaves_before_it_said_what_it_wants_is_no_request(kit):
    gateway = await kit.start()
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b'POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{"mod')
    await asyncio.sleep(0.05)
    writer.close()
    await asyncio.sleep(0.05)
    assert await gateway.told() == []


async def test_two_hundred_cut_streams_leave_nothing_behind(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        if seen.target == "/short":
            writer.write(kit.reply())
            return
        writer.write(kit.event_stream_head + kit.chunk(b"data: {}\n\n"))
        await asyncio.sleep(60)

    kit.localai.script = script
    for _ in range(200):
        answer = await session.post(gateway.url + "/v1/completions", json={"model": "m"})
        await answer.content.readany()
        answer.close()
    await kit.eventually(lambda: not gateway.service.in_flight())
    await kit.eventually(lambda: len(kit.localai._writers) == 0)
    async with session.get(gateway.url + "/short") as answer:
        assert answer.status == 200


async def test_a_localai_that_is_down_is_502_and_one_line(kit, session):
    gateway = await kit.start()
    await kit.localai.stop()
    with capture_logs() as lines:
        for path, style in [("/v1/chat/completions", "openai"), ("/v1/messages", "anthropic")]:
            async with session.post(gateway.url + path, json={"model": "m"}) as answer:
                assert answer.status == 502
                body = await answer.json()
                assert body["error"]["type"] == "upstream_error"
                assert (
                    body["error"]["message"] == "LocalAI could not be reached: connection refused."
                )
                assert ("param" in body["error"]) == (style == "openai")
                assert answer.headers["X-Headstart-Decision"] == "upstream_error"
        async with session.get(gateway.url + "/v1/models") as answer:
            assert answer.status == 502
        async with session.get(gateway.url + "/headstart/readyz") as answer:
            assert answer.status == 503
        async with session.get(gateway.url + "/headstart/healthz") as answer:
            assert answer.status == 200
        await kit.localai.start()
        async with session.get(gateway.url + "/v1/models") as answer:
            assert answer.status == 200
    assert [line["event"] for line in lines] == ["localai_unreachable", "localai_unreachable_ended"]
    failed = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert [(one.status, one.origin) for one in failed] == [(502, Origin.UPSTREAM)] * 2


@pytest.mark.parametrize("what", [b"", b"HTTP/1.1 200 OK\r\nConte", b"nonsense\r\n\r\n"])
async def test_a_connection_that_breaks_before_the_first_byte_is_502(kit, session, what):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(what)
        writer.close()

    kit.localai.script = script
    async with session.post(gateway.url + "/v1/completions", json={"model": "m"}) as answer:
        assert answer.status == 502
        message = (await answer.json())["error"]["message"]
    assert "broke the connection" in message
    assert "may allow less" not in message
    assert len(kit.localai.seen) == 1, "it may have been worked on, so it is not sent again"


async def test_where_a_large_body_may_be_why_the_connection_broke_it_is_said(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.close()

    kit.localai.script = script
    body = json.dumps({"model": "m", "prompt": "x" * (11 * 1024**2)}).encode()
    headers = {"Content-Type": "application/json"}
    async with session.post(
        gateway.url + "/v1/completions", data=io.BytesIO(body), headers=headers
    ) as answer:
        assert answer.status == 502
        message = (await answer.json())["error"]["message"]
    assert "11 MB of the body" in message
    assert "LOCALAI_UPLOAD_LIMIT" in message


async def test_no_first_byte_in_time_is_504(kit, session):
    gateway = await kit.start(first_byte_timeout_s=20.0)

    async def script(seen, writer):
        await asyncio.sleep(60)

    kit.localai.script = script
    post = asyncio.ensure_future(session.post(gateway.url + "/v1/completions", json={}))
    await kit.eventually(lambda: kit.localai.seen)
    await gateway.clock.advance(19.0)
    assert not post.done()
    await gateway.clock.advance(2.0)
    answer = await post
    assert answer.status == 504
    assert (await answer.json())["error"]["type"] == "upstream_timeout"
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 2.0)


async def test_a_slow_upload_does_not_count_as_a_slow_answer(kit):
    gateway = await kit.start(first_byte_timeout_s=20.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n")
    for byte in b"slowly":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)
        await gateway.clock.advance(15.0)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert kit.localai.seen[0].body == b"slowly"
    writer.close()


CONTENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


@pytest.mark.parametrize(
    ("path", "sent", "end"),
    [
        ("/v1/chat/completions", CONTENT, b"}\n\ndata: [DONE]\n\n"),
        ("/v1/chat/completions", CONTENT + b'data: {"cho', b"}\n\ndata: [DONE]\n\n"),
        ("/v1/messages", CONTENT, b"}}\n\n"),
        ("/v1/responses", CONTENT, b"}\n\n"),
    ],
)
async def test_a_stream_that_breaks_off_ends_with_one_error_event(kit, session, path, sent, end):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(sent))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    kit.localai.script = script
    async with session.post(gateway.url + path, json={"model": "m", "stream": True}) as answer:
        body = await answer.read()
    assert body.startswith(sent)
    rest = body[len(sent) :]
    # A half event is closed before ours begins.
    assert rest.startswith(b"\n\n") == (not sent.endswith(b"\n\n"))
    assert b"broke off" in rest
    assert rest.count(b"data: {") == 1
    assert rest.endswith(end)
    data = next(line for line in rest.split(b"\n") if line.startswith(b"data: {"))
    assert "broke off" in str(json.loads(data[6:]))
    (failed,) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert (failed.status, failed.error, failed.origin) == (200, "upstream_error", "upstream")


async def test_an_ollama_stream_that_breaks_off_ends_with_an_error_line(kit, session):
    gateway = await kit.start()
    line = b'{"message":{"content":"x"},"done":false}\n'

    async def script(seen, writer):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + kit.chunk(line))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    kit.localai.script = script
    async with session.post(gateway.url + "/api/chat", json={"model": "m"}) as answer:
        body = await answer.read()
    last = json.loads(body.removeprefix(line))
    assert (last["done"], last["done_reason"]) == (True, "error")
    assert "broke off" in last["error"]


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/any/file"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_any_other_answer_that_breaks_off_is_cut_and_never_looks_whole(
    kit, session, path, framing
):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n{framing}\r\n\r\n".encode())
        writer.write(kit.chunk(b"some"))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    kit.localai.script = script
    async with session.post(gateway.url + path, json={"model": "m"}) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_a_stream_that_says_nothing_more_is_ended(kit, session):
    gateway = await kit.start(between_bytes_timeout_s=30.0)

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(CONTENT))
        await asyncio.sleep(60)

    kit.localai.script = script
    answer = await session.post(gateway.url + "/v1/chat/completions", json={"model": "m"})
    assert await answer.content.readany() == CONTENT
    await gateway.clock.advance(31.0)
    assert b"upstream_timeout" in await answer.read()


@pytest.mark.case("P066")
async def test_a_stream_that_is_finished_but_left_open_is_ended_well(kit, session):
    gateway = await kit.start(between_bytes_timeout_s=30.0)
    whole = CONTENT.replace(b"}}]", b'},"finish_reason":"stop"}]')

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(whole))
        await asyncio.sleep(60)

    kit.localai.script = script
    answer = await session.post(gateway.url + "/v1/chat/completions", json={"model": "m"})
    assert await answer.content.readany() == whole
    await gateway.clock.advance(31.0)
    assert await answer.read() == b""
    assert isinstance((await gateway.told())[-1], RequestCompleted)


@pytest.mark.parametrize(
    ("status", "error", "origin"),
    [("404 Not Found", "http_404", "client"), ("500 Oops", "http_500", "upstream")],
)
async def test_an_error_of_localai_passes_unchanged_and_counts_as_failed(
    kit, session, status, error, origin
):
    gateway = await kit.start()
    body = b'{"error":{"code":404,"message":"model not found","type":"x"}}'

    async def script(seen, writer):
        writer.write(kit.reply(body, status=status))

    kit.localai.script = script
    async with session.post(gateway.url + "/v1/completions", json={"model": "gpt-4o"}) as answer:
        assert answer.status == int(status[:3])
        assert await answer.read() == body
    told = await gateway.told()
    assert (told[-1].error, told[-1].origin) == (error, origin)
    # Its words are no content: what is made up would count as a model that has answered.
    assert not any(isinstance(event, FirstTokenSent) for event in told)


async def test_an_error_event_and_a_truncated_stream_count_as_failed(kit, session):
    gateway = await kit.start()
    for stream, error in [
        (CONTENT + b'data: {"error":{"message":"oom"}}\n\ndata: [DONE]\n\n', "stream_error"),
        (CONTENT, "truncated"),
    ]:

        async def script(seen, writer, stream=stream):
            writer.write(kit.event_stream_head + kit.chunk(stream) + b"0\r\n\r\n")

        kit.localai.script = script
        async with session.post(gateway.url + "/v1/completions", json={"model": "m"}) as answer:
            assert await answer.read() == stream
        assert (await gateway.told())[-1].error == error


async def test_past_the_grace_running_requests_are_cut_and_told(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(CONTENT))
        await asyncio.sleep(60)

    kit.localai.script = script
    answer = await session.post(gateway.url + "/v1/chat/completions", json={"model": "m"})
    await answer.content.readany()
    await gateway.stop()
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 2.0)
    (failed,) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert (failed.error, failed.origin) == ("shutting_down", Origin.GATEWAY)
    answer.close()


async def test_past_the_grace_who_still_waits_is_told_so(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    url = gateway.url + "/v1/chat/completions"
    waiting = asyncio.create_task(session.post(url, json={"model": "cold"}))
    await kit.eventually(gateway.service.waiting)
    await gateway.stop()
    answer = await waiting
    assert answer.status == 503
    assert (await answer.json())["error"]["type"] == "shutting_down"
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["X-Headstart-Decision"] == "shutting_down"
    assert answer.headers["X-Request-ID"]
    (failed,) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert (failed.status, failed.error) == (503, "shutting_down")


async def test_past_the_grace_who_waits_for_a_list_is_told_so(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        await asyncio.sleep(60)

    kit.localai.script = script
    waiting = asyncio.create_task(session.get(gateway.url + "/v1/models"))
    await kit.eventually(lambda: kit.localai.seen)
    await gateway.stop()
    answer = await waiting
    assert answer.status == 503
    assert (await answer.json())["error"]["type"] == "shutting_down"


async def test_a_body_over_the_limit_is_413(kit, session):
    gateway = await kit.start(max_body_bytes=100_000)
    async with session.post(gateway.url + "/v1/completions", data=b"x" * 100_001) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "body_too_large"
        assert answer.headers["Connection"] == "close"

    async def pieces():
        for _ in range(100):
            yield b"x" * 5_000

    for path in ("/v1/completions", "/v1/messages", "/any"):
        async with session.post(gateway.url + path, data=pieces()) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["type"] == "invalid_request_error"
    assert [seen.target for seen in kit.localai.seen] == [], "nothing whole went there"
    assert await gateway.told() == []


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/chat/completions", "/any"])
async def test_an_upload_that_localai_refuses_early_gets_its_answer(kit, session, path):
    gateway = await kit.start()
    kit.localai.reads_bodies = False

    async def script(seen, writer):
        head = ("Connection: close", "Content-Type: text/plain")
        writer.write(kit.reply(b"too large", status="413 Too Large", headers=head))
        # Go's server lingers too, so that the answer is not lost with the connection.
        await asyncio.sleep(0.2)
        writer.close()

    kit.localai.script = script
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\n'
    body = io.BytesIO((form if "audio" in path else b"") + b"x" * 20_000_000)
    kind = "multipart/form-data; boundary=b" if "audio" in path else "application/json"
    async with session.post(
        gateway.url + path, data=body, headers={"Content-Type": kind}
    ) as answer:
        assert (answer.status, await answer.read()) == (413, b"too large")


async def test_a_head_without_end_is_cut_off(kit):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 140_000)
    assert (await reader.read()).startswith(b"HTTP/1.1 431")
    writer.close()


async def test_a_caller_that_takes_nothing_any_more_is_let_go(kit, session):
    gateway = await kit.start(between_bytes_timeout_s=30.0)

    async def script(seen, writer):
        writer.write(kit.event_stream_head)
        while True:
            writer.write(kit.chunk(CONTENT * 1000))
            await writer.drain()

    kit.localai.script = script
    answer = await session.post(gateway.url + "/v1/chat/completions", json={"model": "m"})
    await asyncio.sleep(0.5)
    await gateway.clock.advance(31.0)
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 5.0)
    await kit.eventually(lambda: not gateway.service.in_flight())
    assert isinstance((await gateway.told())[-1], RequestCancelled)
    answer.close()


async def test_a_form_that_grows_past_the_limit_while_it_waits_is_413(kit):
    gateway = await kit.start(max_body_bytes=100_000)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: h\r\n")
    writer.write(
        b"Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    start = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ncold\r\n--b\r\n'
    writer.write(kit.chunk(start))
    await kit.eventually(gateway.service.waiting)
    for _ in range(30):
        writer.write(kit.chunk(b"y" * 5_000))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    writer.close()
    assert (await gateway.told())[-1].status == 413


async def test_a_bad_wish_is_400_and_names_what_is_allowed(kit, session):
    gateway = await kit.start()
    url = gateway.url + "/v1/completions"
    for name, value in [
        ("X-Headstart-Class", "urgent"),
        ("X-Headstart-Fallback", "maybe"),
        ("X-Headstart-Deadline-Ms", "-5"),
    ]:
        async with session.post(url, json={"model": "m"}, headers={name: value}) as answer:
            assert answer.status == 400
            error = (await answer.json())["error"]
            assert error["param"] == name
            assert value in error["message"]
            assert "takes" in error["message"]
    assert await gateway.told() == []


async def test_the_key_of_a_node_replaces_the_callers_only_where_we_judged_it(kit, session):
    from contracts.config import NodeConfig
    from contracts.ids import NodeId

    node = NodeConfig(node=NodeId("localai"), url="", api_key="node-key")
    judged = await kit.start(keys=("k",), nodes=(node,))
    async with session.get(judged.url + "/x", headers={"Authorization": "Bearer k"}) as answer:
        assert answer.status == 200
    assert kit.localai.seen[0].all("authorization") == ["Bearer node-key"]
    open_to_all = await kit.start(nodes=(node,))
    async with session.get(open_to_all.url + "/x", headers={"x-api-key": "theirs"}) as answer:
        assert answer.status == 200
    assert kit.localai.seen[1].all("authorization") == []
    assert kit.localai.seen[1].one("x-api-key") == "theirs"
