"""Field reports on tokens that are counted, replayed: in streams, documents and packed answers."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from structlog.testing import capture_logs

from contracts.events import FirstTokenSent, RequestCompleted, RequestFailed, RequestReceived
from tests.integration.gateway.streaming.word_streams import (
    ASK,
    CHAT,
    DONE,
    USAGE,
    ZEROS,
    message_events,
    said,
    streams,
    told,
    word,
)

pytestmark = pytest.mark.integration


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
