"""What is kept of heads that come again, and that nothing of one head shows in another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.gateway.detect import BadHeader, Wishes
from api.gateway.head_words import MAX_KEPT, MAX_KEPT_BYTES, HeadBook, split_length
from api.gateway.headers import Header, RequestHead, outgoing_headers
from contracts.config import CallerKey
from contracts.events import PriorityClass

LENGTH = (b"content-length", b"7")


def head(*headers: Header, client: str | None = "10.0.0.1") -> RequestHead:
    return RequestHead(
        method="POST",
        path="/v1/chat/completions",
        target=b"/v1/chat/completions",
        query=b"",
        headers=headers,
        scheme="http",
        client=client,
    )


def test_the_length_is_told_apart_from_the_rest():
    assert split_length(((b"a", b"1"), LENGTH, (b"b", b"2"))) == (
        ((b"a", b"1"), (b"b", b"2")),
        b"7",
    )
    assert split_length(((b"a", b"1"),)) == (((b"a", b"1"),), None)


def test_heads_that_differ_in_length_only_are_worked_out_once():
    book = HeadBook()
    words = book.words_of(((b"a", b"1"), (b"a", b"2")))
    assert words.first == {b"a": b"1"}
    assert book.words_of(((b"a", b"1"), (b"a", b"2"))) is words
    assert book.words_of(((b"a", b"1"),)) is not words


def test_the_book_is_bounded():
    book = HeadBook()
    first = book.words_of(((b"n", b"0"),))
    for number in range(1, MAX_KEPT + 1):
        book.words_of(((b"n", b"%d" % number),))
    assert len(book) == MAX_KEPT
    assert book.words_of(((b"n", b"0"),)) is not first
    long = ((b"n", b"x" * MAX_KEPT_BYTES),)
    assert book.words_of(long) is not book.words_of(long)
    assert len(book) == MAX_KEPT


def test_each_request_has_its_own_length():
    long, none = head((b"host", b"h"), LENGTH), head((b"host", b"h"))
    assert (long.content_length, long.has_body) == (7, True)
    assert (none.content_length, none.has_body) == (None, False)
    assert head((b"host", b"h"), (b"transfer-encoding", b"chunked")).has_body


def test_what_goes_on_is_what_would_be_worked_out_anew():
    key = CallerKey(name="n", digest=b"d" * 32)
    one = head((b"host", b"h"), (b"authorization", b"Bearer k"), (b"expect", b"x"), LENGTH)
    for sent in (
        one,
        replace(one, client="10.0.0.2"),
        replace(one, key=key),
        replace(one, scheme="https"),
        one,
    ):
        for node_key in (None, "node"):
            for drop in (frozenset[bytes](), frozenset({b"expect"})):
                anew = outgoing_headers(sent, node_key=node_key, drop=drop)
                anew.remove(LENGTH)
                assert sent.outgoing(node_key=node_key, drop=drop) == tuple(anew)
                assert sent.outgoing(node_key=node_key, drop=drop) == tuple(anew)


def test_wishes_and_keys_come_from_the_head():
    wishing = head((b"x-headstart-class", b"batch"), (b"x-api-key", b"k"))
    assert wishing.wishes == Wishes(priority=PriorityClass.BATCH)
    assert wishing.wishes is wishing.wishes
    assert wishing.keys == [b"k"] == wishing.keys
    wrong = head((b"x-headstart-class", b"never"))
    for _ in range(2):
        with pytest.raises(BadHeader):
            _ = wrong.wishes
