"""As much HTTP over ASGI as the emulator needs: requests read whole, answers as LocalAI's."""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

GZIP_OVER_BYTES = 1024

SECURITY_HEADERS: Headers = [
    (
        b"Content-Security-Policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob: https:; "
        b"media-src 'self' data: blob:; font-src 'self' data:; "
        b"connect-src 'self' ws: wss: https: blob:; frame-src 'self' blob:; "
        b"worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; "
        b"frame-ancestors 'self'",
    ),
    (b"Referrer-Policy", b"strict-origin-when-cross-origin"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"X-Frame-Options", b"SAMEORIGIN"),
]

_encode_json = msgspec.json.Encoder().encode


class CallerLeft(Exception):
    """The connection closed before the body was complete."""


class Request:
    """One request. ``body`` is there once ``read_body`` has returned."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: str = scope["raw_path"].decode("latin-1")
        self.params: dict[str, str] = {}
        self.query: dict[str, str] = dict(
            parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        )
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.scheme: str = scope["scheme"]
        self.client: tuple[str, int] = tuple(scope.get("client") or ("", 0))
        self.body = b""
        self._receive = receive

    @property
    def content_type(self) -> str:
        """Media type without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int:
        """Declared length of the body; 0 where none is declared."""
        text = self.headers.get("content-length", "0")
        return int(text) if text.isdigit() else 0

    async def read_body(self, *, max_bytes: int) -> bool:
        """Read the body; False when it is longer than allowed. Raises CallerLeft."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > max_bytes:
                return False
            if not message.get("more_body", False):
                self.body = b"".join(chunks)
                return True

    async def discard_rest(self, *, max_bytes: int) -> None:
        """Take what the caller still sends, so that closing does not cost it our answer."""
        size = 0
        while size <= max_bytes:
            message = await self._receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return

    async def wait_for_leaving(self) -> None:
        """Return once the caller has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def base_url(self) -> str:
        """How the caller reaches us: ``Host``, or what a proxy says of it."""
        scheme = self.headers.get("x-forwarded-proto", self.scheme)
        host = self.headers.get("x-forwarded-host", self.headers.get("host", "localhost"))
        return f"{scheme}://{host}"


class Reply:
    """The answer to one request."""

    def __init__(self, request: Request, send: Send, *, may_compress: bool) -> None:
        self._request = request
        self._send = send
        self._may_compress = may_compress
        self.headers: Headers = [*SECURITY_HEADERS]
        if request.headers.get("origin"):
            self.headers.append((b"Access-Control-Allow-Origin", b"*"))
        if may_compress:
            self.headers.append((b"Vary", b"Accept-Encoding"))
        self.headers.append((b"Vary", b"Origin"))
        self.status: int | None = None
        self.correlation_id = ""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited when all of a whole answer is out, before the connection may close."""

    def add_header(self, name: str, value: str) -> None:
        """One more header; before the answer starts."""
        self.headers.append((name.encode("latin-1"), value.encode("latin-1")))

    async def json(self, status: int, body: object) -> None:
        """A whole JSON answer, with the line feed that LocalAI ends it with."""
        await self.whole(status, _encode_json(body) + b"\n", "application/json")

    async def whole(self, status: int, body: bytes, content_type: str | None) -> None:
        """A whole answer, compressed where LocalAI would."""
        wanted = "gzip" in self._request.headers.get("accept-encoding", "")
        if self._may_compress and wanted and len(body) > GZIP_OVER_BYTES:
            body = gzip.compress(body, compresslevel=1)
            self.add_header("Content-Encoding", "gzip")
        if content_type is not None:
            self.add_header("Content-Type", content_type)
        self.add_header("Content-Length", str(len(body)))
        await self._start(status)
        shown = b"" if self._request.method == "HEAD" else body
        if self.before_end is not None:
            await self.chunk(shown)
            shown = b""
            await self.before_end()
        await self._send({"type": "http.response.body", "body": shown})

    async def empty(self, status: int) -> None:
        """An answer without a body."""
        await self._start(status)
        await self._send({"type": "http.response.body", "body": b""})

    async def begin_stream(self, content_type: str) -> None:
        """Send the status line and headers of a stream; what follows goes out at once."""
        if self.status is not None:
            return
        self.add_header("Cache-Control", "no-cache")
        self.add_header("Connection", "keep-alive")
        self.add_header("Content-Type", content_type)
        await self._start(200)

    async def chunk(self, body: bytes) -> None:
        """One piece of a stream."""
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        """The stream is complete."""
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": self.headers})


def json_text(value: object) -> str:
    """Compact JSON, as in an event of a stream."""
    return _encode_json(value).decode()


def read_json(body: bytes) -> Mapping[str, Any] | None:
    """The object of a body; None when it is no JSON object."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None
