"""Answers of a model server: what the gateway's observer finds in them, however they are cut."""

from __future__ import annotations

import gzip
import json
from typing import Any

from hypothesis import strategies as st

from api.gateway.detect import ApiStyle
from api.gateway.renaming import NameFilter
from api.gateway.sse import AnswerObserver, Format
from tests.fuzz import reference_sse
from tests.fuzz.target import Target, cuts_of, mutated

STYLES, FORMS = list(ApiStyle), list(Format)
TEXT = st.sampled_from(
    ["", "x", "größe 🚀", '"model":"m"', "data: {}\n\n", "\r\n", "\x00", "[DONE]"]
)
NAME = st.sampled_from(["m", "m-q4", "org/m:1", "", "größe", "a<b>&c"])
COUNT = st.sampled_from([0, 1, 7, -3, 2**31, 2**70, 1.5, True, None, "7", [1], 10**400])


def _say(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


USAGE = st.dictionaries(
    st.sampled_from([*reference_sse.COUNTS_IN, *reference_sse.COUNTS_OUT, "total_tokens"]),
    COUNT,
    max_size=3,
)
DELTA = st.dictionaries(
    st.sampled_from(["content", "role", "reasoning_content", "tool_calls", "type", "text"]),
    TEXT,
    max_size=2,
)
DOCUMENT = st.one_of(
    st.fixed_dictionaries(
        {"choices": st.lists(st.fixed_dictionaries({"delta": DELTA}), max_size=2)},
        optional={"model": NAME, "usage": USAGE | COUNT, "timings": USAGE},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["content_block_delta", "message_start", "ping", "message_stop"])},
        optional={"delta": DELTA | TEXT, "message": st.fixed_dictionaries({"usage": USAGE})},
    ),
    st.fixed_dictionaries(
        {"done": st.booleans()},
        optional={"message": DELTA, "model": NAME, "eval_count": COUNT, "response": TEXT | USAGE},
    ),
    st.recursive(TEXT | COUNT, lambda each: st.lists(each, max_size=3), max_leaves=6),
    st.fixed_dictionaries({"error": TEXT | st.fixed_dictionaries({"message": TEXT}) | COUNT}),
).map(_say)
LINE = st.one_of(
    DOCUMENT.map(b"data: ".__add__),
    DOCUMENT.map(b"data:".__add__),
    DOCUMENT,
    st.sampled_from(
        [
            b"",
            b"data",
            b"data:",
            b"data: ",
            b": ping",
            b"event: x",
            b"id:1",
            b"data: [DONE]",
            b"\xff",
        ]
    ),
    st.sampled_from([b"[" * 2_000, b'data: {"a":' * 40, b"x" * 70_000, b"data: " + b"y" * 9_000]),
)
END = st.sampled_from([b"\n\n"] * 3 + [b"\r\n\r\n", b"\n", b"\r\n", b"\r", b"\r\r", b""])
STREAM = st.lists(st.tuples(LINE, END).map(b"".join), max_size=8).map(b"".join)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    stream = draw(st.one_of(STREAM, mutated(STREAM), st.just(b"\xef\xbb\xbf").flatmap(_marked)))
    style, form = draw(st.sampled_from(STYLES)), draw(st.sampled_from(FORMS))
    packed = draw(st.sampled_from(["", "", "", "gzip"]))
    head = f"{style.value} {form.value} {packed}\n".encode()
    return head + (gzip.compress(stream, 1, mtime=0) if packed else stream)


def _marked(mark: bytes) -> st.SearchStrategy[bytes]:
    return STREAM.map(mark.__add__)


def _split(data: bytes) -> tuple[ApiStyle, Format, bytes | None, bytes]:
    head, _, stream = data.partition(b"\n")
    words = head.decode("latin-1").split(" ")
    style = next((one for one in STYLES if one.value in words), ApiStyle.OPENAI)
    form = next((one for one in FORMS if one.value in words), Format.EVENTS)
    return style, form, b"gzip" if "gzip" in words else None, stream


def _observed(pieces: list[bytes], style: ApiStyle, form: Format, packed: bytes | None) -> Any:
    observer = AnswerObserver(style, form, packed)
    for piece in pieces:
        observer.feed(piece, 1.0)
    between = observer.is_between_events
    observer.end(2.0)
    seen = (
        observer.first_content_at_s,
        observer.input_tokens,
        observer.output_tokens,
        observer.tokens_counted,
        observer.model,
        observer.is_finished,
        observer.is_truncated,
        observer.error,
        observer.skipped,
        between,
    )
    return observer, seen


def check_observer(data: bytes) -> None:
    """Any cut is as good as another, and a slow reader finds the same."""
    style, form, packed, stream = _split(data)
    ways = cuts_of(stream)
    observer, whole = _observed(next(ways), style, form, packed)
    for pieces in ways:
        assert _observed(pieces, style, form, packed)[1] == whole, "a cut changes what is seen"
    if packed or form not in (Format.EVENTS, Format.LINES):
        return
    plain = form is Format.LINES
    found = reference_sse.read(
        reference_sse.lines_of(stream) if plain else reference_sse.events_of(stream), plain=plain
    )
    assert observer.model == found.model
    assert observer.input_tokens == found.tokens_in
    if not observer.tokens_counted:
        assert observer.output_tokens == found.tokens_out
    assert observer.is_finished or not found.done
    assert observer.error is None or 0 < len(observer.error) <= 200


def check_renaming(data: bytes) -> None:
    """A renamed answer differs in the name alone, the same in any cut."""
    served, asked = ("m-q4", "m") if len(data) % 2 else ("a<b>&c", 'größe"')
    quoted = _say(asked)
    results = set()
    for pieces in cuts_of(data):
        names = NameFilter(served, quoted)
        out = b"".join([names.feed(piece) for piece in pieces])
        assert len(names.held) <= 200, "more is held back than a name"
        results.add(out + names.end())
    assert len(results) == 1, "a cut changes what goes on"
    (result,) = results
    spelt = (_say(served), b'"a\\u003cb\\u003e\\u0026c"')
    assert result == data or any(one in data for one in spelt)
    if b'"model"' not in data:
        assert result == data


SSE = Target("sse", answers(), check_observer, short=100)
RENAMING = Target(
    "renaming",
    st.lists(
        st.sampled_from(
            [
                *(
                    b'"model"',
                    b'"m-q4"',
                    b'"a<b>&c"',
                    b'"a\\u003cb\\u003e\\u0026c"',
                    b'\\"model\\"',
                ),
                *(b'"m', b"-q4", b'"mod', b'el"', b"x", b"\xff"),
                *(b":", b" ", b"\n", b'"', b"\\", b"{", b","),
            ]
        ),
        max_size=20,
    ).map(b"".join),
    check_renaming,
    short=150,
)
