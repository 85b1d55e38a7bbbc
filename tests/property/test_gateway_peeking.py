"""No bytes make the gateway's peeking raise, and cuts in a stream change nothing."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from api.gateway.detect import (
    ApiStyle,
    BadHeader,
    InferencePath,
    Peek,
    find_model,
    match_path,
    match_websocket,
    peek_form,
    peek_json,
    read_wishes,
)
from api.gateway.forms import FormPeek
from api.gateway.sse import AnswerObserver, Format

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
NAMED = st.fixed_dictionaries({}, optional={"model": JSON, "stream": JSON, "model_id": JSON})


@given(st.binary() | NAMED.map(lambda value: json.dumps(value).encode()))
def test_peeking_never_raises(body):
    for peek in (peek_json(body), peek_json(body, "model_id"), peek_form(body)):
        assert peek.model is None or 0 < len(peek.model) <= 512
        assert peek.stream in (None, True, False)


@given(st.text(min_size=1, max_size=200).filter(lambda name: "\ud800" not in name))
def test_any_name_is_found_as_it_is(name):
    try:
        body = json.dumps({"x": [{"model": "inner"}], "model": name}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert peek_json(body) == Peek(model=name)


@given(st.text(), st.text(), st.binary(), st.binary() | st.none())
def test_paths_queries_and_tokens_never_raise(method, path, query, authorization):
    match_websocket(path)
    for found in (match_path(method, path), match_path("POST", "/v1/engines/" + path)):
        find_model(
            peek=Peek(),
            path=found or InferencePath(operation="x", style=ApiStyle.OTHER),
            query=query,
            authorization=authorization,
            is_model=lambda _name: True,
        )


@given(st.sampled_from(["class", "fallback", "deadline-ms", "other"]), st.binary())
def test_headers_are_read_or_refused_by_name(name, value):
    header = b"x-headstart-" + name.encode()
    refused = None
    try:
        read_wishes([(header, value)])
    except BadHeader as error:
        refused = error
    assert refused is None or refused.header.lower().encode() == header


@given(st.binary(), st.lists(st.binary(), max_size=5))
def test_forms_never_raise(boundary, pieces):
    form = FormPeek(b"multipart/form-data; boundary=" + boundary)
    for piece in pieces:
        form.feed(piece)
    assert form.peek.model is None or form.peek.model


MULTIPART = (
    '--b\r\nContent-Disposition: form-data; name="file"; filename="ü"\r\n\r\n--x\r\n--bb\r\n'
    '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ntugão/x\r\n--b--\r\n'
).encode()


@given(st.lists(st.integers(0, len(MULTIPART)), max_size=20))
def test_a_form_may_be_cut_anywhere(cuts):
    form = FormPeek(b"multipart/form-data; boundary=b")
    places = [0, *sorted(cuts), len(MULTIPART)]
    for start, end in pairwise(places):
        form.feed(MULTIPART[start:end])
    assert form.peek == Peek(model="tugão/x")


CHUNK = st.sampled_from(
    [
        b'data: {"model":"m","choices":[{"delta":{"content":"gr\xc3\xbc\xc3\x9fe"}}]}',
        b'data:{"choices":[{"delta":{"content":"\xf0\x9f\x9a\x80"},"finish_reason":"stop"}]}',
        b'data: {"usage":{"prompt_tokens":4,"completion_tokens":2}}',
        b'data: {"choices":',
        b'data: [{"text":"x"}]}',
        b'data: {"error":{"message":"boom"}}',
        b"data: [DONE]",
        b"event: ping",
        b": a comment",
        b"id: 7",
        b"",
        b"data",
        b'{"message":{"content":"x"},"done":false}',
        b'{"done":true,"eval_count":3}',
        b"\xff\x00",
    ]
)
LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r"])
STREAM = st.lists(st.tuples(CHUNK, LINE_END), max_size=12).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def observed(pieces: list[bytes], style: ApiStyle, form: Format) -> tuple[object, ...]:
    observer = AnswerObserver(style, form)
    for piece in pieces:
        observer.feed(piece, 1.0)
    between = observer.is_between_events
    observer.end(2.0)
    return (
        observer.first_content_at_s,
        observer.input_tokens,
        observer.output_tokens,
        observer.model,
        observer.is_finished,
        observer.is_truncated,
        observer.error,
        observer.skipped,
        between,
    )


@given(
    STREAM | st.binary(max_size=300),
    st.lists(st.integers(0, 2000), max_size=30),
    st.sampled_from(ApiStyle),
    st.sampled_from(Format),
)
def test_a_stream_may_be_cut_anywhere(stream, cuts, style, form):
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    assert observed(pieces, style, form) == observed([stream], style, form)


@given(STREAM)
def test_byte_by_byte_is_the_same_as_at_once(stream):
    single = [stream[place : place + 1] for place in range(len(stream))]
    assert observed(single, ApiStyle.OPENAI, Format.EVENTS) == observed(
        [stream], ApiStyle.OPENAI, Format.EVENTS
    )
