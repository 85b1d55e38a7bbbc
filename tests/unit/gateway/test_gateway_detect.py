from __future__ import annotations

import json

import pytest

from api.gateway.detect import (
    MAX_DEADLINE_MS,
    MAX_MODEL_NAME_CHARS,
    UNCLEAR,
    ApiStyle,
    BadHeader,
    BodyKind,
    InferencePath,
    Peek,
    Wishes,
    body_kind,
    find_model,
    lists_models,
    match_path,
    match_websocket,
    peek_form,
    peek_json,
    read_wishes,
    resolve_alias,
)
from contracts.events import PriorityClass
from contracts.ids import ModelId

PLAIN = InferencePath(operation="chat", style=ApiStyle.OPENAI)


@pytest.mark.parametrize(
    ("path", "operation", "style"),
    [
        ("/v1/chat/completions", "chat", ApiStyle.OPENAI),
        ("/chat/completions", "chat", ApiStyle.OPENAI),
        ("/v1/chat/completions/", "chat", ApiStyle.OPENAI),
        ("/v1/completions", "completions", ApiStyle.OPENAI),
        ("/v1/edits", "edits", ApiStyle.OPENAI),
        ("/v1/mcp/chat/completions", "mcp_chat", ApiStyle.OPENAI),
        ("/mcp/v1/chat/completions", "mcp_chat", ApiStyle.OPENAI),
        ("/v1/embeddings", "embeddings", ApiStyle.OTHER),
        ("/v1/moderations", "moderations", ApiStyle.OTHER),
        ("/v1/responses", "responses", ApiStyle.RESPONSES),
        ("/v1/messages", "messages", ApiStyle.ANTHROPIC),
        ("/v1/rerank", "rerank", ApiStyle.OTHER),
        ("/v1/audio/transcriptions", "transcription", ApiStyle.OTHER),
        ("/v1/audio/speech", "speech", ApiStyle.OTHER),
        ("/v1/audio/diarization", "diarization", ApiStyle.OTHER),
        ("/audio/classification", "classification", ApiStyle.OTHER),
        ("/audio/transformations", "transform", ApiStyle.OTHER),
        ("/tts", "tts", ApiStyle.OTHER),
        ("/v1/text-to-speech/some-voice", "tts", ApiStyle.OTHER),
        ("/v1/sound-generation", "tts", ApiStyle.OTHER),
        ("/v1/images/generations", "image", ApiStyle.OTHER),
        ("/v1/images/inpainting", "image", ApiStyle.OTHER),
        ("/v1/images/upscale", "image", ApiStyle.OTHER),
        ("/video", "video", ApiStyle.OTHER),
        ("/3d/generations", "3d", ApiStyle.OTHER),
        ("/v1/detection", "detection", ApiStyle.OTHER),
        ("/v1/vad", "vad", ApiStyle.OTHER),
        ("/v1/tokenize", "tokenize", ApiStyle.OTHER),
        ("/v1/face/verify", "face", ApiStyle.OTHER),
        ("/v1/voice/embed", "voice", ApiStyle.OTHER),
        ("/v1/realtime/calls", "realtime", ApiStyle.OTHER),
        ("/api/chat", "chat", ApiStyle.OLLAMA),
        ("/api/generate", "completions", ApiStyle.OLLAMA),
        ("/api/embed", "embeddings", ApiStyle.OLLAMA),
        ("/v1/engines/m/completions", "completions", ApiStyle.OPENAI),
        ("/v1/engines/org/m/embeddings", "embeddings", ApiStyle.OTHER),
    ],
)
def test_inference_paths(path, operation, style):
    found = match_path("POST", path)
    assert found is not None
    assert (found.operation, found.style) == (operation, style)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("OPTIONS", "/v1/chat/completions"),
        ("POST", "/"),
        ("POST", "/v1/models"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/responses/abc/cancel"),
        ("POST", "/backend/load"),
        ("POST", "/models/apply"),
        ("POST", "/api/show"),
        ("POST", "/v1/face/forget"),
        ("POST", "/v1/engines/completions"),
        ("POST", "/v1/engines//completions"),
        ("POST", "/v1/engines/m/other"),
        ("POST", "/v1/engines/\ud800/completions"),
        ("POST", "/upload/v1/chat/completions"),
    ],
)
def test_all_others_pass_through(method, path):
    assert match_path(method, path) is None


def test_paths_that_name_their_model():
    found = match_path("POST", "/v1/engines/org/model:q4/completions")
    assert found is not None
    assert found.path_model == "org/model:q4"


def test_ollama_streams_by_default_and_takes_no_comments():
    found = match_path("POST", "/api/generate")
    assert found is not None
    assert found.streams_by_default
    assert not found.takes_comments
    assert PLAIN.takes_comments
    embed = match_path("POST", "/api/embed")
    assert embed is not None
    assert not embed.streams_by_default


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/realtime", "realtime"),
        ("/v1/responses/", "responses"),
        ("/audio/transformations/stream", "transform"),
        ("/ws/backend-logs/m", None),
    ],
)
def test_websockets(path, operation):
    found = match_websocket(path)
    assert (found.operation if found else None) == operation


def test_lists_of_models():
    assert lists_models("GET", "/v1/models")
    assert lists_models("GET", "/models/")
    assert not lists_models("POST", "/v1/models")
    assert not lists_models("GET", "/v1/models/x")


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        (None, BodyKind.JSON),
        (b"application/json", BodyKind.JSON),
        (b"application/json; charset=utf-8", BodyKind.JSON),
        (b"Multipart/Form-Data; boundary=x", BodyKind.MULTIPART),
        (b"application/x-www-form-urlencoded", BodyKind.FORM),
    ],
)
def test_kinds_of_bodies(content_type, kind):
    assert body_kind(content_type) is kind


