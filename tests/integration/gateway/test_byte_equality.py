"""Whatever LocalAI answers comes through unchanged: generated answers, over real sockets.

The upstream is no HTTP server but a socket that sends what was generated; the caller is no
HTTP client but a socket that reads strictly. Nothing between them may be changed but the
framing, hop-by-hop headers, and what docs/http-edge.md says is ours.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from contracts.config import BalancingConfig
from tests.gateway_server import RunningGateway

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXAMPLES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 1_000
PATIENCE_S = 10.0
BODILESS = (204, 304)
OURS = frozenset(
    {
        b"x-request-id",
        b"x-headstart-cold",
        b"x-headstart-decision",
        b"x-headstart-model",
        b"x-headstart-queue-ms",
        b"x-accel-buffering",
    }
)
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes = b""

    @property
    def is_inference(self) -> bool:
        return self.method == "POST"


@dataclass(frozen=True)
class Answer:
    """One answer: ``pieces`` are sent one after the other, framed as ``framing`` says.

    They are what was ``cut``, each repeated as many ``times``.
    """

    status: int
    reason: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    cut: tuple[bytes, ...]
    framing: str
    times: int = 1
    extension: bytes = b""
    trailers: bytes = b""
    interim: bytes = b""
    lockstep: bool = False

    @property
    def pieces(self) -> tuple[bytes, ...]:
        return tuple(piece * self.times for piece in self.cut)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def head(self, *, has_body: bool) -> bytes:
        lines = [b"HTTP/1.1 %d %s" % (self.status, self.reason)]
        lines.extend(name + b": " + value for name, value in self.headers)
        if self.framing == "chunked" and has_body:
            lines.append(b"Transfer-Encoding: chunked")
        elif self.framing == "length":
            lines.append(b"Content-Length: %d" % len(self.body))
        if self.framing == "close":
            lines.append(b"Connection: close")
        return self.interim + b"\r\n".join(lines) + b"\r\n\r\n"

    def framed(self, piece: bytes) -> bytes:
        if self.framing != "chunked":
            return piece
        return b"%x%s\r\n%s\r\n" % (len(piece), self.extension, piece) if piece else b""


@dataclass
class Case:
    answer: Answer
    method: str
    got: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lost_patience: bool = False


class GeneratedUpstream:
    """Sends the answer that its one present case has, on whatever connection it is asked."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.case: Case | None = None
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type] # callables
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.add(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as incoming:
            while True:
                line = incoming.readline()
                if not line:
                    break
                length = 0
                while (header := incoming.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                incoming.read(length)
                assert self.case is not None
                if not self._answer(connection, self.case):
                    break
        self._connections.discard(connection)

    def _answer(self, connection: socket.socket, case: Case) -> bool:
        answer = case.answer
        has_body = case.method != "HEAD" and answer.status not in BODILESS
        connection.sendall(answer.head(has_body=has_body))
        if has_body:
            for piece in answer.pieces:
                connection.sendall(answer.framed(piece))
                if answer.lockstep and piece and not case.got.acquire(timeout=PATIENCE_S):
                    case.lost_patience = True
                    return False
            if answer.framing == "chunked":
                connection.sendall(b"0\r\n" + answer.trailers + b"\r\n")
        return answer.framing != "close"


@pytest.fixture(scope="module")
def upstream() -> Iterator[GeneratedUpstream]:
    localai = GeneratedUpstream()
    yield localai
    localai.close()


@pytest.fixture(scope="module")
def gateway(upstream: GeneratedUpstream) -> Iterator[RunningGateway]:
    # Errors come at random here, and three in a row would shut the model off.
    calm = BalancingConfig(circuit_failures=0)
    with RunningGateway(upstream.url, balancing=calm) as running:
        yield running


@dataclass(frozen=True)
class Got:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    pieces: tuple[bytes, ...]


def ask(port: int, request: Request, case: Case) -> Got:
    """Send a request and read the answer, telling the upstream of each piece that came."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        body = request.body
        connection.sendall(
            f"{request.method} {request.path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
            f"Accept-Encoding: gzip, br, zstd\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        with connection.makefile("rb") as incoming:
            status_line = incoming.readline()
            assert status_line.startswith(b"HTTP/1.1 ")
            assert status_line.endswith(b"\r\n")
            headers = []
            while (line := incoming.readline()) != b"\r\n":
                assert line.endswith(b"\r\n"), "the head was cut"
                name, colon, value = line[:-2].partition(b": ")
                assert colon
                headers.append((name, value))
            status = int(status_line[9:12])
            pieces = tuple(_pieces(incoming, headers, request.method, status, case))
            assert incoming.read() == b"", "more came than was announced"
    return Got(status, tuple(headers), b"".join(pieces), pieces)


def _pieces(
    incoming: IO[bytes],
    headers: list[tuple[bytes, bytes]],
    method: str,
    status: int,
    case: Case,
) -> Iterator[bytes]:
    if method == "HEAD" or status in BODILESS:
        return
    framing = [(name, value) for name, value in headers if name in FRAMING - {b"connection"}]
    assert len(framing) == 1, "exactly one header says where the body ends"
    [(name, value)] = framing
    if name == b"content-length":
        yield incoming.read(int(value))
        return
    assert value == b"chunked"
    while True:
        size = int(incoming.readline().rstrip(b"\r\n"), 16)
        piece = incoming.read(size)
        assert incoming.readline() == b"\r\n"
        if not size:
            return
        case.got.release()
        yield piece


TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12).map(lambda text: text.encode())
NAME = st.one_of(
    st.sampled_from(
        [
            b"Set-Cookie",
            b"set-cookie",
            b"ETag",
            b"Server",
            b"Date",
            b"Cache-Control",
            b"Vary",
            b"Access-Control-Allow-Origin",
            b"X-Accel-Buffering",
            b"Location",
            b"Retry-After",
            b"X-Correlation-ID",
            b"Content-Security-Policy",
            b"Link",
            b"Content-Disposition",
        ]
    ),
    TOKEN.map(lambda token: b"X-" + token),
)
BYTE = st.sampled_from([*range(0x21, 0x7F), *range(0x80, 0x100), 0x20, 0x09])
VALUE = st.lists(BYTE, max_size=40).map(lambda values: bytes(values).strip(b" \t"))
CONTENT_TYPE = st.sampled_from(
    [
        b"text/event-stream",
        b"text/event-stream; charset=utf-8",
        b"application/json",
        b"application/x-ndjson",
        b"audio/wav",
        b"text/html",
        b"",
    ]
)
ENCODING = st.sampled_from([b"", b"", b"identity", b"gzip", b"br", b"zstd", b"deflate"])
LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINE = st.one_of(
    st.text(max_size=20).map(lambda text: b"data: " + text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            b": a comment",
            b":",
            b"event: message_delta",
            b"data:",
            b"id: 7",
            b"retry: 10",
            b"data: [DONE]",
            'data: {"choices":[{"delta":{"content":"grüße 🚀日本"}}]}'.encode(),
            b'data:{"choices":[{"finish_reason":"stop","delta":{}}],"usage":{"prompt_tokens":1}}',
            b'{"message":{"content":"x"},"done":false}',
        ]
    ),
)
EVENTS = st.lists(st.tuples(LINE, LINE_END, st.booleans()), max_size=12).map(
    lambda lines: b"".join(line + end * (1 + twice) for line, end, twice in lines)
)
BODY = st.one_of(EVENTS, st.binary(max_size=2_000), st.just(b""))


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    body = draw(BODY)
    cuts = sorted(draw(st.lists(st.integers(0, max(1, len(body))), max_size=8)))
    places = [0, *(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = tuple(body[start:end] for start, end in pairwise(places))
    headers = draw(st.lists(st.tuples(NAME, VALUE), max_size=8))
    for name, value in (
        (b"Content-Type", draw(CONTENT_TYPE)),
        (b"Content-Encoding", draw(ENCODING)),
    ):
        if value:
            headers.append((name, value))
    framing = draw(st.sampled_from(["length", "chunked", "chunked", "close"]))
    return Answer(
        status=draw(
            st.sampled_from([200, 200, 200, 201, 204, 206, 304, 400, 404, 418, 503, 599, 299])
        ),
        reason=draw(st.sampled_from([b"OK", b"", b"Not At All", b"I'm a teapot"])),
        headers=tuple(draw(st.permutations(headers))),
        cut=pieces,
        framing=framing,
        times=draw(st.sampled_from([1, 1, 1, 1, 400])),
        extension=draw(st.sampled_from([b"", b"", b";a=b", b';q="x"'])),
        trailers=draw(
            st.sampled_from([b"", b"", b"X-Check: 1\r\n", b"Server-Timing: a\r\nX: y\r\n"])
        ),
        interim=draw(
            st.sampled_from([b"", b"", b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"])
        ),
        lockstep=framing != "length" and draw(st.booleans()),
    )


REQUEST = st.sampled_from(
    [
        Request("GET", "/v1/models"),
        Request("GET", "/any/thing%2Fhere?x=%20"),
        Request("HEAD", "/v1/models"),
        Request("OPTIONS", "/v1/models"),
        Request("DELETE", "/models/x"),
        Request("POST", "/models/apply", b"{}"),
        Request("POST", "/v1/chat/completions", b'{"model":"m","stream":true}'),
        Request("POST", "/v1/messages", b'{"model":"m","stream":true}'),
        Request("POST", "/v1/responses", b'{"model":"m"}'),
        Request("POST", "/api/chat", b'{"model":"m"}'),
        Request("POST", "/v1/embeddings", b'{"model":"m"}'),
        Request("POST", "/tts", b'{"model":"m"}'),
    ]
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(answer=answers(), request_=REQUEST)
def test_every_answer_comes_through_unchanged(
    gateway: RunningGateway, upstream: GeneratedUpstream, answer: Answer, request_: Request
) -> None:
    event(answer.framing)
    event(f"{request_.method}")
    event(f"status {answer.status}")
    case = Case(answer, request_.method)
    upstream.case = case
    port = urlsplit(gateway.url).port
    assert port is not None
    got = ask(port, request_, case)
    assert not case.lost_patience, "a piece was held back until the next one came"
    assert got.status == answer.status
    assert kept(got.headers, request_) == kept(lowered(answer.headers), request_)
    has_body = request_.method != "HEAD" and answer.status not in BODILESS
    assert got.body == (answer.body if has_body else b"")
    if answer.framing == "length":
        assert (b"content-length", b"%d" % len(answer.body)) in got.headers
    if answer.lockstep and has_body and answer.times == 1:
        assert got.pieces == tuple(piece for piece in answer.pieces if piece)
    if is_event_stream(answer):
        assert [value for name, value in got.headers if name == b"x-accel-buffering"] == [b"no"]


def lowered(headers: tuple[tuple[bytes, bytes], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.lower(), value) for name, value in headers)


def kept(headers: tuple[tuple[bytes, bytes], ...], request: Request) -> list[tuple[bytes, bytes]]:
    """What must be the same on both sides, in the same order."""
    left_out = FRAMING | (OURS if request.is_inference else {b"x-accel-buffering"})
    return [(name, value) for name, value in headers if name not in left_out]


def is_event_stream(answer: Answer) -> bool:
    types = [value for name, value in answer.headers if name == b"Content-Type"]
    return bool(types) and types[0].startswith(b"text/event-stream")
