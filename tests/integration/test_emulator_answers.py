"""The emulator's answers in the shapes that a real LocalAI v4.9 was recorded with."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator

pytestmark = pytest.mark.integration

MODELS = [
    {"name": "small-chat", "footprint_mb": 64, "load_s": 2.0, "aliases": ["chat"]},
    {"name": "slow-load", "footprint_mb": 32, "load_s": 4.0, "tokens_per_s": 20},
    {"name": "org/named", "footprint_mb": 8, "load_s": 0.1},
    {"name": "off", "footprint_mb": 8, "load_s": 0.1, "disabled": True},
    {"name": "wordy", "footprint_mb": 8, "load_s": 0.1, "keeps_format": False},
    {"name": "tiny-embed", "kind": "embedding", "footprint_mb": 16, "load_s": 0.5},
    {"name": "voice", "kind": "speech", "footprint_mb": 16, "load_s": 0.5},
    {"name": "ears", "kind": "transcription", "footprint_mb": 16, "load_s": 0.5},
    {"name": "painter", "kind": "image", "footprint_mb": 16, "load_s": 0.5},
    {"name": "judge", "kind": "rerank", "footprint_mb": 16, "load_s": 0.5},
    {"name": "gate", "kind": "vad", "footprint_mb": 16, "load_s": 0.5},
]
HI = [{"role": "user", "content": "hi there friend"}]


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS) as running:
        yield running


@pytest.fixture
async def http(emulator: RunningEmulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(emulator.url) as session:
        yield session


async def post(
    http: aiohttp.ClientSession, path: str, body: Any, **headers: str
) -> tuple[int, Mapping[str, str], Any]:
    async with http.post(path, json=body, headers=headers) as answer:
        return answer.status, answer.headers, await answer.json(content_type=None)


async def get(http: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, Any]:
    async with http.get(path, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


def wire(emulator: RunningEmulator, path: str, body: Any) -> bytes:
    """Everything that comes off the socket for one request, until it closes or ends."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", emulator.port()), timeout=20.0) as connection:
        connection.sendall(head.encode() + data)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    return got


def unchunked(body: bytes) -> str:
    """The text of a body in chunks."""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole += rest[:length]
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]
    return whole.decode()


def events_of(stream: str) -> list[Any]:
    """Payloads of a stream in OpenAI's framing, ``[DONE]`` left out."""
    blocks = stream.split("\n\n")
    assert blocks[-1] == ""
    assert blocks[-2] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]


# Chat and completions


async def test_chat(http):
    status, headers, body = await post(
        http, "/v1/chat/completions", {"model": "small-chat", "messages": HI, "max_tokens": 4}
    )
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert headers["Vary"] == "Origin"
    assert list(body) == ["created", "object", "id", "model", "choices", "usage"]
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "word word word word"},
        }
    ]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_every_answer_has_the_security_headers(http):
    async with http.get("/version") as answer:
        assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "strict-origin-when-cross-origin"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert answer.headers.getall("Vary") == ["Accept-Encoding", "Origin"]
        assert (await answer.read()).endswith(b"}\n")


async def test_without_max_tokens_an_answer_ends_by_itself(http):
    _, _, body = await post(http, "/v1/chat/completions", {"model": "small-chat"})
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 0, "completion_tokens": 32, "total_tokens": 32}


async def test_an_alias_is_echoed(http):
    _, _, body = await post(
        http, "/v1/chat/completions", {"model": "chat", "messages": HI, "max_tokens": 1}
    )
    assert body["model"] == "chat"


@pytest.mark.parametrize(
    ("path", "body", "headers", "expected"),
    [
        ("/v1/chat/completions?model=nope", {"model": "small-chat"}, {}, "small-chat"),
        ("/v1/chat/completions?model=slow-load", {}, {}, "slow-load"),
        ("/v1/chat/completions", {}, {"Authorization": "Bearer slow-load"}, "slow-load"),
        ("/v1/chat/completions", {}, {"Authorization": "Bearer sk-xyz"}, "small-chat"),
        ("/v1/chat/completions", {"model": ""}, {}, "small-chat"),
        ("/v1/chat/completions/", {"model": 7}, {}, "small-chat"),
        ("/chat/completions", {"model": "org/named"}, {}, "org/named"),
        ("/v1/engines/slow-load/completions", {"prompt": "a"}, {}, "slow-load"),
        ("/v1/engines/org%2Fnamed/completions", {"prompt": "a"}, {}, "org/named"),
        ("/v1/chat/completions", {"model": "tiny-embed"}, {}, "tiny-embed"),
    ],
)
async def test_the_model_is_found_in_localais_order(http, path, body, headers, expected):
    status, _, answer = await post(http, path, {**body, "max_tokens": 1}, **headers)
    assert (status, answer["model"]) == (200, expected)


