"""Chats and completions of the emulator, whole and streamed, as LocalAI was recorded."""

from __future__ import annotations

import pytest

from tests.integration.emulator_answers.answer_readers import HI, events_of, post, unchunked, wire

pytestmark = pytest.mark.integration


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
