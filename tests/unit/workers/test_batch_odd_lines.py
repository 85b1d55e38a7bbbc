"""Lines and answers that are odd JSON: none of them keeps the others from their end."""

from __future__ import annotations

import io
import json

import pytest

from contracts.errors import Invalid
from contracts.jobs import json_bytes, read_request
from contracts.ports import Exchange
from workers.batches.lines import read_body, read_lines
from workers.batches.merging import mergeable, split
from workers.batches.outcomes import answered

ENDPOINT = "/v1/chat/completions"


def line(value: str, custom_id: str = '"c"') -> bytes:
    body = '{"model":"m","x":' + value + "}"
    text = f'{{"custom_id":{custom_id},"method":"POST","url":"{ENDPOINT}","body":{body}}}'
    return text.encode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("NaN", "NaN is no number"),
        ("-Infinity", "-Infinity is no number"),
        ("1e999", "1e999 is too large a number"),
        ("[" * 250 + "]" * 250, "nested more than 200 deep"),
        ('{"a":' * 250 + "1" + "}" * 250, "nested more than 200 deep"),
    ],
)
def test_what_could_not_be_sent_is_refused_before(value, why):
    (fault,) = read_lines(io.BytesIO(line(value)), ENDPOINT).faults
    assert fault.code == "invalid_json_line"
    assert why in fault.message


@pytest.mark.parametrize("value", ["[" + "[]," * 300 + "1.5]", '"\\ud800"', "[[1]]"])
def test_what_can_be_sent_is_taken(value):
    raw = line(value)
    reading = read_lines(io.BytesIO(raw), ENDPOINT)
    assert reading.faults == ()
    assert json.loads(json_bytes(read_body(raw))) == read_body(raw)


def test_half_a_surrogate_comes_back_as_it_was():
    record = answered("batch_1", 1, "a\ud800", Exchange(status=200, body=b'{"x":"\\ud800"}'))
    said = json.loads(record[1:])
    assert said["custom_id"] == "a\ud800"
    assert said["response"]["body"] == {"x": "\ud800"}


def test_true_is_not_one_to_a_model():
    bodies = [{"model": "m", "input": "a", "x": 1}, {"model": "m", "input": "b", "x": True}]
    assert mergeable(bodies) == 1


@pytest.mark.parametrize("usage", ["[1]", '"x"', "7", "null", '{"total_tokens": true}'])
def test_an_odd_usage_of_an_answer_is_passed_over(usage):
    answer = '{"data":[{"index":0,"a":1},{"index":1,"a":2}],"usage":' + usage + "}"
    parts = split(answer.encode(), [{"input": "a"}, {"input": "b"}])
    assert parts is not None
    assert [json.loads(part)["data"][0]["a"] for part in parts] == [1, 2]


def test_an_answer_that_cannot_be_written_again_is_no_answer(monkeypatch):
    def too_deep(_value: object) -> str:
        raise RecursionError

    monkeypatch.setattr("workers.batches.merging.json.dumps", too_deep)
    answer = b'{"data":[{"index":0},{"index":1}]}'
    assert split(answer, [{"input": "a"}, {"input": "b"}]) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_a_request_that_is_no_json_is_refused(value):
    with pytest.raises(Invalid, match="body: cannot be written as JSON"):
        read_request({"path": ENDPOINT, "body": {"model": "m", "x": value}})


def test_a_request_with_half_a_surrogate_waits_as_it_came():
    wanted = read_request({"path": ENDPOINT, "body": {"model": "m", "x": "\ud800"}})
    assert json.loads(wanted.body) == {"model": "m", "x": "\ud800"}


def test_half_a_surrogate_is_no_models_name():
    with pytest.raises(Invalid, match="half of a surrogate pair"):
        read_request({"path": ENDPOINT, "model": "a\ud800", "body": {}})
    raw = line("1").replace(b'"m"', b'"a\\ud800"')
    (fault,) = read_lines(io.BytesIO(raw), ENDPOINT).faults
    assert fault.code == "ambiguous_model"
