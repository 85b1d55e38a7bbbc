"""Heads that mean one thing only, and what callers are told about the others."""

from __future__ import annotations

import msgspec
import pytest

from api.gateway.connections import Connections, EdgeLimits
from api.gateway.heads import (
    HeadRefused,
    Target,
    head_too_large,
    judge_head,
    judge_websocket,
    malformed,
    split_target,
    target_too_long,
)
from api.gateway.refusals import (
    body_too_slow,
    head_too_slow,
    no_place,
    refusal_bytes,
    too_many_pipelined,
)


@pytest.mark.parametrize(
    ("method", "version", "watched"),
    [
        ("GET", "1.1", {b"host": [b"a.b:80"]}),
        ("GET", "1.1", {b"host": [b"[::1]:80"]}),
        ("GET", "1.1", {b"host": [b""]}),
        ("GET", "1.0", {}),
        ("POST", "1.1", {b"host": [b"x"], b"transfer-encoding": [b" Chunked "]}),
        ("POST", "1.1", {b"host": [b"x"], b"content-length": [b"1"], b"expect": [b"100-Continue"]}),
        ("PURGE", "1.0", {b"host": [b"x"]}),
    ],
)
def test_heads_with_one_meaning(method, version, watched):
    judge_head(method, version, watched)


@pytest.mark.parametrize(
    ("method", "version", "watched", "status", "code"),
    [
        ("GET", "0.9", {}, 505, "http_version"),
        ("GET", "2.0", {b"host": [b"x"]}, 505, "http_version"),
        ("CONNECT", "1.1", {b"host": [b"x"]}, 405, "method_not_allowed"),
        ("TRACE", "1.1", {b"host": [b"x"]}, 405, "method_not_allowed"),
        ("GET", "1.1", {}, 400, "bad_host"),
        ("GET", "1.1", {b"host": [b"x", b"x"]}, 400, "bad_host"),
        ("GET", "1.0", {b"host": [b"x", b"y"]}, 400, "bad_host"),
        ("GET", "1.1", {b"host": [b"x/y"]}, 400, "bad_host"),
        ("GET", "1.0", {b"transfer-encoding": [b"chunked"]}, 400, "bad_framing"),
        (
            "GET",
            "1.1",
            {b"host": [b"x"], b"transfer-encoding": [b"chunked"], b"content-length": [b"1"]},
            400,
            "bad_framing",
        ),
        (
            "GET",
            "1.1",
            {b"host": [b"x"], b"transfer-encoding": [b"gzip"]},
            501,
            "transfer_encoding",
        ),
        (
            "GET",
            "1.1",
            {b"host": [b"x"], b"transfer-encoding": [b"chunked", b"chunked"]},
            501,
            "transfer_encoding",
        ),
        ("GET", "1.1", {b"host": [b"x"], b"expect": [b"tea"]}, 417, "expectation_failed"),
    ],
)
def test_heads_that_are_refused(method, version, watched, status, code):
    with pytest.raises(HeadRefused) as refused:
        judge_head(method, version, watched)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert str(refused.value).startswith(f"{status} {code}: ")


@pytest.mark.parametrize(
    ("method", "version", "watched"),
    [
        ("POST", "1.1", {}),
        ("GET", "1.0", {}),
        ("GET", "1.1", {b"content-length": [b"1"]}),
        ("GET", "1.1", {b"transfer-encoding": [b"chunked"]}),
    ],
)
def test_handshakes_that_are_refused(method, version, watched):
    with pytest.raises(HeadRefused, match="bad_handshake"):
        judge_websocket(method, version, watched)


def test_a_handshake_without_a_body():
    judge_websocket("GET", "1.1", {b"content-length": [b" 0"]})


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/", Target(path=b"/", query=b"")),
        (b"//v1/a%2Fb?x=?&y", Target(path=b"//v1/a%2Fb", query=b"x=?&y")),
        (b"http://h:1/a?b", Target(path=b"/a", query=b"b", authority=b"h:1")),
        (b"HTTPS://h", Target(path=b"/", query=b"", authority=b"h")),
        (b"http://h?b", Target(path=b"/", query=b"b", authority=b"h")),
    ],
)
def test_targets(target, parts):
    assert split_target(target) == parts


@pytest.mark.parametrize(
    "target",
    [b"*", b"/a#b", b"http://", b"http:///a", b"http://me@h/", b"ftp://h/", b"h:80", b"/\xff", b""],
)
def test_targets_that_are_none(target):
    with pytest.raises(HeadRefused, match="bad_target"):
        split_target(target)


@pytest.mark.parametrize(
    ("why", "status"),
    [
        (malformed(), 400),
        (head_too_large(), 431),
        (target_too_long(), 414),
        (head_too_slow(), 408),
        (body_too_slow(), 408),
        (no_place(), 503),
        (too_many_pipelined(), 429),
        (HeadRefused(status=405, code="method_not_allowed", message="No."), 405),
    ],
)
def test_what_is_told(why, status):
    head, _, body = refusal_bytes(why).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0].startswith(b"HTTP/1.1 %d " % status)
    assert b"content-length: %d" % len(body) in lines
    assert b"connection: close" in lines
    assert (b"retry-after: 1" in lines) == (status == 503)
    assert any(line.startswith(b"allow: ") for line in lines) == (status == 405)
    error = msgspec.json.decode(body)["error"]
    assert error["code"] == why.code
    assert error["message"] == why.message


class _Open:
    def __init__(self) -> None:
        self.gave_way = False

    def give_way(self) -> None:
        self.gave_way = True


def test_who_waits_longest_gives_way_and_who_has_a_request_never_does():
    told: list[str] = []
    places = Connections(EdgeLimits(max_connections=2), told.append)
    first, second, third, fourth = _Open(), _Open(), _Open(), _Open()
    assert places.enter(first)
    assert places.enter(second)
    places.busy(first)
    places.waits(first)  # now second has waited longer
    places.busy(first)
    assert places.waiting == 1
    assert places.enter(third)
    assert second.gave_way
    places.leave(second)
    places.busy(third)
    assert not places.enter(fourth)
    assert (first.gave_way, third.gave_way) == (False, False)
    places.leave(first)
    assert places.count == 1
    assert places.enter(fourth)
    assert told == ["gave_way"]
    assert places.refusals == {"gave_way": 1}


def test_nobody_has_to_be_told_of_refusals():
    places = Connections(EdgeLimits())
    places.refused("x")
    assert places.refusals["x"] == 1