async def test_an_unknown_model_is_not_found_streamed_or_not(http):
    for stream in (False, True):
        status, headers, body = await post(
            http, "/v1/chat/completions", {"model": "nope", "stream": stream}
        )
        assert status == 404
        assert "X-Correlation-Id" not in headers
        assert body == {
            "error": {
                "code": 404,
                "message": 'model "nope" not found. To see available models, call GET /v1/models',
                "type": "invalid_request_error",
            }
        }


async def test_a_name_with_a_slash_is_tried_and_cools_down(http, emulator):
    status, _, body = await post(http, "/v1/chat/completions", {"model": "org/nope"})
    assert status == 500
    message = body["error"]["message"]
    assert message.startswith("could not load model - all backends returned error: [")
    assert message.endswith("no such file")
    # the cool-down's own status is lost on the way through all backends
    status, headers, body = await post(http, "/v1/chat/completions", {"model": "org/nope"})
    assert status == 500
    assert "Retry-After" not in headers
    assert "load is in cooldown after a recent failure; retry after" in body["error"]["message"]
    assert emulator.events("load_failed", model="org/nope")


async def test_a_disabled_model_is_refused_but_can_be_loaded(http):
    status, _, body = await post(http, "/v1/chat/completions", {"model": "off"})
    assert (status, body["error"]["type"]) == (403, "model_disabled")
    status, _, body = await post(http, "/backend/load", {"model": "off"})
    assert (status, body) == (200, {"loaded": ["off"], "message": "model loaded"})


async def test_bodies_that_cannot_be_read(http):
    async with http.post(
        "/v1/chat/completions", data=b'{"model":', headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["message"] == (
            "code=400, message=failed parsing request body: code=400, "
            "message=unexpected EOF, internal=unexpected EOF"
        )
    async with http.post("/v1/chat/completions", data=b"{}") as answer:
        assert answer.status == 400
        assert "code=415, message=Unsupported Media Type" in await answer.text()


async def test_two_choices_are_made_one_after_the_other(http):
    _, _, body = await post(
        http, "/v1/chat/completions", {"model": "small-chat", "max_tokens": 2, "n": 2}
    )
    assert [choice["index"] for choice in body["choices"]] == [0, 0]
    assert body["usage"]["completion_tokens"] == 2


async def test_correlation_and_request_ids(http):
    _, headers, _ = await post(
        http,
        "/v1/chat/completions",
        {"model": "small-chat", "max_tokens": 1},
        **{"X-Correlation-ID": "abc-1", "X-Request-ID": "req-1"},
    )
    assert headers["X-Correlation-Id"] == "abc-1"
    assert "X-Request-Id" not in headers
    _, headers, _ = await post(
        http,
        "/v1/messages",
        {"model": "small-chat", "max_tokens": 1, "messages": HI},
        **{"X-Correlation-ID": "c-1", "X-Request-ID": "r-1"},
    )
    assert headers["X-Request-Id"] == "r-1"
    assert "X-Correlation-Id" not in headers


async def test_completions_and_edits(http):
    _, _, body = await post(
        http, "/v1/completions", {"model": "small-chat", "prompt": ["a b", "c"], "max_tokens": 3}
    )
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "finish_reason": "stop", "text": "word word word"},
        {"index": 1, "finish_reason": "stop", "text": "word word word"},
    ]
    assert body["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    _, _, body = await post(
        http, "/v1/edits", {"model": "small-chat", "input": "a", "instruction": "b"}
    )
    assert (body["object"], body["choices"][0]["finish_reason"]) == ("edit", None)
    assert body["usage"]["total_tokens"] == 33


