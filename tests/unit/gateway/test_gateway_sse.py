from __future__ import annotations

import gzip
import json
import zlib

import pytest

from api.gateway.detect import ApiStyle
from api.gateway.documents import MAX_DOCUMENT_BYTES
from api.gateway.sse import (
    MAX_EVENT_BYTES,
    AnswerObserver,
    Format,
    answer_format,
    observe,
)


def event(data: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{head}data: {text}\n\n".encode()


def delta(**fields: object) -> bytes:
    return event({"model": "m", "choices": [{"index": 0, "delta": fields}]})


def watch(
    *pieces: bytes,
    style: ApiStyle = ApiStyle.OPENAI,
    form: Format = Format.EVENTS,
    encoding: bytes | None = None,
) -> AnswerObserver:
    """Pieces come at 1, 2, 3 … seconds."""
    observer = AnswerObserver(style, form, encoding)
    for number, piece in enumerate(pieces, start=1):
        observer.feed(piece, float(number))
    observer.end(100.0)
    return observer


@pytest.mark.parametrize(
    ("content_type", "encoding", "form"),
    [
        (b"text/event-stream; charset=utf-8", None, Format.EVENTS),
        (b"Text/Event-Stream", b"identity", Format.EVENTS),
        (b"application/x-ndjson", None, Format.LINES),
        (b"application/json", b"", Format.DOCUMENT),
        (b"application/json", b"gzip", Format.DOCUMENT),
        (b"text/event-stream", b"deflate", Format.EVENTS),
        (b"application/json", b"br", Format.OPAQUE),
        (b"application/json", b"zstd", Format.OPAQUE),
        (b"audio/wav", None, Format.OPAQUE),
        (None, None, Format.OPAQUE),
    ],
)
def test_how_answers_are_read(content_type, encoding, form):
    assert answer_format(content_type, encoding) is form


def test_it_is_read_as_its_headers_say():
    headers = ((b"Content-Type", b"application/json"), (b"Content-Encoding", b"gzip"))
    observer = observe(ApiStyle.OPENAI, headers)
    observer.feed(gzip.compress(b'{"usage": {"completion_tokens": 3}}'), 1.0)
    observer.end(2.0)
    assert observer.output_tokens == 3


def test_a_chat_stream():
    seen = watch(
        delta(role="assistant", content=None),
        b": keep-alive\n\n",
        delta(content=""),
        delta(content="word"),
        delta(content="word"),
        event({"choices": [{"finish_reason": "stop", "delta": {"content": None}}]}),
        event("[DONE]"),
    )
    assert seen.first_content_at_s == 4.0, "a role, a comment and an empty text are no content"
    assert (seen.input_tokens, seen.output_tokens) == (None, 2)
    assert seen.model == "m"
    assert seen.is_finished
    assert not seen.is_truncated
    assert seen.error is None


@pytest.mark.parametrize(
    "field", ["reasoning_content", "reasoning", "thinking", "refusal", "tool_calls", "audio"]
)
def test_other_deltas_are_content_too(field):
    assert watch(delta(**{field: "x"})).first_content_at_s == 1.0


def test_usage_stands_over_what_was_counted_and_zeros_do_not():
    usage = {"prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 13}
    zeros = {"prompt_tokens": 0, "completion_tokens": 0}
    seen = watch(delta(content="a"), event({"choices": [], "usage": usage}))
    assert (seen.input_tokens, seen.output_tokens) == (4, 9)
    assert not seen.tokens_counted
    seen = watch(event({"choices": [{"text": "a"}], "usage": zeros}), event("[DONE]"))
    assert (seen.input_tokens, seen.output_tokens) == (None, 1)
    assert seen.tokens_counted


def test_of_a_part_the_larger_figure_is_the_truer_one():
    """Anthropic's first event says one token, whatever follows; vLLM counts along."""
    start = event({"type": "message_start", "message": {"usage": {"output_tokens": 1}}})
    word = event({"type": "content_block_delta", "delta": {"text": "x"}})
    seen = watch(start, word, word, word, style=ApiStyle.ANTHROPIC)
    assert (seen.output_tokens, seen.tokens_counted) == (3, True)
    seen = watch(
        event({"choices": [{"text": "a b c"}], "usage": {"completion_tokens": 3}}),
    )
    assert (seen.output_tokens, seen.tokens_counted) == (3, False)
    nothing = watch(b": only a comment\n\n")
    assert (nothing.output_tokens, nothing.tokens_counted) == (None, False)


def test_an_anthropic_stream():
    seen = watch(
        event(
            {
                "type": "message_start",
                "message": {"model": "c", "usage": {"input_tokens": 7, "output_tokens": 1}},
            },
            "message_start",
        ),
        event({"type": "content_block_start", "content_block": {"text": ""}}),
        event({"type": "ping"}, "ping"),
        event({"type": "content_block_delta", "delta": {"text": "x"}}, "content_block_delta"),
        event({"type": "message_delta", "usage": {"output_tokens": 12}}, "message_delta"),
        event({"type": "message_stop"}, "message_stop"),
        style=ApiStyle.ANTHROPIC,
    )
    assert seen.first_content_at_s == 4.0
    assert (seen.input_tokens, seen.output_tokens, seen.model) == (7, 12, "c")
    assert seen.is_finished


def test_a_responses_stream():
    usage = {"input_tokens": 3, "output_tokens": 5}
    seen = watch(
        event({"type": "response.created", "response": {"model": "r", "usage": None}}),
        event({"type": "response.output_text.delta", "delta": "x"}),
        event({"type": "response.completed", "response": {"model": "r", "usage": usage}}),
        style=ApiStyle.RESPONSES,
    )
    assert seen.first_content_at_s == 2.0
    assert (seen.input_tokens, seen.output_tokens, seen.model) == (3, 5, "r")
    assert seen.is_finished


def test_ollama_lines():
    seen = watch(
        b'{"model":"o","message":{"role":"assistant","content":""},"done":false}\n\n',
        b'{"message":{"content":"x"},"done":false}\n',
        b'{"response":"","done":true,"done_reason":"stop","prompt_eval_count":2,"eval_count":3}',
        style=ApiStyle.OLLAMA,
        form=Format.LINES,
    )
    assert seen.first_content_at_s == 2.0
    assert (seen.input_tokens, seen.output_tokens, seen.model) == (2, 3, "o")
    assert seen.is_finished
    generated = watch(b'{"response":"x"}\n', style=ApiStyle.OLLAMA, form=Format.LINES)
    assert generated.first_content_at_s == 1.0
    assert generated.is_truncated


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"error": {"message": "oom", "code": 500}}, "oom"),
        ({"error": "plain"}, "plain"),
        ({"type": "error", "message": "bad"}, "bad"),
        ({"type": "response.failed", "response": {}}, "the stream reported an error"),
        ({"done": True, "done_reason": "error"}, "the stream reported an error"),
        ({"error": {"code": 1}}, "the stream reported an error"),
    ],
)
def test_errors_inside_a_stream(data, said):
    assert watch(event(data), event({"error": "a later one"})).error == said


