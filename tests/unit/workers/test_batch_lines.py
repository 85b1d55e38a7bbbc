"""What a batch's input file holds, and what is said of a bad one."""

from __future__ import annotations

import json

import pytest

from contracts.batches import MAX_LINES
from workers.batches import lines as batch_lines
from workers.batches.lines import MAX_FAULTS, MAX_LINE_BYTES, read_body, read_lines

CHAT = "/v1/chat/completions"


def _request(custom_id="a", **changes):
    line = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": {"model": "m"}}
    return {name: value for name, value in (line | changes).items() if value is not ...}


def _file(*requests, end=b"\n"):
    return [
        (r if isinstance(r, bytes) else json.dumps(r, ensure_ascii=False).encode()) + end
        for r in requests
    ]


def _faults(*requests):
    return [(f.code, f.param, f.line) for f in read_lines(_file(*requests), CHAT).faults]


def test_a_good_file_gives_its_lines_with_their_places():
    raw = _file(_request("a"), _request("grün", body={"model": "n", "messages": [1]}))
    reading = read_lines(raw, CHAT)
    assert not reading.faults
    assert [(line.number, line.custom_id, line.model) for line in reading.lines] == [
        (1, "a", "m"),
        (2, "grün", "n"),
    ]
    whole, second = b"".join(raw), reading.lines[1]
    piece = whole[second.offset : second.offset + second.size_bytes]
    assert read_body(piece) == {"model": "n", "messages": [1]}


def test_a_byte_order_mark_crlf_empty_lines_and_a_missing_last_end_are_taken():
    raw = _file(_request("a"), b"", b"   ", _request("b"), end=b"\r\n")
    raw = [b"\xef\xbb\xbf" + raw[0], *raw[1:-1], raw[-1].rstrip()]
    reading = read_lines(raw, CHAT)
    assert not reading.faults
    assert [line.number for line in reading.lines] == [1, 4]
    assert read_body(raw[0]) == {"model": "m"}


def test_invalid_json_is_told_with_its_line_and_nothing_hides_the_next_fault():
    good = [_request(str(n)) for n in range(6)]
    assert _faults(*good, b'{"custom_id": ', _request("x", method="GET")) == [
        ("invalid_json_line", None, 7),
        ("invalid_method", "method", 8),
    ]


def test_a_custom_id_that_comes_again_names_its_first_line():
    reading = read_lines(_file(_request("a"), _request("b"), _request("a")), CHAT)
    (fault,) = reading.faults
    assert (fault.code, fault.line) == ("duplicate_custom_id", 3)
    assert fault.message == 'custom_id "a" was used in line 1 already.'


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        ([1], "invalid_request", None),
        (b"\xff{}", "invalid_json_line", None),
        (_request(custom_id=...), "missing_required_parameter", "custom_id"),
        (_request(method=...), "missing_required_parameter", "method"),
        (_request(url=...), "missing_required_parameter", "url"),
        (_request(body=...), "missing_required_parameter", "body"),
        (_request(custom_id=3), "invalid_custom_id", "custom_id"),
        (_request(custom_id=""), "invalid_custom_id", "custom_id"),
        (_request(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
        (_request(method="post"), "invalid_method", "method"),
        (_request(url="/v1/embeddings"), "mismatched_endpoint", "url"),
        (_request(url="/models/delete/x"), "mismatched_endpoint", "url"),
        (_request(body="text"), "invalid_body", "body"),
        (_request(body={}), "missing_model", "body.model"),
        (_request(body={"model": ""}), "missing_model", "body.model"),
        (_request(body={"model": 1}), "missing_model", "body.model"),
        (_request(body={"model": "m", "MODEL": "n"}), "ambiguous_model", "body.model"),
        (_request(body={"model": "m", "Model_Id": "n"}), "ambiguous_model", "body.model"),
        (_request(body={"model": "m", "stream": True}), "unsupported_parameter", "body.stream"),
    ],
)
def test_each_fault_has_its_code_and_names_what_is_wrong(line, code, param):
    assert _faults(line) == [(code, param, 1)]


def test_an_endpoint_that_no_batch_takes_is_told_which_there_are():
    wrong, other = read_lines(
        _file(_request("a", url="/admin"), _request("b", url="/v1/embeddings")), CHAT
    ).faults
    assert "One of /v1/chat/completions" in wrong.message
    assert "One of" not in other.message


def test_an_empty_file_holds_no_requests():
    for raw in ([], [b"\n", b"  \r\n"], [b"\xef\xbb\xbf"]):
        (fault,) = read_lines(raw, CHAT).faults
        assert (fault.code, fault.line) == ("empty_file", None)


def test_a_line_that_is_too_long_is_not_parsed():
    assert _faults(b" " * MAX_LINE_BYTES + b"{}") == [("line_too_long", None, 1)]


def test_a_file_that_is_wrong_throughout_is_not_read_to_its_end():
    faults = _faults(*[b"no"] * (MAX_FAULTS + 50))
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == ("too_many_errors", None, None)


def test_more_lines_than_a_batch_takes_are_refused(monkeypatch):
    monkeypatch.setattr(batch_lines, "MAX_LINES", 3)
    assert _faults(*[_request(str(n)) for n in range(4)]) == [("too_many_lines", None, None)]
    assert not _faults(*[_request(str(n)) for n in range(3)])
    assert MAX_LINES == 50_000


def test_long_values_are_cut_in_messages():
    (fault,) = read_lines(_file(_request("a", method="x" * 500)), CHAT).faults
    assert len(fault.message) < 150
    assert "…" in fault.message


def test_a_key_for_some_models_takes_no_other():
    raw = _file(*[_request(name, body={"model": name}) for name in ("chat-a", "embed", "other")])
    reading = read_lines(raw, CHAT, ("chat-*", "embed"))
    assert [(fault.code, fault.line) for fault in reading.faults] == [("model_not_allowed", 3)]
    assert not read_lines(raw[:2], CHAT, ("chat-*", "embed")).faults
