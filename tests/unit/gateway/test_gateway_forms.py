from __future__ import annotations

import pytest

from api.gateway.detect import MAX_MODEL_NAME_CHARS, UNCLEAR, Peek
from api.gateway.forms import FormPeek

KIND = b'multipart/form-data; boundary="b"'


def part(how: bytes, value: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + how + b"\r\n\r\n" + value + b"\r\n"


MODEL = part(b'name="model"', b"whisper")
FILE = part(b'name="file"; filename="x.wav"', b"\x00" * 1000)


def peeked(body: bytes, kind: bytes = KIND, field: str = "model") -> Peek:
    form = FormPeek(kind, field)
    form.feed(body)
    return form.peek


def test_it_is_done_as_soon_as_the_model_is_there():
    form = FormPeek(KIND)
    done = []
    for piece in (FILE, MODEL, b"--b", b"\r\n"):
        form.feed(piece)
        done.append(form.is_done)
    assert done == [False, False, False, True]
    assert form.peek == Peek(model="whisper")


def test_the_stream_field_counts_where_it_comes_first():
    stream = part(b'name="stream"', b"True")
    assert peeked(stream + MODEL + b"--b--\r\n") == Peek(model="whisper", stream=True)
    assert peeked(part(b'name="stream"', b"0") + b"--b--\r\n") == Peek(stream=False)


@pytest.mark.parametrize(
    "body",
    [
        FILE + b"--b--\r\n",
        part(b'name="other"', b"m") + b"--b--\r\n",
        part(b'name="model"; filename="model"', b"m") + b"--b--\r\n",
        part(b'name="model"', b"") + b"--b--\r\n",
        b"--b\r\nX-Other: form-data; name=model\r\n\r\nm\r\n--b--\r\n",
        b"--b\r\n\r\nm\r\n--b--\r\n",
        b"--b\r\nContent-Disposition: attachment; name=model\r\n\r\nm\r\n--b--\r\n",
        part(b"filename=x; name=model", b"m") + b"--b--\r\n",
        part(b"name=model; filename*=utf-8''x", b"m") + b"--b--\r\n",
    ],
)
def test_what_is_no_model(body):
    assert peeked(body) == Peek()


@pytest.mark.parametrize(
    "body",
    [
        part(b'name="model"; filename=""', b"m"),
        part(b'name = "model" ; x="\\\\ \\""', b"m"),
        part(b"NAME=model;", b"m"),
        part(b'name="model"', b"m").replace(b"form-data", b"Form-Data "),
        part(b'name="model"\r\nContent-Transfer-Encoding: 8bit', b"m"),
        b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\n--b\r\n"
        + part(b"name=model", b"m")[5:],
        part(b"name=x", b"\r\n--bb\r\n--b-") + part(b"name=model", b"m"),
        b"\r\n\r\n" + part(b"name=Model", b"other") + part(b"name=model", b"m"),
        part(b"name=MODEL", b"m"),
    ],
)
def test_other_ways_to_say_it(body):
    whole = body + b"--b--\r\n"
    assert peeked(whole) == Peek(model="m")
    form = FormPeek(KIND)
    for place in range(len(whole)):
        form.feed(whole[place : place + 1])
    assert form.peek == Peek(model="m")


@pytest.mark.parametrize(
    "body",
    [
        part(b'name="model"', b"\xff\xff") + b"--b--\r\n",
        part(b'name="model"', b"m" * (MAX_MODEL_NAME_CHARS + 1)) + b"--b--\r\n",
        part(b'name="model"', b"m" * 100_000) + b"--b--\r\n",
        part(b"name=Model", b"m") + part(b"name=MODEL", b"m") + b"--b--\r\n",
        b"",
        b"\r\n--",
        b"\r",
        b"nonsense",
        b"--b--\r\n" + MODEL,
        b"--c\r\n\r\n",
        b"--b \r\n" + MODEL[5:],
        b"--b\n" + MODEL[5:],
        FILE + b"--b \r\n" + MODEL[5:],
        FILE + b"--b\t\r\n" + MODEL[5:],
        FILE + b"--b\rx" + MODEL[5:],
        MODEL.replace(b"\r\n\r\n", b"\r\nX: y\n\r\n"),
        MODEL.replace(b"\r\n\r\n", b"\r\n folded\r\n\r\n"),
        MODEL.replace(b"Disposition:", b"Disposition :"),
        MODEL.replace(b"form-data;", b"=;"),
        part(b"name=model; name=x", b"m"),
        part(b"name=model; x", b"m"),
        part(b"name*=utf-8''model", b"m"),
        part(b"name*0=mod; name*1=el", b"m"),
        part(b"name=model; filename*0=x", b"m"),
        part(b"name=model; filename*=utf-8''", b"m"),
        part(b"name=model; filename*=latin'x", b"m"),
        part(b"name=model\r\nContent-Transfer-Encoding: base64", b"m"),
        part(b"name=x", b"m").replace(b"Content", b"X: " + b"y" * 9_000 + b"\r\nContent"),
        b"--b\r\nX: " + b"y" * 9_000,
        b"--b\r\nX:" + b" " * 8_000 + b"\0\r\n\r\n",  # an hour, if each way to part it is tried
    ],
)
def test_forms_that_may_mean_something_else_name_no_model(body):
    assert peeked(body) == UNCLEAR
    form = FormPeek(KIND)
    for place in range(len(body)):
        form.feed(body[place : place + 1])
    assert form.peek == UNCLEAR


def test_what_comes_behind_the_model_changes_nothing():
    assert peeked(MODEL + b"--b \r\n" + MODEL[5:]) == Peek(model="whisper")


def test_the_first_disposition_of_a_part_counts():
    twice = MODEL.replace(b"\r\n\r\n", b"\r\nContent-Disposition: form-data; name=x\r\n\r\n")
    assert peeked(twice + b"--b--") == Peek(model="whisper")


def test_a_long_value_in_pieces_is_not_kept():
    form = FormPeek(KIND)
    form.feed(part(b'name="model"', b"")[:-2])
    for _ in range(10):
        form.feed(b"m" * 1000)
    form.feed(b"\r\n--b--\r\n")
    assert form.is_done
    assert form.peek == UNCLEAR


def test_the_first_of_two_counts():
    twice = MODEL + part(b'name="model"', b"second") + b"--b--\r\n"
    form = FormPeek(KIND)
    form.feed(twice)
    assert form.peek.model == "whisper"


def test_another_field_may_name_it():
    body = part(b'name="model"', b"a") + part(b'name="model_id"', b"b") + b"--b--\r\n"
    assert peeked(body, field="model_id") == Peek(model="b")


@pytest.mark.parametrize(
    "kind", [b"", b"multipart/form-data", b"multipart/form-data; boundary=" + b"x" * 500]
)
def test_without_a_usable_boundary_nothing_is_looked_for(kind):
    form = FormPeek(kind)
    assert form.is_done
    form.feed(MODEL)
    assert form.peek == UNCLEAR


def test_a_form_that_turns_odd_ends_the_search():
    form = FormPeek(KIND)
    form.feed(b"--b\r\nContent-Disposition form-data\r\n\r\n")
    assert form.is_done
    form.feed(MODEL)
    assert form.peek == UNCLEAR


def test_a_form_that_ends_without_a_model_is_done():
    form = FormPeek(KIND)
    form.feed(FILE + b"--b--\r\n")
    assert form.is_done


def test_a_form_of_countless_parts_is_not_read_to_its_end():
    peek = FormPeek(b"multipart/form-data; boundary=b")
    part = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n'
    for _ in range(20):
        peek.feed(part * 100)
    assert peek.is_done
    assert peek.peek.model is None