def test_a_stream_that_never_says_that_it_is_complete():
    assert watch(delta(content="x")).is_truncated
    assert not watch(delta(role="assistant")).is_truncated, "it never began"


def test_a_document():
    body = json.dumps({"model": "m", "usage": {"prompt_tokens": 2, "completion_tokens": 3}})
    seen = watch(body[:10].encode(), body[10:].encode(), form=Format.DOCUMENT)
    assert seen.first_content_at_s == 1.0
    assert (seen.input_tokens, seen.output_tokens, seen.model) == (2, 3, "m")
    assert not seen.is_truncated
    empty = watch(form=Format.DOCUMENT)
    assert (empty.first_content_at_s, empty.input_tokens, empty.output_tokens) == (None,) * 3


def test_a_document_that_is_too_long_or_odd_leaves_its_usage_unknown():
    long = watch(b"[", b"1," * MAX_DOCUMENT_BYTES, b"1]", form=Format.DOCUMENT)
    assert (long.output_tokens, long.skipped) == (None, 1)
    assert watch(b"{nonsense", form=Format.DOCUMENT).skipped == 1


def test_behind_gzip_and_deflate_the_same_is_seen():
    stream = delta(role="assistant") + delta(content="x") + event("[DONE]")
    for encoded, encoding in (
        (gzip.compress(stream, mtime=0), b"gzip"),
        (zlib.compress(stream), b"deflate"),
    ):
        seen = watch(encoded[:20], encoded[20:], encoding=encoding)
        assert (seen.first_content_at_s, seen.output_tokens) == (2.0, 1)
        assert seen.is_finished
    document = gzip.compress(b'{"usage":{"prompt_tokens":2,"completion_tokens":3}}')
    seen = watch(document, form=Format.DOCUMENT, encoding=b"gzip")
    assert (seen.input_tokens, seen.output_tokens, seen.first_content_at_s) == (2, 3, 1.0)
    odd = watch(b"no gzip at all", delta(content="x"), encoding=b"gzip")
    assert (odd.first_content_at_s, odd.output_tokens) == (None, None)


