"""Each route that LocalAI serves: metered and admitted, or passed on as it is."""

from __future__ import annotations

import pytest

from api.gateway.detect import (
    UNCLEAR,
    ApiStyle,
    Peek,
    lists_models,
    match_path,
    match_websocket,
    peek_json,
    straight_path,
)
from api.gateway.loose_json import MAX_BYTES

CHAT = ("chat", ApiStyle.OPENAI)

METERED = {
    **dict.fromkeys(["/v1/chat/completions", "/chat/completions"], CHAT),
    **dict.fromkeys(["/v1/completions", "/completions"], ("completions", ApiStyle.OPENAI)),
    **dict.fromkeys(["/v1/edits", "/edits"], ("edits", ApiStyle.OPENAI)),
    **dict.fromkeys(
        ["/v1/mcp/chat/completions", "/mcp/v1/chat/completions", "/mcp/chat/completions"],
        ("mcp_chat", ApiStyle.OPENAI),
    ),
    **dict.fromkeys(["/v1/messages", "/messages"], ("messages", ApiStyle.ANTHROPIC)),
    **dict.fromkeys(["/v1/responses", "/responses"], ("responses", ApiStyle.RESPONSES)),
    **dict.fromkeys(["/v1/embeddings", "/embeddings"], ("embeddings", ApiStyle.OTHER)),
    **dict.fromkeys(["/v1/moderations", "/moderations"], ("moderations", ApiStyle.OTHER)),
    "/v1/rerank": ("rerank", ApiStyle.OTHER),
    **dict.fromkeys(
        ["/v1/audio/transcriptions", "/audio/transcriptions"], ("transcription", ApiStyle.OTHER)
    ),
    **dict.fromkeys(["/v1/audio/speech", "/audio/speech"], ("speech", ApiStyle.OTHER)),
    **dict.fromkeys(
        ["/v1/audio/diarization", "/audio/diarization"], ("diarization", ApiStyle.OTHER)
    ),
    **dict.fromkeys(
        ["/v1/audio/classification", "/audio/classification"], ("classification", ApiStyle.OTHER)
    ),
    **dict.fromkeys(["/audio/transform", "/audio/transformations"], ("transform", ApiStyle.OTHER)),
    "/tts": ("tts", ApiStyle.OTHER),
    "/v1/text-to-speech/some-voice": ("tts", ApiStyle.OTHER),
    "/v1/sound-generation": ("tts", ApiStyle.OTHER),
    **dict.fromkeys(
        [
            "/v1/images/generations",
            "/images/generations",
            "/v1/images/inpainting",
            "/images/inpainting",
            "/v1/images/upscale",
            "/images/upscale",
        ],
        ("image", ApiStyle.OTHER),
    ),
    "/video": ("video", ApiStyle.OTHER),
    **dict.fromkeys(["/3d/generations", "/3d/remesh"], ("3d", ApiStyle.OTHER)),
    **dict.fromkeys(["/v1/detection", "/v1/depth"], ("detection", ApiStyle.OTHER)),
    **dict.fromkeys(["/v1/vad", "/vad"], ("vad", ApiStyle.OTHER)),
    **dict.fromkeys(["/v1/tokenize", "/v1/detokenize"], ("tokenize", ApiStyle.OTHER)),
    **dict.fromkeys(
        [f"/v1/face/{verb}" for verb in ("analyze", "embed", "identify", "register", "verify")],
        ("face", ApiStyle.OTHER),
    ),
    **dict.fromkeys(
        [f"/v1/voice/{verb}" for verb in ("analyze", "embed", "identify", "register", "verify")],
        ("voice", ApiStyle.OTHER),
    ),
    "/v1/realtime/calls": ("realtime", ApiStyle.OTHER),
    "/v1/engines/m/completions": ("completions", ApiStyle.OPENAI),
    "/v1/engines/org/m:q4/embeddings": ("embeddings", ApiStyle.OTHER),
    "/api/chat": ("chat", ApiStyle.OLLAMA),
    "/api/generate": ("completions", ApiStyle.OLLAMA),
    **dict.fromkeys(["/api/embed", "/api/embeddings"], ("embeddings", ApiStyle.OLLAMA)),
}

