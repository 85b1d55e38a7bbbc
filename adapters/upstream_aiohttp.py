"""LocalAI's data path over aiohttp: implements ``contracts.upstream.Upstream``.

Bytes are relayed as they are: nothing is decompressed, no header is added, no redirect is
followed, and there is no time limit but that of connecting.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from adapters.upstream_tunnel import SocketTunnel, open_socket_tunnel
from contracts.errors import Invalid
from contracts.upstream import Broken, OutgoingRequest, RawHeaders, Unanswered, Unreachable

KEEPALIVE_REAL_S = 15.0
"""Idle connections are kept so long: shorter than servers do, so that none is used stale."""

_SKIPPED_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_MAX_HEAD_BYTES = 65_536
_READ_BYTES = 65_536
_LARGE_BODY_BYTES = 1_048_576


class AiohttpUpstream:
    """One LocalAI.

    Parameters
    ----------
    url : str
        Its address, ``http://`` or ``https://``, with a path in front where it has one.
    connect_timeout_s : float
        Real seconds that a connection may take.
    """

    def __init__(self, url: str, *, connect_timeout_s: float = 5.0) -> None:
        self._base = url.rstrip("/")
        try:
            parsed = URL(self._base)
        except ValueError:
            parsed = URL()
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise Invalid(f'"{url}" is no address of a LocalAI: it must begin with http://')
        self._host, self._is_tls = parsed.host, parsed.scheme == "https"
        self._port = parsed.port or (443 if self._is_tls else 80)
        self._prefix = parsed.raw_path.rstrip("/")
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: OutgoingRequest) -> AiohttpResponse:
        """Send, and wait for the answer's head; see ``contracts.upstream.Upstream``."""
        session = self._session or self._open_session()
        headers: CIMultiDict[str] = CIMultiDict(
            (_text(name), _text(value)) for name, value in request.headers
        )
        body = request.body
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            if len(body) > _LARGE_BODY_BYTES:
                body = _pieces(body)
        try:
            response = await session.request(
                request.method,
                URL(self._base + request.target.decode("ascii"), encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                timeout=self._timeout(request.connect_timeout_s),
            )
        except aiohttp.ServerTimeoutError as error:
            raise Unanswered("connecting took too long") from error
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(_reason(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Broken(_reason(error)) from error
        return AiohttpResponse(response)

    async def open_tunnel(self) -> SocketTunnel:
        """A fresh connection of its own, for bytes that are relayed as they are."""
        return await open_socket_tunnel(
            self._host,
            self._port,
            is_tls=self._is_tls,
            connect_timeout_s=self._connect_timeout_s,
            prefix=self._prefix,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _timeout(self, connect_s: float | None) -> aiohttp.ClientTimeout:
        limit_s = self._connect_timeout_s if connect_s is None else connect_s
        return aiohttp.ClientTimeout(total=None, sock_connect=limit_s)

    def _open_session(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEPALIVE_REAL_S, ssl=ssl.create_default_context()
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=_MAX_HEAD_BYTES,
            max_line_size=_MAX_HEAD_BYTES,
            read_bufsize=_READ_BYTES,
            requote_redirect_url=False,
            skip_auto_headers=_SKIPPED_HEADERS,
            timeout=self._timeout(None),
            trust_env=False,
        )
        return self._session


class AiohttpResponse:
    """An answer whose head has come."""

    __slots__ = ("_put_back", "_response")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._put_back = b""

    @property
    def status(self) -> int:
        """Its status."""
        return self._response.status

    @property
    def headers(self) -> RawHeaders:
        """As they came."""
        return self._response.raw_headers

    @property
    def is_complete(self) -> bool:
        """Whether all of it was read."""
        return not self._put_back and self._response.content.at_eof()

    async def read(self) -> bytes:
        """The next bytes as soon as there are any, b"" at the end."""
        if self._put_back:
            data, self._put_back = self._put_back, b""
            return data
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            # It raises the last of these for a connection that the session has closed.
            raise Broken(_reason(error)) from error

    def rest(self) -> bytes | None:
        """Not known here without waiting: it is read on."""
        return None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Hand each piece on as soon as it comes."""
        while data := await self.read():
            if not sink(data):
                self._put_back = data
                return

    def close(self) -> None:
        """Let go of it; before its end this cuts the connection."""
        self._response.close()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(view), _READ_BYTES):
        yield bytes(view[start : start + _READ_BYTES])


def _text(value: bytes) -> str:
    """As aiohttp wants it: it writes UTF-8, so that is what valid UTF-8 is read as."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _reason(error: BaseException) -> str:
    """For people, and without the address, which is not every caller's business."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name could not be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection ended in the middle of the answer"
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return "what came back was no HTTP"
    return "the connection was closed"