def test_a_byte_order_mark_before_the_first_event():
    assert watch(b"\xef\xbb\xbf" + delta(content="x")).output_tokens == 1


def test_bytes_that_cannot_be_read_still_have_a_first_one():
    seen = watch(b"", b"RIFF", form=Format.OPAQUE, style=ApiStyle.OTHER)
    assert seen.first_content_at_s == 2.0
    assert seen.output_tokens is None


def test_streams_of_other_apis_have_content_but_no_tokens():
    seen = watch(event({"progress": 1}), event("no json"), style=ApiStyle.OTHER)
    assert seen.first_content_at_s == 1.0
    assert seen.output_tokens is None
    assert not seen.is_truncated


def test_lines_end_in_each_of_the_three_ways():
    text = b'data: {"choices":[{"text":"a"}]}\r\n\r\ndata:{"choices":\ndata: [{"text":"b"}]}\r\r'
    assert watch(text).output_tokens == 2
    cut = watch(text[:33], text[33:34], text[34:])
    assert cut.output_tokens == 2


def test_a_last_event_without_its_end_counts():
    assert watch(delta(content="x").rstrip()).output_tokens == 1
    assert watch(delta(content="x")[:-1]).output_tokens == 1
    assert watch(b"data: [DONE]\r").is_finished


def test_where_an_event_could_be_put_in():
    observer = AnswerObserver(ApiStyle.OPENAI, Format.EVENTS)
    assert observer.is_between_events
    for piece, between in [
        (b"data: x", False),
        (b"\n", False),
        (b"\n", True),
        (b": comment\r", False),
        (b"\n\r", True),
        (b"\n", True),
    ]:
        observer.feed(piece, 1.0)
        assert observer.is_between_events is between, piece
    lines = AnswerObserver(ApiStyle.OLLAMA, Format.LINES)
    lines.feed(b"{}\n", 1.0)
    assert lines.is_between_events
    lines.feed(b"{", 1.0)
    assert not lines.is_between_events


def test_an_event_that_is_too_long_is_passed_over():
    long = b"data: " + b"x" * MAX_EVENT_BYTES
    observer = AnswerObserver(ApiStyle.OPENAI, Format.EVENTS)
    observer.feed(long, 1.0)
    observer.feed(b"y" * 10, 1.0)
    assert not observer.is_between_events
    observer.feed(b"\n\n" + delta(content="a"), 2.0)
    assert (observer.skipped, observer.output_tokens) == (1, 1)
    start = AnswerObserver(ApiStyle.OPENAI, Format.EVENTS)
    start.feed(b"z" * (MAX_EVENT_BYTES + 1), 1.0)
    assert not start.is_between_events


def test_an_event_of_too_many_lines_is_passed_over():
    half = b"data: " + b"x" * (MAX_EVENT_BYTES // 2) + b"\n"
    seen = watch(half * 3 + b"\n", delta(content="a"))
    assert (seen.skipped, seen.output_tokens) == (1, 1)
    seen = watch(b"data\ndata:\n" * MAX_EVENT_BYTES + b"\n", delta(content="a"))
    assert (seen.skipped, seen.output_tokens) == (1, 1)


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[" * 5000,
        "17",
        '{"choices": {}}',
        '{"choices": [7, {"delta": 7}]}',
        '{"usage": {"prompt_tokens": true, "completion_tokens": "3"}}',
        '{"model": 7, "message": 7, "response": {"model": ""}}',
        '{"choices": [{"finish_reason": null}], "type": 7}',
        "",
    ],
)
def test_odd_events_say_nothing(data):
    seen = watch(event(data))
    assert (seen.model, seen.input_tokens, seen.output_tokens, seen.error) == (None,) * 4
    assert not seen.is_finished
