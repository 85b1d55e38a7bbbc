"""Bytes on a connection of the gateway: a well-formed answer or a clean end, and it lives on."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.fuzz.target import Check, Target, chance, mutated
from tests.gateway_server import RunningGateway

BODY = b'{"model":"m","messages":[]}'
HEALTH = b"GET /headstart/healthz HTTP/1.1\r\nHost: x\r\n\r\n"
QUIET_S, LIMIT_S = 0.08, 15.0

METHOD = st.sampled_from(
    [b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"TRACE", b"CONNECT", b"get", b"", b"PRI"]
)
TARGET = st.sampled_from(
    [
        *(
            b"/v1/chat/completions",
            b"/v1/models",
            b"/headstart/healthz",
            b"//v1//models",
            b"*",
            b"/",
            b"",
        ),
        *(
            b"http://x/v1/models",
            b"/v1/%zz?model=%",
            b"/\xff",
            b"/a b",
            b"/#",
            b"/" + b"a" * 40_000,
        ),
        *(
            b"/v1/engines/a%2Fb/completions",
            b"/../../etc/passwd",
            b"/v1/models?" + b"&" * 5_000,
            b"ftp://x/",
        ),
    ]
)
VERSION = st.sampled_from(
    [b" HTTP/1.1"] * 6 + [b" HTTP/1.0", b" HTTP/2.0", b"", b" HTTP/1.1 x", b" http/1.1"]
)
HEADER = st.sampled_from(
    [
        *(b"Host: x", b"Host: x", b"Host: y", b"host:x", b"Host : x", b"Host: x\x00", b"Host: a b"),
        *(b"Content-Length: 27", b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: +5"),
        *(b"Content-Length: 99999999999999999999", b"Content-Length: 5, 5", b"Content-Length:"),
        *(
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding:\tchunked",
        ),
        *(b"Transfer-Encoding: xchunked", b"Content-Type: application/json", b"Connection: close"),
        *(
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Upgrade: h2c",
            b"Sec-WebSocket-Version: 13",
        ),
        *(
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            b"Expect: 100-continue",
            b"Expect: x",
            b" folded",
        ),
        *(
            b"X: " + b"y" * 9_000,
            b"X: y\r\n" * 300 + b"X: y",
            b"Accept-Encoding: gzip",
            b": x",
            b"X",
            b"X:\x7f",
        ),
        *(
            b"X-Headstart-Class: batch",
            b"X-Headstart-Class: x",
            b"Authorization: Bearer x",
            b"Cookie: token=a; b",
        ),
        *(
            b"Content-Type: multipart/form-data; boundary=b",
            b"Content-Encoding: gzip",
            b"X-Request-ID: \xff",
        ),
    ]
)
CHUNK = st.sampled_from(
    [
        *(
            b"1b\r\n" + BODY + b"\r\n",
            b"0\r\n\r\n",
            b"0\r\nX: y\r\n\r\n",
            b"5;x=y\r\nhello\r\n",
            b"-1\r\n",
        ),
        *(
            b"ffffffffffffffffff\r\n",
            b"5\nhello\n",
            b"5\r\nhell",
            b"0;" + b"x" * 9_000 + b"\r\n\r\n",
            b"zz\r\n",
        ),
        *(BODY, b"", b"\r\n", b"\x00", b"x" * 3_000, b"--b--\r\n"),
    ]
)
END = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b""])
REQUEST = st.builds(
    lambda method, target, version, headers, end, body: (
        method
        + b" "
        + target
        + version
        + b"\r\n"
        + b"".join(h + b"\r\n" for h in headers)
        + end
        + body
    ),
    METHOD,
    TARGET,
    VERSION,
    st.lists(HEADER, max_size=5),
    END,
    st.lists(CHUNK, max_size=2).map(b"".join),
)
GOOD = st.sampled_from(
    [
        HEALTH,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 27\r\n\r\n" + BODY,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1b\r\n"
        + BODY + b"\r\n0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
)  # fmt: skip
STREAM = st.lists(REQUEST | GOOD, min_size=1, max_size=3).map(b"".join)

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*")
_HEADER = re.compile(rb"[!#$%&'*+\-.0-9A-Z^_`a-z|~]+:[ \t]?[^\x00\r\n]*")


def talk(address: tuple[str, int], pieces: list[bytes]) -> bytes:
    """All that comes back, until the other side ends; after a quiet while ours is ended."""
    said = b""
    with socket.create_connection(address, timeout=LIMIT_S) as line:
        try:
            for piece in pieces:
                line.sendall(piece)
            line.settimeout(QUIET_S)
            is_open = True
            while True:
                try:
                    got = line.recv(65_536)
                except TimeoutError:
                    assert is_open, "the connection is not ended"
                    line.shutdown(socket.SHUT_WR)
                    line.settimeout(LIMIT_S)
                    is_open = False
                    continue
                if not got:
                    return said
                said += got
        except (ConnectionResetError, BrokenPipeError):
            return said


def check_answers(said: bytes, asked: bytes) -> None:
    """Answers that follow each other, the last of which may have been cut by our leaving."""
    while said:
        head, mark, rest = said.partition(b"\r\n\r\n")
        if not mark:
            return
        status, *headers = head.split(b"\r\n")
        match = _STATUS.fullmatch(status)
        assert match is not None, status
        fields: dict[bytes, bytes] = {}
        for header in headers:
            assert _HEADER.fullmatch(header) is not None, header
            name, _, value = header.partition(b":")
            if name.lower() in (b"content-length", b"transfer-encoding"):
                assert name.lower() not in fields, "framed twice"
                fields[name.lower()] = value.strip()
        assert len(fields) <= 1, "a length and chunks"
        code = int(match[1])
        if b"HEAD" in asked or code == 101:
            return  # what follows depends on which request it answers
        if code < 200 or code in (204, 304):
            said = rest
        elif b"content-length" in fields:
            said = rest[int(fields[b"content-length"]) :]
        elif fields:
            end = rest.find(b"0\r\n\r\n")
            said = rest[end + 5 :] if end >= 0 else b""
        else:
            return


@contextmanager
def _gateway() -> Iterator[Check]:
    models = [{"name": "m", "load_s": 0.0, "footprint_mb": 10}]
    with RunningEmulator(models) as emulator, RunningGateway(emulator.url) as gateway:
        gateway.routes({"m": Residency.HOT})
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        address = (host, int(port))

        def check(data: bytes) -> None:
            rng = chance(data)
            place = rng.randrange(len(data) + 1)
            pieces = [data] if rng.random() < 0.5 else [data[:place], data[place:]]
            check_answers(talk(address, pieces), data)
            well = talk(address, [HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
            assert well.startswith(b"HTTP/1.1 200 "), "the next caller is not served"

        yield check
        assert not any(gateway.service.in_flight().values()), "a request never ended"


EDGE = Target("edge", STREAM | mutated(STREAM), prepare=_gateway, short=25)
