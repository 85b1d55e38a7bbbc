"""The way to LocalAI over aiohttp: what it raises, and what it never adds."""

from __future__ import annotations

import asyncio
import socket

import pytest

from adapters.upstream_aiohttp import AiohttpUpstream
from contracts.errors import Invalid
from contracts.upstream import Broken, OutgoingRequest, Unanswered, Unreachable

pytestmark = pytest.mark.integration

GET = OutgoingRequest(method="GET", target=b"/x?y=%20", headers=((b"host", b"h"),))


@pytest.fixture
async def upstream(kit):
    upstream = AiohttpUpstream(kit.localai.url, connect_timeout_s=0.3)
    yield upstream
    await upstream.close()


@pytest.mark.parametrize("url", ["", "localai:8081", "ftp://x", "http://"])
def test_an_address_that_is_none(url):
    with pytest.raises(Invalid):
        AiohttpUpstream(url)


async def test_nothing_is_added_but_what_frames_the_body(kit, upstream):
    for body, framing in [
        (None, []),
        (b"abc", [("Content-Length", "3")]),
        (b"x" * 2_000_000, [("Content-Length", "2000000")]),
    ]:
        request = OutgoingRequest(
            method="GET" if body is None else "POST",
            target=b"/x?y=%20",
            headers=((b"host", b"h"), (b"x-utf8", "ü".encode()), (b"x-latin", b"\xe9")),
            body=body,
        )
        response = await upstream.send(request)
        assert response.status == 200
        assert await response.read() == b'{"ok": true}'
        assert response.is_complete
        assert await response.read() == b""
        response.close()
        seen = kit.localai.seen[-1]
        assert seen.target == "/x?y=%20"
        assert seen.body == (body or b"")
        known = [pair for pair in seen.headers if pair[0].lower() not in ("x-utf8", "x-latin")]
        assert sorted(known, key=str) == sorted([("host", "h"), *framing], key=str)
        assert seen.one("x-utf8") == "ü".encode().decode("latin-1")


async def test_connections_are_kept(kit, upstream):
    for _ in range(5):
        response = await upstream.send(GET)
        while await response.read():
            pass
    assert len(kit.localai._writers) == 1


async def test_under_a_path_of_its_own(kit):
    upstream = AiohttpUpstream(kit.localai.url + "/behind/")
    response = await upstream.send(GET)
    response.close()
    assert kit.localai.seen[0].target == "/behind/x?y=%20"
    await kit.localai.stop()
    await kit.localai.start()
    tunnel = await upstream.open_tunnel()
    assert tunnel.prefix == b"/behind"
    tunnel.close()
    await upstream.close()


async def test_nobody_there(kit, upstream):
    await kit.localai.stop()
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.send(GET)
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.open_tunnel()


async def test_a_name_that_is_not_known():
    upstream = AiohttpUpstream("http://localai.invalid:1")
    with pytest.raises(Unreachable):
        await upstream.send(GET)
    await upstream.close()


async def test_a_peer_that_does_not_speak_tls(kit):
    url = kit.localai.url.replace("http:", "https:")
    upstream = AiohttpUpstream(url, connect_timeout_s=0.2)
    with pytest.raises(Unanswered):
        await upstream.send(GET)
    with pytest.raises(Unanswered):
        await upstream.open_tunnel()
    await upstream.close()


async def test_a_host_that_takes_no_connection():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # Its queue is full, so that the next connection is neither taken nor refused.
        held = [socket.socket() for _ in range(4)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        upstream = AiohttpUpstream(f"http://127.0.0.1:{port}", connect_timeout_s=0.2)
        with pytest.raises(Unanswered):
            await upstream.send(GET)
        with pytest.raises(Unanswered):
            await upstream.open_tunnel()
        await upstream.close()
        for one in held:
            one.close()


async def test_a_tunnel_that_breaks(kit, upstream):
    async def script(seen, writer):
        writer.write(b"hello")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    kit.localai.script = script
    tunnel = await upstream.open_tunnel()
    await tunnel.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await tunnel.read() == b"hello"

    async def use() -> None:
        while await tunnel.read():
            pass
        for _ in range(3):
            await tunnel.write(b"x")
            await asyncio.sleep(0.02)

    with pytest.raises(Broken):
        await use()
    tunnel.close()