def test_a_streamed_chat_byte_by_byte(emulator):
    got = wire(
        emulator,
        "/v1/chat/completions",
        {
            "model": "chat", "messages": HI, "max_tokens": 2, "stream": True,
            "stream_options": {"include_usage": True},
        },
    )  # fmt: skip
    start, _, body = got.partition(b"\r\n\r\n")
    head, stream = start.decode(), unchunked(body)
    assert "content-type: text/event-stream" in head.lower()
    assert "cache-control: no-cache" in head.lower()
    assert "\r" not in stream
    chunks = events_of(stream)
    assert [list(chunk) for chunk in chunks[:-1]] == [
        ["created", "object", "id", "model", "choices"]
    ] * 4
    assert {chunk["model"] for chunk in chunks} == {"chat"}
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": None}}],
        [{"index": 0, "finish_reason": None, "delta": {"content": "word "}}],
        [{"index": 0, "finish_reason": None, "delta": {"content": "word "}}],
        [{"index": 0, "finish_reason": "length", "delta": {"content": None}}],
        [],
    ]
    assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    correlation = next(
        line.partition(": ")[2]
        for line in head.split("\r\n")
        if line.lower().startswith("x-correlation-id")
    )
    assert {chunk["id"] for chunk in chunks} == {correlation}


def test_a_double_slash_is_another_path(emulator):
    assert wire(emulator, "//v1/chat/completions", {}).startswith(b"HTTP/1.1 404 ")


def test_a_streamed_completion(emulator):
    got = wire(
        emulator,
        "/v1/completions",
        {
            "model": "small-chat", "prompt": "a b", "max_tokens": 2, "stream": True,
            "stream_options": {"include_usage": True},
        },
    )  # fmt: skip
    chunks = events_of(unchunked(got.partition(b"\r\n\r\n")[2]))
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "finish_reason": None, "text": "word "}],
        [{"index": 0, "finish_reason": None, "text": "word "}],
        [{"index": 0, "finish_reason": "stop"}],
        [],
    ]
    assert chunks[0]["object"] == "text_completion"
    assert chunks[-1]["object"] == "chat.completion.chunk"
    assert chunks[-1]["usage"]["total_tokens"] == 4


def test_a_stream_is_chunked_on_http_11(emulator):
    got = wire(
        emulator, "/v1/chat/completions", {"model": "small-chat", "max_tokens": 1, "stream": True}
    )
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    assert body.endswith(b"\r\n0\r\n\r\n")


# Anthropic, Responses, Ollama


async def test_an_anthropic_message(http):
    _, _, body = await post(
        http, "/v1/messages", {"model": "small-chat", "max_tokens": 3, "messages": HI}
    )
    assert body["id"].startswith("msg_")
    del body["id"]
    assert body == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "word word word"}],
        "model": "small-chat",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 3},
    }
    status, headers, body = await post(http, "/v1/messages", {"model": "small-chat"})
    assert status == 400
    assert "X-Request-Id" in headers
    assert body["error"]["message"] == (
        "code=400, message=max_tokens is required and must be greater than 0"
    )


