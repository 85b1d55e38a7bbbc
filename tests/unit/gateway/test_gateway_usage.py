"""Where APIs put their figures, and what is no figure."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from api.gateway import inflating
from api.gateway.documents import MAX_DOCUMENT_BYTES, DocumentScan
from api.gateway.inflating import Inflater
from api.gateway.usage import Told, error_in, has_content, is_last, told_in


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4}}, (3, 4)),
        ({"usage": {"input_tokens": 3, "output_tokens": 4}}, (3, 4)),
        ({"usage": {"prompt_tokens": 3, "total_tokens": 3}}, (3, None)),
        ({"message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}, (3, 1)),
        ({"type": "message_delta", "usage": {"output_tokens": 9}}, (None, 9)),
        ({"response": {"usage": {"input_tokens": 3, "output_tokens": 4}}}, (3, 4)),
        ({"x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}}, (3, 4)),
        ({"done": True, "prompt_eval_count": 3, "eval_count": 4}, (3, 4)),
        ({"timings": {"prompt_n": 3, "prompt_ms": 1.5, "predicted_n": 4}}, (3, 4)),
        ({"usage": {"timing_prompt_processing": 1.5}}, (None, None)),
        ([{"a": 1}, {"usage": {"prompt_tokens": 3}}, {"usage": {"completion_tokens": 4}}], (3, 4)),
        ({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, (None, None)),
        ({"usage": {"prompt_tokens": -3, "completion_tokens": True}}, (None, None)),
        ({"usage": {"prompt_tokens": "3", "completion_tokens": 4.0}}, (None, None)),
        ({"usage": [3, 4], "message": "m", "response": 7, "x_groq": None}, (None, None)),
        ({"metrics": {"tokens": 7}}, (None, None)),
        ("text", (None, None)),
        (None, (None, None)),
        ([[]], (None, None)),
    ],
)
def test_tokens(said, told):
    found = told_in(said)
    assert (found.input_tokens, found.output_tokens) == told


def test_models():
    assert told_in({"model": "a", "message": {"model": "b"}}).model == "a"
    assert told_in({"model": 7, "response": {"model": "b"}}).model == "b"
    assert told_in([{"model": ""}, {"model": "c"}]) == Told(model="c")


@pytest.mark.parametrize(
    ("said", "has"),
    [
        ({"choices": [{"delta": {"content": "x"}}]}, True),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False),
        ({"choices": [{"text": "x"}]}, True),
        ({"choices": [{"text": ""}, 7]}, False),
        ({"choices": []}, False),
        ({"message": {"thinking": "x", "content": ""}}, True),
        ({"message": {"content": ""}, "done": False}, False),
        ({"response": "x"}, True),
        ({"response": "", "thinking": "x"}, True),
        ({"response": {"id": "r"}}, False),
        ({"type": "ping"}, False),
        ({"type": "content_block_start", "content_block": {"text": ""}}, False),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}, False),
        (
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "x"}},
            True,
        ),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, False),
        ({"type": "response.output_text.delta", "delta": "x"}, True),
        ({"type": "response.output_text.delta", "delta": ""}, False),
        ({"type": "response.created"}, False),
        ({}, False),
    ],
)
def test_content(said, has):
    assert has_content(said) is has


@pytest.mark.parametrize(
    ("said", "last"),
    [
        ({"type": "message_stop"}, True),
        ({"type": "response.incomplete"}, True),
        ({"done": True}, True),
        ({"done": "true"}, False),
        ({"choices": [{"finish_reason": "length"}]}, True),
        ({"choices": [{"finish_reason": None}, 7]}, False),
        ({"choices": 7}, False),
    ],
)
def test_ends(said, last):
    assert is_last(said) is last


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"error": {"message": "oom"}}, "oom"),
        ({"error": "x" * 500}, "x" * 200),
        ({"type": "error", "message": "bad"}, "bad"),
        ({"type": "response.failed", "response": {"error": {"message": "deep"}}}, "deep"),
        ({"type": "response.failed", "response": {}}, "the stream reported an error"),
        ({"type": "response.failed"}, "the stream reported an error"),
        ({"done_reason": "error"}, "the stream reported an error"),
        ({"error": None, "message": {"content": "fine"}}, None),
    ],
)
def test_errors(said, text):
    assert error_in(said) == text


def scanned(document: bytes, step: int = 10_000) -> object:
    scan = DocumentScan()
    for start in range(0, len(document), step):
        scan.feed(document[start : start + step])
    return scan.end()


USAGE = {"prompt_tokens": 3, "total_tokens": 3}


def test_a_short_document_is_read_whole():
    assert scanned(b'\xef\xbb\xbf{"a": [1]}') == {"a": [1]}
    assert scanned(b"") is None
    assert scanned(b"{") is None
    assert scanned(b"[" * 60_000) is None


@pytest.mark.parametrize("step", [1_000, 65_536, 10**7])
def test_of_a_long_document_both_ends_are_read(step):
    vectors = [{"embedding": [0.5] * 1_000, "index": index} for index in range(40)]
    document = json.dumps(
        {"created": 1, "object": "list", "model": "e", "data": vectors, "usage": USAGE, "id": "x"}
    ).encode()
    assert len(document) > 3 * MAX_DOCUMENT_BYTES
    assert scanned(document, step) == {"model": "e", "usage": USAGE, "id": "x"}


def test_what_only_looks_like_usage_is_none():
    quoted = json.dumps({"text": "x" * MAX_DOCUMENT_BYTES + ' "usage": {"prompt_tokens": 9}}'})
    assert scanned(quoted.encode()) is None
    nested = json.dumps({"a": "x" * MAX_DOCUMENT_BYTES, "b": {"usage": USAGE}})
    assert scanned(nested.encode()) is None
    both = json.dumps({"a": "x" * MAX_DOCUMENT_BYTES, "usage": USAGE, "b": {"usage": {"n": 1}}})
    assert scanned(both.encode()) == {"usage": USAGE, "b": {"usage": {"n": 1}}}


def test_a_model_inside_something_else_is_not_the_answers():
    inner = json.dumps({"data": [{"model": "inner", "a": "x" * MAX_DOCUMENT_BYTES}]})
    assert scanned(inner.encode()) is None


def test_inflating_is_bounded(monkeypatch):
    zeros = gzip.compress(bytes(1_000_000))
    inflater = Inflater()
    pieces = [
        piece
        for start in range(0, len(zeros), 100)
        for piece in inflater.feed(zeros[start : start + 100])
    ]
    assert b"".join(pieces) == bytes(1_000_000)
    assert max(map(len, pieces)) <= 65_536
    monkeypatch.setattr(inflating, "MAX_INFLATED_BYTES", 100_000)
    assert sum(map(len, Inflater().feed(zeros))) == 2 * 65_536


def test_what_follows_an_end_or_an_error_is_not_looked_at():
    inflater = Inflater()
    assert b"".join(inflater.feed(zlib.compress(b"abc") + b"more")) == b"abc"
    assert list(inflater.feed(b"more")) == []
    broken = Inflater()
    assert list(broken.feed(b"nonsense")) == []
    assert list(broken.feed(zlib.compress(b"abc"))) == []