@pytest.mark.parametrize(
    ("body", "peek"),
    [
        (b'{"model":"m","stream":true}', Peek(model="m", stream=True)),
        (b'{"messages":[{"model":"inner"}],"model":"m"}', Peek(model="m")),
        (b'{"model":"m","stream":"yes"}', Peek(model="m")),
        (b'{"model":["m"]}', UNCLEAR),
        (b'{"model":null}', Peek()),
        (b'{"model":""}', Peek()),
        (b'{"model":"tug\xc3\xa3o a?b#c%2F"}', Peek(model="tugão a?b#c%2F")),
        (b'{"model":"x"} trailing', Peek(model="x")),
        (b'["model"]', UNCLEAR),
        (b"", Peek()),
        (b"\xff\xfe", UNCLEAR),
        (b"[" * 100_000, UNCLEAR),
        (json.dumps({"model": "x" * MAX_MODEL_NAME_CHARS}).encode(), Peek(model="x" * 512)),
        (json.dumps({"model": "x" * (MAX_MODEL_NAME_CHARS + 1)}).encode(), UNCLEAR),
    ],
)
def test_json_bodies(body, peek):
    assert peek_json(body) == peek
    assert peek_json(memoryview(body)) == peek


def test_elevenlabs_names_its_model_otherwise():
    assert peek_json(b'{"model":"a","model_id":"b"}', "model_id") == Peek(model="b")
    assert peek_json(b"nonsense", "model_id") == UNCLEAR


@pytest.mark.parametrize(
    ("body", "peek"),
    [
        (b"model=a%2Fb&stream=true", Peek(model="a/b", stream=True)),
        (b"model=first&model=second", Peek(model="first")),
        (b"stream=no", Peek()),
        (b"&".join(b"a=1" for _ in range(500)), Peek()),
        (b"model=x&" + b"y" * 70_000, UNCLEAR),
        (b"Model=m", Peek(model="m")),
        (b"Model=m&model=n", Peek(model="n")),
        (b"Model=m&MODEL=m", UNCLEAR),
        (b"mod%65l=a+b", Peek(model="a b")),
        (b"model=%zz&x&model=a;b&model=c", Peek(model="c")),
    ],
)
def test_forms(body, peek):
    assert peek_form(body) == peek


def is_model(name: str) -> bool:
    return name == "known"


@pytest.mark.parametrize(
    ("peek", "path_model", "query", "authorization", "found"),
    [
        (Peek(model="body"), "path", b"model=query", b"Bearer known", "body"),
        (Peek(), "path", b"model=query", b"Bearer known", "path"),
        (Peek(), None, b"x=1&model=a%2Fb", b"Bearer known", "a/b"),
        (Peek(), None, b"model=", b"Bearer known", "known"),
        (Peek(), None, b"", b"Bearer sk-secret", None),
        (Peek(), None, b"", b"Bearer ", None),
        (Peek(), None, b"", b"known", None),
        (Peek(), None, b"", None, None),
        (UNCLEAR, "path", b"model=query", b"Bearer known", None),
        (Peek(), None, b"model=" + b"x" * 600, b"Bearer known", None),
    ],
)
def test_where_the_model_is_looked_for(peek, path_model, query, authorization, found):
    path = InferencePath(operation="chat", style=ApiStyle.OPENAI, path_model=path_model)
    assert found == find_model(
        peek=peek, path=path, query=query, authorization=authorization, is_model=is_model
    )


def test_aliases():
    aliases = {"gpt-4": ModelId("hermes")}
    assert resolve_alias("gpt-4", aliases) == "hermes"
    assert resolve_alias("hermes", aliases) == "hermes"
    assert resolve_alias(None, aliases) is None


def test_wishes():
    assert read_wishes([(b"host", b"x")]) == Wishes()
    assert read_wishes([(b"x-headstart-other", b"x")]) == Wishes()
    assert read_wishes(
        [
            (b"x-headstart-class", b" Batch "),
            (b"x-headstart-fallback", b"allow"),
            (b"x-headstart-deadline-ms", b"1500"),
        ]
    ) == Wishes(priority=PriorityClass.BATCH, fallback=True, deadline_s=1.5)
    assert read_wishes([(b"x-headstart-fallback", b"DENY")]).fallback is False
    assert read_wishes([(b"x-headstart-preempt", b"Anytime")]).preempt_anytime


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        (b"x-headstart-class", b"urgent", "realtime, batch or background"),
        (b"x-headstart-fallback", b"\xe9", "allow or deny"),
        (b"x-headstart-preempt", b"never", "anytime"),
        (b"x-headstart-deadline-ms", b"0", "whole milliseconds"),
        (b"x-headstart-deadline-ms", b"1.5", "whole milliseconds"),
        (b"x-headstart-deadline-ms", b"\xb2", "whole milliseconds"),
        (b"x-headstart-deadline-ms", b"9" * 40, str(MAX_DEADLINE_MS)),
        (b"x-headstart-deadline-ms", b"000000000001" + b"9" * 5_000, "whole milliseconds"),
    ],
)
def test_wishes_that_cannot_be_granted(name, value, takes):
    with pytest.raises(BadHeader) as bad:
        read_wishes([(name, value)])
    assert bad.value.header.lower().encode() == name
    assert takes in str(bad.value)