def test_an_anthropic_stream(emulator):
    got = wire(
        emulator,
        "/v1/messages",
        {"model": "small-chat", "max_tokens": 2, "messages": HI, "stream": True},
    )
    pieces = unchunked(got.partition(b"\r\n\r\n")[2]).split("\n\n")[:-1]
    # A load that takes long is bridged with pings.
    blocks = [piece.split("\n") for piece in pieces if not piece.startswith("event: ping\n")]
    assert [event for event, _ in blocks] == [
        "event: message_start",
        "event: content_block_start",
        "event: content_block_delta",
        "event: content_block_delta",
        "event: content_block_stop",
        "event: message_delta",
        "event: message_stop",
    ]
    start = json.loads(blocks[0][1].removeprefix("data: "))
    assert start["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    delta = json.loads(blocks[5][1].removeprefix("data: "))
    assert delta["usage"] == {"input_tokens": 0, "output_tokens": 2}


async def test_a_response_and_its_stored_copy(http):
    _, _, body = await post(
        http, "/v1/responses", {"model": "small-chat", "input": "hi there", "max_output_tokens": 3}
    )
    assert (body["object"], body["status"]) == ("response", "completed")
    assert body["output"][0]["content"] == [
        {"type": "output_text", "text": "word word word", "annotations": [], "logprobs": []}
    ]
    assert body["usage"]["total_tokens"] == 5
    assert (await get(http, f"/v1/responses/{body['id']}"))[1] == body
    status, missing = await get(http, "/v1/responses/resp_nope")
    assert (status, missing["error"]["type"]) == (404, "not_found")
    _, _, body = await post(
        http, "/v1/responses", {"model": "small-chat", "input": "x", "background": True}
    )
    assert body["status"] == "queued"
    assert (await get(http, f"/v1/responses/{body['id']}"))[1]["status"] == "failed"


def test_a_responses_stream(emulator):
    got = wire(
        emulator,
        "/v1/responses",
        {"model": "small-chat", "input": "hi", "max_output_tokens": 2, "stream": True},
    )
    blocks = unchunked(got.partition(b"\r\n\r\n")[2]).split("\n\n")
    assert blocks[-2] == "data: [DONE]"
    payloads = [json.loads(block.split("\ndata: ")[1]) for block in blocks[:-2]]
    assert [payload["sequence_number"] for payload in payloads] == list(range(10))
    assert [payload["type"] for payload in payloads] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert payloads[-1]["response"]["output"][0]["content"][0]["text"] == "word word "


async def test_ollama(http):
    _, headers, body = await post(
        http,
        "/api/chat",
        {"model": "small-chat", "messages": HI, "stream": False, "options": {"num_predict": 3}},
    )
    assert "X-Correlation-Id" in headers
    assert body["message"] == {"role": "assistant", "content": "word word word"}
    assert (body["done"], body["done_reason"], body["eval_count"]) == (True, "stop", 3)
    status, _, _ = await post(http, "/api/chat", {"model": "small-chat:latest"})
    assert status == 404
    _, headers, body = await post(http, "/api/embed", {"model": "tiny-embed", "input": ["a", "b"]})
    assert "X-Correlation-Id" not in headers
    assert len(body["embeddings"]) == 2
    _, body = await get(http, "/api/tags")
    assert "chat:latest" in [model["name"] for model in body["models"]]
    _, body = await get(http, "/api/ps")
    assert {model["size_vram"] for model in body["models"]} == {0}
    _, _, body = await post(http, "/api/show", {"model": "chat"})
    assert body["capabilities"] == ["completion"]
    status, _, body = await post(http, "/api/show", {"model": "nope"})
    assert (status, body) == (404, {"error": "model 'nope' not found"})
    assert await get(http, "/api/version") == (200, {"version": "0.9.0"})


async def test_ollama_streams_lines(http):
    async with http.post(
        "/api/generate",
        json={"model": "small-chat", "prompt": "a", "options": {"num_predict": 2}},
    ) as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line["response"] for line in lines] == ["word ", "word ", ""]
    assert [line["done"] for line in lines] == [False, False, True]
    assert lines[-1]["eval_count"] == 2


async def test_ollamas_keep_alive_zero_unloads_nothing(http, emulator):
    await post(http, "/backend/load", {"model": "tiny-embed"})
    _, _, body = await post(http, "/api/generate", {"model": "tiny-embed", "keep_alive": 0})
    assert (body["done"], body["done_reason"]) == (True, "load")
    assert emulator.emulator.instance.machine.is_hot("tiny-embed")


# Other modalities


async def test_embeddings_have_no_usage(http):
    _, headers, body = await post(
        http, "/v1/embeddings", {"model": "tiny-embed", "input": ["a", "b"]}
    )
    assert "X-Correlation-Id" in headers
    assert list(body) == ["created", "object", "id", "model", "data"]
    assert [item["index"] for item in body["data"]] == [0, 1]
    assert body["data"][0]["embedding"] == [0.1] * 8
    _, _, body = await post(
        http, "/v1/embeddings",
        {"model": "tiny-embed", "input": "a", "encoding_format": "base64"},
    )  # fmt: skip
    assert body["data"][0]["embedding"] == "zczMPc3MzD3NzMw9zczMPc3MzD3NzMw9zczMPc3MzD0="


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/audio/speech", {"model": "voice", "input": "a", "voice": "x"}),
        ("/tts", {"model": "voice", "input": "a"}),
        ("/v1/text-to-speech/x", {"model_id": "voice", "text": "a"}),
    ],
)
async def test_speech_is_a_file(http, path, body):
    async with http.post(path, json=body) as answer:
        data = await answer.read()
        assert answer.headers["Content-Type"] == "audio/wav"
        assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
        assert "X-Correlation-Id" not in answer.headers
    assert (len(data), data[:4], data[8:12]) == (8044, b"RIFF", b"WAVE")


