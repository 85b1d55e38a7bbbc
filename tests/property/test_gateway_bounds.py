"""No bytes make what looks at requests and answers raise, or keep more than its bounds."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.gateway.detect import ApiStyle, straight_path
from api.gateway.documents import MAX_DOCUMENT_BYTES, DocumentScan
from api.gateway.forms import FormPeek
from api.gateway.heads import HeadRefused, judge_head, judge_websocket, split_target
from api.gateway.inflating import Inflater
from api.gateway.sse import MAX_EVENT_BYTES, AnswerObserver, Format
from api.gateway.usage import error_in, has_content, is_last, told_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                "usage message response choices delta type error model content "
                "prompt_tokens eval_count x_groq timings finish_reason".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
PIECE = st.sampled_from(
    [
        *(b"data:", b"data: ", b"\n", b"\r", b"\r\n\r\n", b":", b"{", b"[", b'"', b"\\", b"\x00"),
        b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
        b'{"message":{"content":"x"}}\n',
        b'"usage": {"prompt_tokens": 3}',
        b'{"model": "m",',
        b"x" * 1_000,
        b"\xff" * 100,
    ]
)
FLOOD = st.lists(st.tuples(PIECE, st.sampled_from([1, 2, 50, 400])), max_size=6)


def flood(parts: Iterable[tuple[bytes, int]], most_bytes: int = 3_000_000) -> bytes:
    return b"".join(piece * times for piece, times in parts)[:most_bytes]


def held_bytes(thing: object, depth: int = 3) -> int:
    """Bytes in buffers of an object of ours, and of the objects that it has."""
    if isinstance(thing, bytes | bytearray):
        return len(thing)
    if isinstance(thing, list | tuple | dict):
        values = thing.values() if isinstance(thing, dict) else thing
        return len(thing) + sum(held_bytes(value, depth) for value in values)
    if depth == 0 or not type(thing).__module__.startswith(("api.", "python_multipart")):
        return 0
    names = getattr(type(thing), "__slots__", None) or vars(thing)
    return sum(held_bytes(getattr(thing, name), depth - 1) for name in names)


@settings(max_examples=100)
@given(
    FLOOD,
    st.integers(2_000, 200_000),
    st.sampled_from(ApiStyle),
    st.sampled_from(Format),
    st.booleans(),
)
@example([(b"data:\n", 3_000)] * 200, 65_536, ApiStyle.OPENAI, Format.EVENTS, False)
@example([(b"x" * 1_000, 3_000)], 65_536, ApiStyle.OPENAI, Format.LINES, False)
@example([(b"x" * 1_000, 3_000)], 65_536, ApiStyle.OTHER, Format.DOCUMENT, True)
def test_an_observer_keeps_little(parts, step, style, form, is_packed):
    data = flood(parts)
    sent = gzip.compress(data, 1) if is_packed else data
    observer = AnswerObserver(style, form, b"gzip" if is_packed else None)
    most = MAX_EVENT_BYTES if form in (Format.EVENTS, Format.LINES) else MAX_DOCUMENT_BYTES
    for start in range(0, len(sent), step):
        observer.feed(sent[start : start + step], 1.0)
        # Beside the bounds one piece of what was read may be there.
        assert held_bytes(observer) <= 2 * most + 2 * step + 70_000
    observer.end(2.0)
    assert observer.output_tokens is None or observer.output_tokens > 0


@settings(max_examples=100)
@given(FLOOD, st.binary(max_size=80), st.integers(2_000, 200_000))
@example([(b"--b\r\nContent-Disposition: form-data; name=", 1), (b"x" * 1_000, 3_000)], b"b", 9_999)
@example([(b"--b\r\nX: y\r\n", 1), (b"X: y\r\n", 3_000)], b"b", 9_999)
@example(
    [(b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n', 1), (b"x" * 1_000, 3_000)],
    b"b",
    65_536,
)
def test_a_form_keeps_little(parts, boundary, step):
    data = flood(parts)
    form = FormPeek(b"multipart/form-data; boundary=" + boundary)
    for start in range(0, len(data), step):
        form.feed(data[start : start + step])
        assert held_bytes(form) <= 30_000
    assert form.peek.model is None or form.peek.model


@given(st.binary(max_size=300) | FLOOD.map(lambda parts: flood(parts, 200_000)), st.integers(1, 99))
def test_documents_and_packed_bytes_never_raise(data, step):
    scan, inflater = DocumentScan(), Inflater()
    for start in range(0, len(data), step * 100):
        scan.feed(data[start : start + step * 100])
        for piece in inflater.feed(data[start : start + step * 100]):
            assert 0 < len(piece) <= 65_536
        assert held_bytes(scan) <= MAX_DOCUMENT_BYTES + 5_000 + 100 * step
    told_in(scan.end())


@given(JSON)
def test_any_document_can_be_looked_at(said):
    told = told_in(said)
    for count in (told.input_tokens, told.output_tokens):
        assert count is None or count > 0
    assert told.model is None or told.model
    if isinstance(said, dict):
        assert has_content(said) in (True, False)
        assert is_last(said) in (True, False)
        fault = error_in(said)
        assert fault is None or 0 < len(fault) <= 200


@given(
    st.sampled_from(["GET", "POST", "CONNECT", "TRACE", ""]),
    st.sampled_from(["1.1", "1.0", "0.9", "2.0"]),
    st.dictionaries(
        st.sampled_from([b"host", b"transfer-encoding", b"content-length", b"expect"]),
        st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    ),
)
def test_heads_are_taken_or_refused(method, version, watched):
    for judge in (judge_head, judge_websocket):
        try:
            judge(method, version, watched)
        except HeadRefused as why:
            refused = why.status
        else:
            refused = 400
            if judge is judge_head:
                coding = watched.get(b"transfer-encoding", [b"chunked"])
                assert [one.strip().lower() for one in coding] == [b"chunked"]
                assert not (b"transfer-encoding" in watched and b"content-length" in watched)
        assert 400 <= refused < 600


@given(st.binary(max_size=100) | st.sampled_from([b"http://h/", b"*", b"//", b"/#"]))
def test_targets_are_paths_or_refused(target):
    try:
        found = split_target(target)
    except HeadRefused:
        return
    assert found.path.startswith(b"/")
    assert found.path.isascii()
    assert b"#" not in target
    straight = straight_path("POST", found.path)
    assert straight is None or b"//" not in straight


@pytest.mark.parametrize("form", list(Format))
def test_an_observer_takes_an_empty_answer(form):
    observer = AnswerObserver(ApiStyle.OPENAI, form, b"gzip")
    observer.feed(b"", 1.0)
    observer.end(2.0)
    assert observer.first_content_at_s is None
