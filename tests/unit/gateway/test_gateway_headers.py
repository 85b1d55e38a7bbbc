from __future__ import annotations

import pytest

from api.gateway.headers import (
    RequestHead,
    answer_headers,
    content_encoding,
    content_type,
    header_text,
    outgoing_headers,
    presented_keys,
    request_id,
)


def head(*headers: tuple[bytes, bytes], client: str | None = "10.0.0.1") -> RequestHead:
    return RequestHead(
        method="POST",
        path="/x",
        target=b"/x",
        query=b"",
        headers=headers,
        scheme="http",
        client=client,
    )


def test_where_a_request_came_from_is_said():
    assert outgoing_headers(head((b"host", b"h")), node_key=None) == [
        (b"host", b"h"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-forwarded-host", b"h"),
        (b"x-forwarded-proto", b"http"),
    ]


def test_what_names_the_caller_the_host_or_the_body_is_not_hop_by_hop():
    named = b"host, content-length, Authorization, x-forwarded-for, x-thing"
    sent = head(
        (b"connection", named),
        (b"host", b"h"),
        (b"content-length", b"2"),
        (b"authorization", b"Bearer k"),
        (b"x-thing", b"1"),
    )
    names = [name for name, _ in outgoing_headers(sent, node_key=None)]
    assert names == [
        *(b"host", b"content-length", b"authorization"),
        *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"),
    ]
    assert answer_headers([(b"A", b"b")]) == [(b"a", b"b")]


def test_what_others_said_about_it_is_extended_or_kept():
    headers = outgoing_headers(
        head(
            (b"x-forwarded-for", b"1.1.1.1"),
            (b"x-forwarded-for", b"2.2.2.2"),
            (b"x-forwarded-host", b"public"),
            (b"x-forwarded-proto", b"https"),
        ),
        node_key=None,
    )
    assert headers == [
        (b"x-forwarded-for", b"1.1.1.1, 2.2.2.2, 10.0.0.1"),
        (b"x-forwarded-host", b"public"),
        (b"x-forwarded-proto", b"https"),
    ]


def test_over_a_unix_socket_there_is_no_address_to_add():
    assert outgoing_headers(head(client=None), node_key=None) == [(b"x-forwarded-proto", b"http")]
    kept = outgoing_headers(head((b"x-forwarded-for", b"1.1.1.1"), client=None), node_key=None)
    assert kept[0] == (b"x-forwarded-for", b"1.1.1.1")


def test_hop_by_hop_headers_and_ours_stay_here():
    kept = outgoing_headers(
        head(
            (b"connection", b"keep-alive, X-Hop"),
            (b"x-hop", b"1"),
            (b"transfer-encoding", b"chunked"),
            (b"upgrade", b"h2c"),
            (b"proxy-authorization", b"p"),
            (b"x-headstart-class", b"batch"),
            (b"expect", b"100-continue"),
            (b"x-kept", b"1"),
        ),
        node_key=None,
        drop=[b"expect"],
    )
    assert [name for name, _ in kept if not name.startswith(b"x-forwarded")] == [b"x-kept"]


def test_the_key_of_a_node_replaces_the_callers():
    callers = head(
        (b"authorization", b"Bearer a"), (b"x-api-key", b"b"), (b"xi-api-key", b"c"), (b"k", b"d")
    )
    kept = outgoing_headers(callers, node_key="node")
    assert [pair for pair in kept if not pair[0].startswith(b"x-forwarded")] == [
        (b"k", b"d"),
        (b"authorization", b"Bearer node"),
    ]


def test_answers_keep_what_is_for_the_caller():
    kept = answer_headers(
        [
            (b"Content-Type", b"a/b"),
            (b"Set-Cookie", b"1"),
            (b"Set-Cookie", b"2"),
            (b"Connection", b"close, X-Hop"),
            (b"X-Hop", b"1"),
            (b"Transfer-Encoding", b"chunked"),
            (b"X-Request-Id", b"theirs"),
            (b"X-Headstart-Cold", b"theirs"),
        ],
        drop=[b"x-request-id"],
    )
    assert kept == [(b"content-type", b"a/b"), (b"set-cookie", b"1"), (b"set-cookie", b"2")]


def test_types_and_encodings():
    assert content_type([(b"X", b"y"), (b"Content-Type", b"Text/Event-Stream; a=b")]) == (
        b"text/event-stream"
    )
    assert content_type([]) is None
    assert content_encoding([(b"A", b"b"), (b"Content-Encoding", b" GZIP ")]) == b"gzip"
    assert content_encoding([(b"Content-Encoding", b"identity")]) is None
    assert content_encoding([]) is None


@pytest.mark.parametrize(
    ("headers", "length", "has_body"),
    [
        ([], None, False),
        ([(b"content-length", b"0")], 0, False),
        ([(b"content-length", b"7")], 7, True),
        ([(b"content-length", b"-7")], None, False),
        ([(b"transfer-encoding", b"chunked")], None, True),
    ],
)
def test_whether_a_body_comes(headers, length, has_body):
    seen = head(*headers)
    assert (seen.content_length, seen.has_body) == (length, has_body)


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (b"abc-1", "abc-1"),
        (b"", None),
        (b"x" * 129, None),
        (b"two words", None),
        (b"\xc3\xa4", None),
        (b"a\tb", None),
    ],
)
def test_ids_of_callers(value, taken):
    assert request_id(head((b"x-request-id", value))) == taken
    assert request_id(head()) is None


def test_keys_wherever_they_stand():
    assert presented_keys(
        [
            (b"authorization", b"Bearer a"),
            (b"x-api-key", b"b"),
            (b"xi-api-key", b" c "),
            (b"cookie", b"x=1; token=d; y=2"),
            (b"sec-websocket-protocol", b"realtime, openai-insecure-api-key.e"),
            (b"host", b"f"),
        ]
    ) == [b"a", b"b", b"c", b"d", b"e"]
    assert presented_keys([(b"authorization", b"bare")]) == [b"bare"]


def test_names_in_headers_cannot_break_out_of_them():
    assert header_text("org/model:q4 @v2") == b"org/model:q4 @v2"
    assert header_text("a\r\nb: ü%") == b"a%0D%0Ab: %C3%BC%25"