@pytest.mark.parametrize("order", ["before", "after", "missing"])
async def test_a_transcription_finds_its_model_anywhere_in_the_form(http, emulator, order):
    form = aiohttp.FormData()
    if order == "before":
        form.add_field("model", "ears")
    form.add_field("file", b"RIFF" + bytes(4000), filename="a.wav", content_type="audio/wav")
    if order == "after":
        form.add_field("model", "ears")
    seen = len(emulator.events("request_ended", model="ears"))
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        assert answer.status == 200
        assert await answer.json() == {
            "segments": [{"id": 0, "start": 0, "end": 0.25, "text": "hello world", "tokens": None}],
            "text": "hello world",
        }
    assert len(emulator.events("request_ended", model="ears")) == seen + 1


async def test_a_transcription_without_a_file(http):
    status, _, body = await post(http, "/v1/audio/transcriptions", {"model": "ears"})
    assert status == 500
    assert body["error"]["message"] == "request Content-Type isn't multipart/form-data"
    form = aiohttp.FormData({"model": "ears"}, default_to_multipart=True)
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        assert (answer.status, "http: no such file" in await answer.text()) == (500, True)


async def test_without_a_model_of_the_use_case() -> None:
    """Some endpoints then ask for one of OpenAI's, the others have nothing to ask for."""
    with RunningEmulator([{"name": "gate", "kind": "vad"}]) as bare:
        async with aiohttp.ClientSession(bare.url) as http:
            for path, expected in (
                ("/v1/completions", 404),
                ("/v1/edits", 404),
                ("/v1/embeddings", 404),
                ("/v1/chat/completions", 400),
                ("/v1/rerank", 400),
                ("/v1/images/generations", 400),
            ):
                status, _, body = await post(http, path, {})
                assert status == expected, path
                says = "gpt-4o" if expected == 404 else "code=400, message=Bad Request"
                assert says in body["error"]["message"]


async def test_an_image_is_fetched_where_its_url_says(http, emulator):
    _, _, body = await post(http, "/v1/images/generations", {"model": "painter", "prompt": "a"})
    url = body["data"][0]["url"]
    assert url.startswith(f"{emulator.url}/generated-images/b64")
    async with http.get(url.removeprefix(emulator.url)) as answer:
        assert (await answer.read()).startswith(b"\x89PNG")
    _, _, body = await post(
        http, "/v1/images/generations", {"model": "painter", "prompt": "a"},
        **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "gw.example"},
    )  # fmt: skip
    assert body["data"][0]["url"].startswith("https://gw.example/generated-images/")
    _, _, body = await post(
        http, "/v1/images/generations",
        {"model": "painter", "prompt": "a", "response_format": "b64_json"},
    )  # fmt: skip
    assert body["data"][0]["b64_json"].startswith("iVBORw0KGgo")


async def test_rerank_vad_tokenize_moderations(http):
    _, _, body = await post(
        http, "/v1/rerank", {"model": "judge", "query": "q", "documents": ["a", "b"]}
    )
    assert body["usage"] == {"total_tokens": 3, "prompt_tokens": 3}
    assert [row["relevance_score"] for row in body["results"]] == [1, 0.5]
    _, _, body = await post(http, "/v1/vad", {"model": "gate", "audio": [0.0]})
    assert body == {"segments": [{"start": 0, "end": 0.2}]}
    _, _, body = await post(http, "/v1/tokenize", {"model": "small-chat", "content": "a b c"})
    assert body == {"tokens": [0, 1, 2]}
    status, _, body = await post(http, "/v1/moderations", {"model": "small-chat", "input": "a"})
    assert status == 200
    assert [result["flagged"] for result in body["results"]] == [False]
    status, _, body = await post(http, "/v1/moderations", {"model": "wordy", "input": "a"})
    assert status == 500
    assert "invalid moderation result" in body["error"]["message"]


# The HTTP layer


async def test_paths_and_methods_that_do_not_exist(http):
    assert await get(http, "/no/such") == (
        404,
        {"error": {"code": 404, "message": "Resource not found", "type": ""}},
    )
    assert (await get(http, "/v1/models/small-chat"))[0] == 404
    assert (await get(http, "/v1/models/"))[0] == 200
    assert (await get(http, "/api/nodes"))[0] == 404
    assert (await get(http, "/generated-images/none.png"))[0] == 404
    assert (await get(http, "/v1/engines/a/chat/completions"))[0] == 404
    async with http.get("/", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, "/app")
    async with http.get("/no/such", headers={"Accept": "text/html"}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    async with http.get("/v1/chat/completions") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "OPTIONS, POST")
        assert "code=405, message=Method Not Allowed" in await answer.text()
    async with http.head("/readyz") as answer:
        assert answer.status == 405
    async with http.post("/backend/monitor", json={"model": "a"}) as answer:
        assert answer.status == 405


