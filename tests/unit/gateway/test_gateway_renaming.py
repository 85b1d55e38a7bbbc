from __future__ import annotations

import json

import pytest

from api.gateway.renaming import (
    MAX_FORM_NAME_BYTES,
    NameFilter,
    NamePlace,
    find_form_name,
    find_name,
    renamed,
)

SERVED, ASKED = "llama--headstart-cpu", b'"llama"'


def name_in(body: bytes) -> bytes | None:
    place = find_name(body)
    return None if place is None else body[place.start : place.end]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"model":"a"}', b'"a"'),
        (b'{ "x" : [1, {"model":"no"}], "model" : "a b" , "y":1}', b'"a b"'),
        (b'{"content":"\\"model\\":\\"no\\"","model":"a"}', b'"a"'),
        (b'{"m\\u006fdel":"a"}', b'"a"'),
        (b'{"a":"model","model":"b"}', b'"b"'),
        (b'{"model":"a","model":"b"}', None),
        (b'{"model":3}', None),
        (b'{"Model":"a"}', None),
        (b'{"messages":[]}', None),
        (b'["model","a"]', None),
        (b'{"\\q":"a"}', None),
        (b"", None),
        (b'{"model":"a', None),
    ],
)
def test_the_outermost_model_is_found(body, name):
    assert name_in(body) == name


def test_only_the_name_changes():
    body = b' {"model":\t"llama","n": 1.0e3 }'
    place = find_name(memoryview(body))
    assert place == NamePlace(11, 18)
    assert b"".join(renamed(body, place, 'x"ö')) == b' {"model":\t"x\\"\xc3\xb6","n": 1.0e3 }'


def passed(pieces: list[bytes], served: str = SERVED, asked: bytes = ASKED) -> bytes:
    names = NameFilter(served, asked)
    return b"".join([*(names.feed(piece) for piece in pieces), names.end()])


def test_every_place_of_the_name_is_renamed_and_no_text():
    text = json.dumps(f'"model":"{SERVED}"')
    answer = f'{{"model": "{SERVED}","o":{{"model":"{SERVED}"}},"t":{text},"model":"other"}}'
    expected = f'{{"model": "llama","o":{{"model":"llama"}},"t":{text},"model":"other"}}'
    assert passed([answer.encode()]) == expected.encode()


@pytest.mark.parametrize("size", range(1, 60))
def test_it_does_not_matter_how_an_answer_is_cut(size):
    event = f'data: {{"id":"x","model" :\n"{SERVED}","c":"\\"model\\":\\"{SERVED}\\""}}\n\n'
    data = (event * 3 + 'data: {"model":"llama--headstart-c"}\n\n"mode').encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert passed(pieces) == data.replace(f'"model" :\n"{SERVED}"'.encode(), b'"model" :\n"llama"')


def test_nothing_is_held_back_that_cannot_be_a_name():
    names = NameFilter(SERVED, ASKED)
    event = f'data: {{"model":"{SERVED}","delta":"a"}}\n\n'.encode()
    assert names.feed(event) == event.replace(SERVED.encode(), b"llama")
    assert names.held == b""
    assert names.feed(b'{"model":"llama--x"}') == b'{"model":"llama--x"}'
    assert names.feed(b'"model" x') == b'"model" x'
    assert names.feed(b',"model":"llama--head') == b","
    assert names.held == b'"model":"llama--head'
    assert names.end() == b'"model":"llama--head'
    assert names.feed(b'"mod') == b""
    assert names.feed(b'e" "model"') == b'"mode" '
    assert names.feed(b" : x") == b'"model" : x'


def test_a_name_may_hold_what_go_escapes():
    answer = b'{"model":"a\\u003cb\\u0026c"}'
    assert passed([answer], served="a<b&c", asked=b'"m"') == b'{"model":"m"}'
    assert passed([b'{"model":"a<b&c"}'], served="a<b&c", asked=b'"m"') == b'{"model":"m"}'


# Forms

FORM = b"multipart/form-data; boundary=xyz"
FILE = (
    b'Content-Disposition: form-data; name="file"; filename="model"\r\n\r\nname="model"\r\n\r\nno'
)


def form(*parts: bytes, end: bytes = b"\r\n--xyz--\r\n") -> bytes:
    return b"--xyz\r\n" + b"\r\n--xyz\r\n".join(parts) + end


def field(name: bytes, value: bytes) -> bytes:
    return b'Content-Disposition: form-data; name="' + name + b'"\r\n\r\n' + value


@pytest.mark.parametrize(
    "body",
    [
        form(field(b"model", b"llama")),
        form(FILE, field(b"model", b"llama"), field(b"language", b"de")),
        form(field(b"model", b"llama"), FILE, end=b"\r\n--xyz--"),
        b"preamble\r\n" + form(field(b"model", b"llama")),
        form(b'Content-Disposition: form-data; name=model; filename=""\r\n\r\nllama'),
        form(b"X: y\r\n\r\n", field(b"model", b"llama")),
        form(b"Content-Type: text/plain\r\n" + field(b"model", b"llama")),
    ],
)
def test_a_forms_part_with_the_model_is_found_and_nothing_else_changes(body):
    place = find_form_name(memoryview(body), FORM)
    assert place is not None
    assert (place.read(body), place.quoted(body)) == ("llama", b'"llama"')
    changed = b"".join(bytes(piece) for piece in renamed(body, place, "other"))
    assert changed == body[: place.start] + b"other" + body[place.end :]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (form(FILE), FORM),
        (form(field(b"model", b"a"), field(b"model", b"b")), FORM),
        (form(field(b"model", b"x" * (MAX_FORM_NAME_BYTES + 1))), FORM),
        (form(b'Content-Disposition: form-data; name="model"'), FORM),
        (form(field(b"Model", b"a")), FORM),
        (form(field(b"model", b"a"), field(b"MODEL", b"b")), FORM),
        (form(field(b"model", b"")), FORM),
        (form(field(b"x", b"a\r\n--xyz \r\n"), field(b"model", b"b")), FORM),
        (form(b"Content-Disposition: form-data; name*=utf-8''model\r\n\r\na"), FORM),
        (form(field(b"model", b"a")), b"multipart/form-data"),
        (form(field(b"model", b"a")), b"multipart/form-data; boundary=other"),
        (b"", FORM),
    ],
)
def test_a_form_that_can_be_read_in_two_ways_is_left_alone(body, kind):
    assert find_form_name(body, kind) is None


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"model":"\x80a"}', "\ufffda"),
        (b'{"model":"a\\ud800"}', "a\ufffd"),
        (b'{"model":"\x01"}', ""),
        (b'{"\\x":1,"model":"m"}', "m"),
    ],
)
def test_an_odd_name_is_read_as_localai_does(body, name):
    place = find_name(body)
    assert place is not None
    assert place.read(body) == name


@pytest.mark.parametrize(
    "body", [b'{"Model":"a"}', b'{"model":"a","MODEL":"b"}', b'{"model":"m"} "\\"']
)
def test_a_name_that_may_not_be_the_one_is_left_alone(body):
    assert find_name(body) is None


def test_a_quoted_name_is_given_back_as_it_was_written():
    body = b'{"model":"ll\\u0061ma"}'
    place = find_name(body)
    assert place is not None
    assert (place.read(body), place.quoted(body)) == ("llama", b'"ll\\u0061ma"')
