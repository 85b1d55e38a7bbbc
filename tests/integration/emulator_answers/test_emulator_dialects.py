"""The emulator in Anthropic's, the Responses and Ollama's dialects, as LocalAI was recorded."""

from __future__ import annotations

import json

import pytest

from tests.integration.emulator_answers.answer_readers import HI, get, post, unchunked, wire

pytestmark = pytest.mark.integration


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