async def test_preflight_and_origin(http):
    async with http.options(
        "/v1/chat/completions",
        headers={
            "Origin": "http://a.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        },
    ) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET,HEAD,PUT,PATCH,POST,DELETE"
        assert answer.headers["Allow"] == "OPTIONS, POST"
    status, _, body = await post(
        http, "/v1/chat/completions", {"model": "small-chat"}, **{"Sec-Fetch-Site": "cross-site"}
    )
    assert status == 400
    assert body["error"]["message"] == "code=400, message=missing csrf token in request header"


async def test_long_answers_are_compressed_where_nothing_ever_streams(http):
    asked = {"Accept-Encoding": "gzip"}
    async with http.get("/api/tags", headers=asked) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert (await answer.json())["models"]
    body = {"model": "small-chat", "max_tokens": 400}
    async with http.post("/v1/chat/completions", json=body, headers=asked) as answer:
        assert "Content-Encoding" not in answer.headers
        assert len(await answer.read()) > 1024
    async with http.get("/version", headers=asked) as answer:
        assert "Content-Encoding" not in answer.headers


def test_a_large_body_is_refused_by_its_length_before_it_is_read(emulator):
    with socket.create_connection(("127.0.0.1", emulator.port()), timeout=10.0) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 16777280\r\n\r\n"
        )
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    assert got.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in got.lower()
    assert b'"message":"code=413, message=Request Entity Too Large"' in got


async def test_a_large_body_without_a_length_is_refused_too(http):
    async def endless():
        for _ in range(16):
            yield bytes(1_000_000)

    async with http.post(
        "/v1/chat/completions", data=endless(), headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 413


async def test_a_body_in_chunks_is_read(http):
    async def pieces():
        yield b'{"model": "small-chat",'
        await asyncio.sleep(0.01)
        yield b'"max_tokens": 1}'

    async with http.post(
        "/v1/chat/completions", data=pieces(), headers={"Content-Type": "application/json"}
    ) as answer:
        assert (await answer.json())["usage"]["completion_tokens"] == 1


async def test_realtime_without_an_upgrade(http):
    async with http.get("/v1/realtime?model=small-chat") as answer:
        assert answer.status == 400
        assert answer.headers["Sec-Websocket-Version"] == "13"
        assert (await answer.text()).startswith("Bad Request\n")


def test_keys() -> None:
    with RunningEmulator(MODELS[:1], api_keys=("k-admin", "k-two")) as locked:
        chat = {"model": "small-chat", "max_tokens": 1}

        async def ask(method: str, path: str, **headers: str) -> tuple[int, str | None]:
            body = chat if method == "POST" else None
            async with (
                aiohttp.ClientSession(locked.url) as session,
                session.request(method, path, json=body, headers=headers) as answer,
            ):
                return answer.status, answer.headers.get("Www-Authenticate")

        async def check() -> None:
            path = "/v1/chat/completions"
            for headers in (
                {"Authorization": "Bearer k-admin"},
                {"Authorization": "Bearer k-two"},
                {"Authorization": "k-admin"},
                {"x-api-key": "k-admin"},
                {"xi-api-key": "k-admin"},
                {"Cookie": "other=1; token=k-admin"},
            ):
                assert (await ask("POST", path, **headers))[0] == 200, headers
            for headers in (
                {},
                {"Authorization": "bearer k-admin"},
                {"Authorization": "Basic azphZG1pbg=="},
                {"Authorization": "Bearer nope"},
                {"x-api-key": "x"},
            ):
                assert await ask("POST", path, **headers) == (401, "Bearer"), headers
            for path in ("/version", "/v1/models", "/no/such", "/generated-images/x.png"):
                assert (await ask("GET", path))[0] == 401
            for path in ("/healthz", "/readyz", "/.well-known/localai.json"):
                assert (await ask("GET", path))[0] == 200
            assert (await ask("OPTIONS", "/v1/chat/completions"))[0] == 401

        asyncio.run(check())