PASSED = [
    *("/", "/v1", "/v1/", "/healthz", "/readyz", "/metrics", "/version", "/system", "/upload"),
    *("/v1/messages/count_tokens", "/v1/realtime/sessions", "/v1/realtime/transcription_session"),
    *("/v1/responses/r/cancel", "/responses/r/cancel", "/v1/responses/r/input_items"),
    *("/v1/face/forget", "/v1/voice/forget", "/v1/face", "/v1/face/verify/more"),
    *("/backend/load", "/backend/shutdown", "/v1/backend/load", "/v1/backend/shutdown"),
    *("/models/apply", "/models/delete/m", "/models/edit/m", "/models/import", "/models/reload"),
    *("/models/import-uri", "/backends/apply", "/backends/delete/b", "/backends/upgrade/b"),
    *("/stores/set", "/stores/get", "/stores/find", "/stores/delete"),
    *("/api/show", "/api/pull", "/api/score", "/api/settings", "/api/cors-proxy"),
    *("/api/models/vram-estimate", "/api/models/install/m", "/api/models/config/m"),
    *("/api/backends/install/b", "/api/branding/asset/logo", "/api/operations/j/cancel"),
    *("/api/traces/clear", "/api/backend-traces/clear", "/api/backend-logs/m/clear"),
    *("/api/agents/a/chat", "/api/agent/tasks", "/api/agent/jobs/execute"),
    *("/api/auth/login", "/api/auth/token-login", "/api/router/decide", "/api/pii/analyze"),
    *("/api/nodes/register", "/api/nodes/n/drain", "/api/nodes/scheduling", "/network/add"),
    *("/api/finetune/jobs", "/api/quantization/jobs", "/api/voice-profiles"),
    *("/v1/mcp/prompts/m/p", "/v1/mcp/resources/m/read"),
    *("/v1/engines/m", "/v1/engines/completions", "/v1/engines/m/other"),
    *("/v1/text-to-speech/", "/v1/text-to-speech/v/stream", "/v1/voices"),
    *("/rerank", "/detection", "/depth", "/tokenize", "/v1/tts", "/v1/video", "/v1/videos"),
    *("/v1/chat/completions/x", "/V1/chat/completions", "/v1/v1/chat/completions"),
]


@pytest.mark.parametrize("path", METERED)
def test_what_makes_an_answer_out_of_a_model_is_metered(path):
    for spelling in (path, path + "/"):
        found = match_path("POST", spelling)
        assert found is not None
        assert (found.operation, found.style) == METERED[path]
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        assert match_path(method, path) is None


@pytest.mark.parametrize("path", PASSED)
def test_all_else_passes(path):
    assert match_path("POST", path) is None


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/healthz", "/readyz", "/metrics", "/version", "/system", "/swagger/index.html"),
        *(
            "/v1/responses/r",
            "/v1/backend/monitor",
            "/backend/monitor",
            "/.well-known/localai.json",
        ),
        *("/api/tags", "/api/ps", "/api/version", "/api/models", "/api/resources", "/api/usage"),
        *("/models/available", "/models/jobs/u", "/backends", "/v1/mcp/servers/m", "/api/p2p"),
        *("/sw.js", "/favicon.ico", "/static/x.css", "/assets/a.js", "/generated-images/i.png"),
        *("/v1/models/m", "/v1/models/m/props", "/props", "/upstream/m/props", "/slots"),
    ],
)
def test_reading_is_no_use_of_a_model(path):
    assert match_path("GET", path) is None
    assert not lists_models("GET", path)


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/models", "/v1/models/capabilities", "/models/capabilities", "/v1/models/"],
)
def test_lists_are_a_sign_at_most(path):
    assert lists_models("GET", path)
    assert not lists_models("HEAD", path)
    assert not lists_models("POST", path)
    assert match_path("GET", path) is None


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/realtime", "realtime"),
        ("/v1/responses", "responses"),
        ("/responses", "responses"),
        ("/audio/transformations/stream", "transform"),
        ("/ws/backend-logs/m", None),
        ("/ws/nodes/n/backend-logs/m", None),
    ],
)
def test_websockets(path, operation):
    found = match_websocket(path)
    assert (None if found is None else found.operation) == operation


@pytest.mark.parametrize(
    ("method", "path", "straight"),
    [
        ("POST", b"//v1/chat/completions", b"/v1/chat/completions"),
        ("POST", b"/v1//chat///completions", b"/v1/chat/completions"),
        ("POST", b"//v1/engines/a%2Fb/completions", b"/v1/engines/a%2Fb/completions"),
        ("GET", b"//v1/models", b"/v1/models"),
        ("POST", b"/v1/chat/completions", None),
        ("POST", b"//models/apply", None),
        ("GET", b"//v1/chat/completions", None),
        ("GET", b"/a//b", None),
    ],
)
def test_doubled_slashes(method, path, straight):
    assert straight_path(method, path) == straight


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"Model": "x"}', "x"),
        (b'{"MODEL": "x"}', "x"),
        (b'{"model": "x", "Model": "y"}', "y"),
        (b'{"mODEL": "x", "model": "y", "x": {"Model": "z"}}', "y"),
        (b'{"model": "x", "model": null}', "x"),
        (b' {"model": "x", "y": [1, 2.5, true]}{"model": "y"}', "x"),
        (b'{"model": "x", "y": "\xff", "z": ' + b"9" * 5_000 + b"} x", "x"),
        (b'{"MODEL": "a\\ud800b"}', "a\ufffdb"),
        (b"null", None),
        (b'{"model": "x", "model": "y"}', "y"),
        (b'{"messages": [{"model": "inner"}], "model": "x"}', "x"),
        (b'{"model": null, "Model": "y"}', "y"),
    ],
)
def test_go_reads_names_of_fields_in_any_spelling(body, model):
    assert peek_json(body) == Peek(model=model)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"model": "x"}',
        '{"model": "x"}'.encode("utf-16"),
        b'{"model": "x", "y": NaN}',
        b'{"Model": "x", "y": ' + b" " * MAX_BYTES + b"1}",
        b'{"model": 7, "Model": "x"',
        b"7",
    ],
)
def test_what_nobody_could_be_sure_of_names_no_model(body):
    assert peek_json(body) == UNCLEAR
