"""The gateway's own keys stay at the gateway; all others go on as they came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.gateway.headers import RequestHead, outgoing_headers
from api.gateway.keys import digest_of
from contracts.config import CallerKey

OURS = CallerKey(name="ui", digest=digest_of(b"ours"))
SHOWN = [
    (b"authorization", b"Bearer ours"),
    (b"authorization", b"ours"),
    (b"x-api-key", b"ours"),
    (b"xi-api-key", b" ours"),
    (b"cookie", b"token=ours"),
    (b"sec-websocket-protocol", b"openai-insecure-api-key.ours"),
]
THEIRS = [
    (b"authorization", b"Bearer theirs"),
    (b"x-api-key", b"theirs"),
    (b"cookie", b"a=b;token=theirs ;  c=d"),
    (b"sec-websocket-protocol", b"realtime,openai-insecure-api-key.theirs"),
]


def sent(
    name: bytes, value: bytes, *, key: CallerKey | None = None, node_key: str | None = None
) -> list[bytes]:
    head = RequestHead(
        method="GET",
        path="/x",
        target=b"/x",
        query=b"",
        headers=((name, value),),
        scheme="http",
        client=None,
        key=key,
    )
    headers = outgoing_headers(head, node_key=node_key)
    return [found for header, found in headers if header == name]


@pytest.mark.parametrize(("name", "value"), SHOWN + THEIRS)
def test_where_the_gateway_judges_nobody_keys_pass_as_they_came(name, value):
    assert sent(name, value) == [value]


@pytest.mark.parametrize(("name", "value"), SHOWN)
def test_our_key_does_not_reach_localai(name, value):
    assert sent(name, value, key=OURS) == []


@pytest.mark.parametrize(("name", "value"), SHOWN)
def test_a_plain_key_may_be_localais_as_well(name, value):
    assert sent(name, value, key=replace(OURS, goes_on=True)) == [value]
    assert sent(name, value, key=replace(OURS, goes_on=True), node_key="node") != [value]


@pytest.mark.parametrize(("name", "value"), THEIRS)
def test_a_key_of_localais_beside_ours_passes(name, value):
    assert sent(name, value, key=OURS) == [value]


@pytest.mark.parametrize(("name", "value"), SHOWN + THEIRS)
def test_the_nodes_key_replaces_every_other(name, value):
    found = sent(name, value, key=OURS, node_key="node")
    assert b"ours" not in b"".join(found)
    assert b"theirs" not in b"".join(found)
    if name == b"authorization":
        assert found == [b"Bearer node"]


def test_the_nodes_key_is_not_for_whoever_has_shown_none():
    def authorization(path: str, key: CallerKey | None) -> list[bytes]:
        head = RequestHead(
            method="GET",
            path=path,
            target=path.encode(),
            query=b"",
            headers=(),
            scheme="http",
            client=None,
            key=key,
        )
        sent = outgoing_headers(head, node_key="node")
        return [value for name, value in sent if name == b"authorization"]

    assert authorization("/app", None) == []
    assert authorization("/app", OURS) == [b"Bearer node"]
    assert authorization("/v1/models", None) == [b"Bearer node"], "as preflight needs it"


def test_what_stands_beside_a_key_stays():
    assert sent(b"cookie", b"a=b; token=ours; c=d", key=OURS) == [b"a=b; c=d"]
    subprotocols = b"realtime, openai-insecure-api-key.ours, openai-beta.realtime-v1"
    assert sent(b"sec-websocket-protocol", subprotocols, key=OURS) == [
        b"realtime, openai-beta.realtime-v1"
    ]
