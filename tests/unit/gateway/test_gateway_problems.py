from __future__ import annotations

import json

import pytest

from api.gateway import problems
from api.gateway.detect import ApiStyle
from contracts.reasons import Reason

ALL = [
    problems.bad_header("X-Headstart-Class", "it takes …"),
    problems.unauthorized(),
    problems.not_found("/headstart/x"),
    problems.body_too_large(10),
    problems.queue_full("realtime", 3.0),
    problems.queue_timeout(30.0, 3.0),
    problems.model_loading("m", state="loading", elapsed_s=5.0, expected_s=20.0),
    problems.model_cooldown("m", "no such file", 12.0),
    problems.no_backend("nothing", decision=Reason.NODE_LOST),
    problems.shutting_down(),
    problems.upstream_error("broke"),
    problems.upstream_timeout("slow"),
    problems.permission_denied("not yours", code="model_not_allowed"),
    problems.rate_limited(60.0, 1.0),
    problems.preempted(),
]


def test_every_problem_has_its_status():
    assert [problem.status for problem in ALL] == [
        400, 401, 404, 413, 429, 503, 503, 503, 503, 503, 502, 504, 403, 429, 503,
    ]  # fmt: skip


def test_all_that_ask_to_come_again_say_when():
    for problem in ALL:
        assert (problem.retry_after_s is not None) == (problem.status in (429, 503))


@pytest.mark.parametrize("style", list(ApiStyle))
def test_bodies_are_objects_in_the_shape_of_the_api(style):
    for problem in ALL:
        body = json.loads(problems.error_body(problem, style))
        assert body["error"]["message"] == problem.message
        assert body["error"]["type"] == problem.type
        if style is ApiStyle.ANTHROPIC:
            assert body["type"] == "error"
        else:
            assert set(body["error"]) == {"message", "type", "param", "code"}


def test_a_load_says_how_far_it_is():
    body = json.loads(problems.error_body(ALL[6], ApiStyle.OPENAI))
    assert body["loading"] == {
        "model": "m",
        "state": "loading",
        "elapsed_s": 5.0,
        "expected_s": 20.0,
    }
    assert ALL[6].retry_after_s == 15.0
    late = problems.model_loading("m", state="loading", elapsed_s=50.0, expected_s=20.0)
    assert late.retry_after_s == 1.0
    unknown = problems.model_loading("m", state="waiting", elapsed_s=None, expected_s=None)
    assert unknown.retry_after_s == 5.0
    assert "null" in problems.error_body(unknown, ApiStyle.OPENAI).decode()


def test_without_a_word_of_localai_the_sentence_still_ends():
    problem = problems.model_cooldown("m", "", None)
    assert problem.message == "The model m could not be loaded."
    assert problem.retry_after_s == 10.0
    assert str(problem) == "503 model_cooldown: The model m could not be loaded."


@pytest.mark.parametrize(("seconds", "value"), [(0.0, b"1"), (1.0, b"1"), (1.2, b"2")])
def test_retry_after_is_whole_and_at_least_one(seconds, value):
    assert problems.retry_after(seconds) == value


@pytest.mark.parametrize(
    ("style", "start", "end"),
    [
        (ApiStyle.OPENAI, b'data: {"error":{', b"data: [DONE]\n\n"),
        (ApiStyle.OTHER, b'data: {"error":{', b"}}\n\n"),
        (ApiStyle.ANTHROPIC, b'event: error\ndata: {"type":"error",', b"}}\n\n"),
        (ApiStyle.RESPONSES, b"event: error\ndata: {", b"}\n\n"),
        (ApiStyle.OLLAMA, b'{"error":"broke"', b"}\n"),
    ],
)
def test_the_last_event_of_a_stream(style, start, end):
    event = problems.error_event(problems.upstream_error("broke"), style, is_between_events=True)
    assert event.startswith(start)
    assert event.endswith(end)
    torn = problems.error_event(problems.upstream_error("broke"), style, is_between_events=False)
    assert torn == (b"\n" if style is ApiStyle.OLLAMA else b"\n\n") + event
    assert event.count(b"\n\n") == (style is not ApiStyle.OLLAMA) + (style is ApiStyle.OPENAI)


@pytest.mark.parametrize("style", [ApiStyle.OPENAI, ApiStyle.ANTHROPIC, ApiStyle.RESPONSES])
def test_how_far_a_load_is_stands_beside_the_error_in_a_stream_too(style):
    problem = problems.model_loading("m", state="loading", elapsed_s=3.0, expected_s=None)
    event = problems.error_event(problem, style, is_between_events=True)
    (data,) = [line for line in event.splitlines() if line.startswith(b"data: {")]
    assert json.loads(data[6:])["loading"] == {
        "model": "m",
        "state": "loading",
        "elapsed_s": 3.0,
        "expected_s": None,
    }
