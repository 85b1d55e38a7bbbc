"""Whatever a caller writes into names, headers and addresses stays one request to our LocalAI."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator

import pytest

from contracts.config import NodeConfig
from contracts.ids import NodeId
from contracts.world import Residency
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"X-Headstart-Backend: forged\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n{}"
)
EVIL = ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "a\x00b", "\u2028",
        "../../evil", "http://127.0.0.1:1/evil", "a b\tc", "\ud83d\ude00", "x" * 300]  # fmt: skip


class Recorder:
    """A LocalAI that keeps every byte; ``heads`` are the requests that it saw."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        assert self._ready.wait(20.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20.0)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if length:
                    await reader.readexactly(int(length[1]))
                self.heads.append(head)
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def asked(self, path: str) -> list[bytes]:
        """Requests of callers, our own questions left out."""
        return [head for head in self.heads if head.split(b" ")[1].startswith(path.encode())]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def gateway(recorder: Recorder) -> Iterator[RunningGateway]:
    node = NodeConfig(node=NodeId("localai"), url=recorder.url, api_key="the-nodes-own-key")
    with RunningGateway(recorder.url, node=node) as running:
        running.routes({"known": Residency.HOT})
        yield running


async def talk(gateway: RunningGateway, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    writer.write(request)
    async with asyncio.timeout(20.0):
        answer = await reader.read()
    writer.close()
    return answer


def post(body: bytes, *headers: bytes, target: bytes = b"/v1/chat/completions") -> bytes:
    lines = [b"POST " + target + b" HTTP/1.1", b"Connection: close",
             b"Content-Length: %d" % len(body), *headers]  # fmt: skip
    if not any(line.lower().startswith(b"host:") for line in headers):
        lines.insert(1, b"Host: x")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def header_lines(message: bytes) -> list[bytes]:
    return [line.lower() for line in message.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]]


@pytest.mark.parametrize("name", EVIL)
async def test_a_name_makes_no_header_and_no_request(
    gateway: RunningGateway, recorder: Recorder, name: str
):
    before = len(recorder.asked("/v1/chat"))
    answer = await talk(gateway, post(json.dumps({"model": name, "messages": []}).encode()))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not [line for line in header_lines(answer) if line.startswith(b"x-evil")]
    assert len(recorder.asked("/v1/chat")) - before <= 1
    for head in recorder.heads:
        assert not [line for line in header_lines(head) if line.startswith(b"x-evil")]
        assert b"/evil" not in head.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "value", [b"a\x0bb", b"<script>", b"\xff\xfe", b"a" * 5_000, b"a;b,c", b'"quoted"']
)
async def test_what_is_echoed_of_a_request_id_is_printable_and_short(
    gateway: RunningGateway, value: bytes
):
    answer = await talk(gateway, post(b'{"model": "known"}', b"X-Request-ID: " + value))
    echoed = [line for line in header_lines(answer) if line.startswith(b"x-request-id:")]
    assert len(echoed) <= 1
    for line in echoed:
        assert re.fullmatch(rb"x-request-id: [\x20-\x7e]{1,128}", line), line


OURS = [b"X-Headstart-Key-Name: root", b"X-Headstart-Node: other", b"X-Headstart-Preempt: anytime",
        b"X-Headstart-Whatever: 1"]  # fmt: skip
HOPS = [b"Keep-Alive: timeout=1", b"Proxy-Authorization: Basic eDp5", b"TE: trailers",
        b"Proxy-Connection: close", b"Upgrade: h2c", b"HTTP2-Settings: AAAA"]  # fmt: skip


@pytest.mark.parametrize("header", [*OURS, *HOPS])
async def test_headers_of_ours_and_of_one_hop_do_not_go_on(
    gateway: RunningGateway, recorder: Recorder, header: bytes
):
    before = len(recorder.asked("/v1/chat"))
    answer = await talk(gateway, post(b'{"model": "known"}', header))
    seen = recorder.asked("/v1/chat")[before:]
    assert len(seen) <= 1
    name = header.partition(b":")[0].lower() + b":"
    for head in seen:
        assert not [line for line in header_lines(head) if line.startswith(name)]
    if seen:
        assert answer.startswith(b"HTTP/1.1 200")


async def test_an_answers_hop_headers_and_forged_words_of_ours_do_not_come_back(
    gateway: RunningGateway,
):
    answer = await talk(gateway, post(b'{"model": "known"}'))
    lines = header_lines(answer)
    assert not [line for line in lines if line.startswith((b"x-hop:", b"keep-alive:"))]
    assert b"x-headstart-backend: forged" not in lines


MOVES: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "host": (b"/v1/chat/completions", (b"Host: 169.254.169.254",)),
    "absolute address": (b"http://169.254.169.254/v1/chat/completions", (b"Host: x",)),
    "forwarded": (b"/v1/chat/completions", (b"X-Forwarded-Host: 169.254.169.254",
                                            b"Forwarded: host=169.254.169.254")),
    "rewrite": (b"/v1/chat/completions", (b"X-Original-URL: http://169.254.169.254/",
                                          b"X-Rewrite-URL: /etc/passwd")),
    "node": (b"/v1/chat/completions", (b"X-Headstart-Backend: http://169.254.169.254",)),
    "query": (b"/v1/chat/completions?url=http://169.254.169.254&node=other", ()),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES)
async def test_no_request_moves_where_it_goes(
    gateway: RunningGateway, recorder: Recorder, move: str
):
    target, headers = MOVES[move]
    before = len(recorder.asked("/v1/chat"))
    answer = await talk(gateway, post(b'{"model": "known"}', *headers, target=target))
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    (head,) = recorder.asked("/v1/chat")[before:]
    assert head.split(b" ")[1].startswith(b"/v1/chat/completions")


@pytest.mark.parametrize(
    "target",
    [b"/v1/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/..%2f..%2fetc/passwd",
     b"/%252e%252e%252fetc/passwd", b"//169.254.169.254/x", b"/\\169.254.169.254/x"],
)  # fmt: skip
async def test_odd_paths_pass_letter_by_letter_or_not_at_all(
    gateway: RunningGateway, recorder: Recorder, target: bytes
):
    before = len(recorder.heads)
    await talk(gateway, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    lines = [head.split(b"\r\n")[0] for head in recorder.heads[before:]]
    theirs = [line for line in lines if b"passwd" in line or b"169.254" in line]
    assert theirs in ([], [b"GET " + target + b" HTTP/1.1"])
