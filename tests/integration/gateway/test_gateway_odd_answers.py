"""Answers of LocalAI, or of what stands before it, that two readers could read differently."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from contracts.events import RequestFailed

pytestmark = pytest.mark.integration

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "length and chunks": CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "a negative length": OK + b"Content-Length: -2\r\n\r\nab",
    "a length that is none": OK + b"Content-Length: 2x\r\n\r\nab",
    "a folded header": OK + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a zero byte in a header": OK + b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a bare carriage return": OK + b"X-A: a\rX-B: c\r\nContent-Length: 0\r\n\r\n",
    "a space before a colon": OK + b"Content-Length : 2\r\n\r\nab",
    "no version": b"ICY 200 OK\r\n\r\n",
    "a status that is none": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "an endless head": OK + b"X-A: " + b"a" * 2_000_000,
}


@pytest.mark.parametrize("answer", REFUSED)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions"])
async def test_an_answer_without_one_meaning_is_502(kit, answer, path):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(REFUSED[answer])
        writer.close()

    kit.localai.script = script
    with capture_logs() as logs:
        got = await ask(gateway.port, path)
    assert got.startswith(b"HTTP/1.1 502 ")
    assert b'"upstream_error"' in got
    assert {line["event"] for line in logs} <= {"localai_unreachable", "circuit_opened"}
    failed = [event for event in await gateway.told() if isinstance(event, RequestFailed)]
    assert len(failed) == (path == "/v1/completions")


CUT = {
    "a chunk that is too short": CHUNKED + b"\r\n5\r\nab",
    "a chunk without a size": CHUNKED + b"\r\n2\r\nab\r\nxyz\r\n",
    "a chunk that runs on": CHUNKED + b"\r\n2\r\nabcd\r\n0\r\n\r\n",
    "a length that is not met": OK + b"Content-Length: 5\r\n\r\nab",
}


@pytest.mark.parametrize("answer", CUT)
async def test_an_answer_that_turns_bad_never_looks_whole(kit, answer):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(CUT[answer])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.close()

    kit.localai.script = script
    got = await ask(gateway.port, "/v1/completions")
    head, _, body = got.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200"):
        assert b"0\r\n\r\n" not in body
        length = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        assert not length or len(body) < int(length[0].split(b":")[1])
    else:
        assert head.startswith(b"HTTP/1.1 502")
    (failed,) = [event for event in await gateway.told() if isinstance(event, RequestFailed)]
    assert failed.error == "upstream_error"


async def test_what_follows_an_answer_is_not_the_next_ones(kit):
    """Bytes behind an answer on a kept connection would else answer somebody else."""
    gateway = await kit.start()

    async def script(seen, writer):
        body = seen.target.encode()
        writer.write(kit.reply(body) + kit.reply(b"for somebody else"))

    kit.localai.script = script
    for number in range(5):
        got = await ask(gateway.port, f"/{number}")
        assert got.endswith(b"\r\n\r\n/%d" % number)


async def ask(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    method = "GET" if path != "/v1/completions" else "POST"
    body = b'{"model":"m"}' if method == "POST" else b""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {len(body)}"
    )
    writer.write(head.encode() + b"\r\n\r\n" + body)
    async with asyncio.timeout(10):
        got = await reader.read()
    writer.close()
    return got
