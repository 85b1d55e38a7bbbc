"""Connections to LocalAI: kept, repeated on, refused, and closed."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from contracts.errors import Invalid
from contracts.upstream import Broken, Unanswered, Unreachable
from tests.contract.upstream.scripted_peer import (
    OK,
    Wire,
    answer_all,
    answering,
    get,
    opened,
    post,
    whole,
)
from tests.waiting import until

pytestmark = pytest.mark.integration


async def test_a_get_is_repeated_when_its_kept_connection_was_closed(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        if peer.connections == 1:
            # It takes the next request, and closes without a word.
            await wire.request()
            return
        await answer_all(wire)

    peer.script = script
    assert await whole(await upstream.send(get())) == b"ok"
    assert await whole(await upstream.send(get())) == b"ok"
    assert peer.connections == 2


async def test_a_post_that_may_have_been_taken_is_not_repeated(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.request()

    peer.script = script
    assert await whole(await upstream.send(post(b"1"))) == b"ok"
    with pytest.raises(Broken):
        await upstream.send(post(b"2"))
    assert peer.bodies == [b"1", b"2"]


async def test_nothing_is_repeated_on_a_fresh_connection(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()

    peer.script = script
    with pytest.raises(Broken):
        await upstream.send(get())
    assert len(peer.bodies) <= 2


async def test_kept_connections_that_were_closed_meanwhile(upstream, peer):
    peer.script = answering(OK, closing=True)
    for _ in range(3):
        # Its end is there before the next request, though no header announced it.
        assert await whole(await upstream.send(post(b"{}"))) == b"ok"
        await until(lambda: peer.gone == peer.connections)
        await asyncio.sleep(0.01)
    assert peer.bodies == [b"{}"] * 3


async def test_many_at_once(upstream, peer):
    async def one(number: int) -> bytes:
        return await whole(await upstream.send(post(b"%d" % number)))

    assert set(await asyncio.gather(*(one(number) for number in range(100)))) == {b"ok"}
    assert sorted(map(int, peer.bodies)) == list(range(100))


async def test_under_a_path_of_its_own(upstream, peer, kind):
    behind = opened(kind, peer.base + "/behind/")
    assert await whole(await behind.send(get())) == b"ok"
    assert peer.heads[0].startswith(b"GET /behind/x HTTP/1.1\r\n")
    tunnel = await behind.open_tunnel()
    assert tunnel.prefix == b"/behind"
    await tunnel.write(b"GET /t HTTP/1.1\r\n\r\n")
    assert await tunnel.read() == OK
    tunnel.close()
    await behind.close()


async def test_nobody_there(upstream, peer):
    await peer.stop()
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.send(get())
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.open_tunnel()


async def test_a_name_that_is_not_known(kind):
    scheme = "https" if kind.endswith("TLS") else "http"
    nowhere = opened(kind, f"{scheme}://localai.invalid:1")
    with pytest.raises(Unreachable, match="name could not be resolved"):
        await nowhere.send(get())
    with pytest.raises(Unreachable, match="name could not be resolved"):
        await nowhere.open_tunnel()
    await nowhere.close()


@pytest.mark.parametrize(
    "url", ["", "localai:8081", "ftp://x", "http://", "http://[", "http://a:b"]
)
def test_an_address_that_is_none(kind, url):
    with pytest.raises(Invalid):
        opened(kind, url)


async def test_a_host_that_takes_no_connection(kind):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Its queue is full, so that the next connection is neither taken nor refused.
        held = [socket.socket() for _ in range(4)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        scheme = "https" if kind.endswith("TLS") else "http"
        made = opened(kind, f"{scheme}://127.0.0.1:{full.getsockname()[1]}")
        with pytest.raises(Unanswered):
            # The request's own limit goes before the client's, which the test would not wait for.
            await made.send(replace(get(), connect_timeout_s=0.1))
        await made.close()
        for one in held:
            one.close()


async def test_closing_ends_what_runs(peer, kind):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await wire.until_gone()

    peer.script = script
    made = opened(kind, peer.base)
    response = await made.send(get())
    assert await response.read() == b"x"
    await made.close()
    with pytest.raises(Broken):
        await response.read()
    response.close()
    await until(lambda: peer.gone == peer.connections)
