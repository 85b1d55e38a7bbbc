"""Embeddings, speech, pictures and the like of the emulator, as LocalAI was recorded."""

from __future__ import annotations

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_answers.answer_readers import post

pytestmark = pytest.mark.integration


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
