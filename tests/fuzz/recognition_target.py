"""Requests: never another model than LocalAI takes, never an exception, bounded work."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from api.gateway.detect import (
    MAX_MODEL_NAME_CHARS,
    ApiStyle,
    BadHeader,
    InferencePath,
    Peek,
    find_model,
    lists_models,
    match_path,
    match_websocket,
    peek_form,
    peek_json,
    read_wishes,
    straight_path,
)
from api.gateway.forms import FormPeek
from api.gateway.keys import models_in_json
from api.gateway.renaming import find_form_name, find_name
from tests.fuzz import reference_localai
from tests.fuzz.reference_localai import REFUSED
from tests.fuzz.target import Target, cuts_of, mutated

PATH = InferencePath(operation="x", style=ApiStyle.OPENAI)
IN_QUERY = "in-the-query"
LONG = "z" * (MAX_MODEL_NAME_CHARS + 1)

# JSON

KEY = st.sampled_from(
    [
        "model",
        "Model",
        "MODEL",
        "mOdEl",
        "model_id",
        "Model_ID",
        "stream",
        "x",
        "\uff4dodel",
        "mode\u0131",
    ]
).map(lambda name: json.dumps(name, ensure_ascii=False)) | st.sampled_from(
    ['"\\u006dodel"', '"mod\\u0065L"']
)
VALUE = st.sampled_from(
    [
        *('"a"', '"b"', '""', "null", "1", "1e999", "true", "[]", '{"model":"n"}', '"\\u0000"'),
        *('"c\\ud800"', '"\\ud83d\\ude80"', '"\\"model\\":\\"q\\""', '"größe"', "NaN", "-Infinity"),
        *("9" * 5_000, "[" * 1_200 + "]" * 1_200, f'"{LONG}"', "-", "01", '"\x01"', '"\\x"'),
    ]
)
OBJECT = st.lists(st.tuples(KEY, st.sampled_from([":", " :\t", ":\n"]), VALUE), max_size=5).map(
    lambda members: "{" + ", ".join("".join(member) for member in members) + "}"
)
AROUND = st.sampled_from(["", " ", "\n\t", "\ufeff", "x", "null", '{"model":"t"}', "[", "\x00"])
DOCUMENT = st.one_of(
    st.tuples(AROUND, OBJECT, AROUND).map(lambda parts: "".join(parts).encode()),
    OBJECT.map(lambda text: text.encode("utf-16")),
    OBJECT.map(lambda text: text.encode("latin-1", "replace")),
    VALUE.map(str.encode),
)


def check_json(body: bytes) -> None:
    for field in ("model", "model_id"):
        taken = reference_localai.json_model(body, field)
        peek = peek_json(body, field)
        _agree(peek, taken)
        named = models_in_json(body)
        if taken not in (REFUSED, "") and named is not None:
            assert taken in named, "a key for some models would not see this one"
    place = find_name(body)
    taken = reference_localai.json_model(body, "model")
    if place is not None and taken is not REFUSED and peek_json(body).model is not None:
        assert place.read(body) == taken, "another name would be changed than the one that counts"


def _agree(peek: Peek, taken: object) -> None:
    """What we take for the model is what LocalAI takes, or nothing."""
    assert peek.model is None or 0 < len(peek.model) <= MAX_MODEL_NAME_CHARS
    ours = find_model(
        peek=peek,
        path=PATH,
        query=b"model=" + IN_QUERY.encode(),
        authorization=None,
        is_model=lambda _name: False,
    )
    if taken is REFUSED:
        return
    if isinstance(taken, set):
        assert ours is None
    else:
        assert ours in (None, taken or IN_QUERY)
        # A plain name is always seen.
        if isinstance(taken, str) and taken in ("a", "b", "größe") and peek.is_clear:
            assert ours == taken


# Queries, forms in their way of writing, paths, headers

PIECE = st.sampled_from(
    [
        *(b"model", b"Model", b"mod%65l", b"%6d%6F%64el", b"model%00", b"mod+el", b"x", b"stream"),
        *(b"=", b"=", b"=", b"&", b"&", b"&", b";", b"%", b"%zz", b"%C3%A9", b"%FF", b"+", b"#"),
        *(b"a", b"b", b"a%2Fb", b"..", b"true", LONG.encode(), b"\xff", b"&" * 300),
        *(b"1", b"000000000001", b"9" * 5_000),
    ]
)
QUERY = st.lists(PIECE, max_size=14).map(b"".join)


def check_query(query: bytes) -> None:
    ours = find_model(
        peek=Peek(), path=PATH, query=query, authorization=None, is_model=lambda _name: True
    )
    taken = reference_localai.query_model(query)
    assert ours == (taken if 0 < len(taken) <= MAX_MODEL_NAME_CHARS else None)
    _agree(peek_form(query), reference_localai.form_model(query))
    text = query.decode("utf-8", "replace")
    for path in (
        text,
        f"/v1/engines/{text}/completions",
        f"/v1/{text}",
        f"/v1/text-to-speech/{text}",
    ):
        for method in ("POST", "GET"):
            found = match_path(method, path)
            assert found is None or method == "POST"
            assert found is None or found.path_model is None or found.path_model in path
            lists_models(method, path)
            straight = straight_path(method, path.encode("utf-8", "replace"))
            assert straight is None or (
                b"//" not in straight and len(straight) < len(path.encode())
            )
        match_websocket(path)
    for name in (b"class", b"fallback", b"deadline-ms", b"preempt", b"else"):
        refused = None
        try:
            read_wishes([(b"x-headstart-" + name, query)])
        except BadHeader as error:
            refused = error
        if refused is not None:
            assert refused.header.lower().encode() == b"x-headstart-" + name
            assert len(str(refused)) < 300


# Multipart forms

MARK = b"b"
DISPOSITION = st.sampled_from(
    [
        *(
            b'name="model"',
            b"name=model",
            b'name="Model"',
            b'name="MODEL"',
            b'name="stream"',
            b'name="x"',
        ),
        *(
            b'name="model"; filename=""',
            b'name="model"; filename="a"',
            b'filename="x"; name="model"',
        ),
        *(
            b"name*=utf-8''model",
            b"name*0=mod; name*1=el",
            b'name="mo\\del"',
            b'name="model"; name="x"',
        ),
        *(
            b"name = model",
            b'NAME="model"',
            b"name='model'",
            b'name="model";',
            b'name="model"; x',
            b"",
        ),
        *(
            b"name=model; filename*=utf-8''x",
            b"name=model; filename*=utf-8''",
            b'name="f"; filename="model"',
        ),
    ]
)
HEAD = st.one_of(
    DISPOSITION.map(b"Content-Disposition: form-data; ".__add__),
    DISPOSITION.map(b"content-disposition:FORM-DATA;".__add__),
    DISPOSITION.map(b"Content-Disposition : form-data; ".__add__),
    DISPOSITION.map(b"Content-Disposition: attachment; ".__add__),
    st.sampled_from(
        [b"Content-Type: text/plain", b"bad line", b" folded", b"", b"X: \x00", b"X: y\nZ: y"]
    ),
    st.sampled_from([b"Content-Transfer-Encoding: quoted-printable", b"X: " + b"y" * 9_000]),
)
CONTENT = st.sampled_from(
    [
        b"a",
        b"b",
        b"",
        b"a\r\nb",
        b"--",
        b"\r\n",
        b"\xff",
        b"--bx",
        b"\r\n--b \r\n",
        b"--b--",
        LONG.encode(),
        b"=41",
    ]
)
LINE = st.sampled_from([b"\r\n"] * 12 + [b"\n", b" \r\n", b"\t\r\n", b"--\r\n", b"x\r\n"])
PART = st.builds(
    lambda line, heads, content: (
        b"--b" + line + b"\r\n".join(heads) + b"\r\n\r\n" + content + b"\r\n"
    ),
    LINE,
    st.lists(HEAD, min_size=1, max_size=2),
    CONTENT,
)
FORM = st.builds(
    lambda before, parts, end: before + b"".join(parts) + end,
    st.sampled_from([b"", b"", b"", b"\r\n", b"preamble\r\n", b"\r\n--b \r\n"]),
    st.lists(PART, max_size=4),
    st.sampled_from([b"--b--\r\n"] * 4 + [b"--b--", b"", b"--b", b"--b--x", b"--b\r\n"]),
)
MULTIPART = b"multipart/form-data; boundary=b"


def check_multipart(body: bytes) -> None:
    """The same in any pieces, little kept, and nothing taken from a place that is not sure."""
    seen = []
    for pieces in cuts_of(body):
        form = FormPeek(MULTIPART)
        for piece in pieces:
            form.feed(piece)
            assert len(form._pending) <= 8_192 + len(piece) + 8
            assert len(form._value) <= 4 * MAX_MODEL_NAME_CHARS + 3
        seen.append(form.peek)
    peek = seen[0]
    assert all(one.model == peek.model and one.is_clear == peek.is_clear for one in seen)
    if peek.model is None:
        return
    # Whatever else it holds, the name stands alone between a head and a boundary.
    value = peek.model.encode()
    assert b"\r\n\r\n" + value + b"\r\n--b" in body
    assert b"\r\n--b" not in value
    before = body.split(b"\r\n\r\n" + value + b"\r\n--b", 1)[0]
    assert not any(b"--b" + odd in before for odd in (b" ", b"\t", b"\n"))
    assert b"*=" not in before.rpartition(b"--b")[2].partition(b"filename")[0]
    place = find_form_name(body, MULTIPART)
    if place is not None:
        assert place.read(body) == peek.model


TARGETS = (
    Target("json", DOCUMENT | mutated(DOCUMENT), check_json, short=150),
    Target("query", QUERY | mutated(QUERY), check_query, short=60),
    Target("multipart", FORM | mutated(FORM), check_multipart, short=80),
)
