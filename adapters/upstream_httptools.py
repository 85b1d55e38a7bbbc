"""LocalAI's data path over plain HTTP: implements ``contracts.upstream.Upstream``.

A small pooled client on llhttp: 11 µs for a small request, where aiohttp's costs 50. Bytes are
relayed as they are: nothing is decompressed, no header is added but those that frame the body
(and ``Host`` where there is none), no redirect is followed, trailers and interim answers are
left out, and there is no time limit but that of connecting.

A kept connection may have been closed by LocalAI just before it is used. So the kernel is asked
first, and a request that still met such a connection is sent once more on a fresh one, if

- not a byte of an answer came, and the body can be sent again (it is bytes, or there is none);
- and either the method is idempotent (RFC 9110, 9.2.2), or the request carries an idempotency
  key, or the other side's kernel is known not to have seen a byte of it. Else a POST is not
  repeated: it may be running.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from adapters.upstream_answer import HttpAnswer
from adapters.upstream_connection import HttpConnection
from adapters.upstream_framing import request_head
from adapters.upstream_tunnel import SocketTunnel, open_socket_tunnel, unreachable_reason
from contracts.errors import Invalid
from contracts.upstream import Broken, OutgoingRequest, Unanswered, Unreachable

KEEPALIVE_REAL_S = 15.0
"""Idle connections are kept so long at most: shorter than servers do."""

MAX_IDLE = 256
"""Idle connections beyond this are closed. Those in use are as many as requests that run."""

_TRUSTED_IDLE_REAL_S = 0.02
"""A connection that was used so lately is taken without asking the kernel."""

_MIN_IDLE_REAL_S = 0.005
_IDLE_GROWTH = 1.005
"""LocalAI, or what stands before it, may keep connections for a shorter time than we do. When
it closes an idle one, ours are kept for half of that time from then on, and for a little longer
again with each request: so one restart is soon forgotten, and a short limit soon found again."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


class HttptoolsUpstream:
    """One LocalAI.

    Parameters
    ----------
    url : str
        Its address, ``http://``, with a path in front where it has one.
    connect_timeout_s : float
        Real seconds that a connection may take.

    Attributes
    ----------
    repeated : int
        Requests that were sent once more, since a kept connection was closed under them.
    """

    def __init__(self, url: str, *, connect_timeout_s: float = 5.0) -> None:
        self._host, self._port, self._prefix = _address(url)
        self._default_host = _host_header(self._host, self._port)
        self._connect_timeout_s = connect_timeout_s
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._idle_limit_s = KEEPALIVE_REAL_S
        self._sweep: asyncio.TimerHandle | None = None
        self.repeated = 0

    async def send(self, request: OutgoingRequest) -> HttpAnswer:
        """Send, and wait for the answer's head; see ``contracts.upstream.Upstream``."""
        head, length = request_head(request, prefix=self._prefix, host=self._default_host)
        connection = self._take()
        if connection is not None:
            try:
                return await connection.exchange(
                    head, request.body, length=length, method=request.method
                )
            except Broken:
                if not _may_repeat(request, connection):
                    raise
                self.repeated += 1
        limit_s = request.connect_timeout_s
        connection = await self._connect(self._connect_timeout_s if limit_s is None else limit_s)
        return await connection.exchange(head, request.body, length=length, method=request.method)

    async def open_tunnel(self) -> SocketTunnel:
        """A fresh connection of its own, for bytes that are relayed as they are."""
        return await open_socket_tunnel(
            self._host,
            self._port,
            is_tls=False,
            connect_timeout_s=self._connect_timeout_s,
            prefix=self._prefix.decode("ascii"),
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for connection in tuple(self._open):
            connection.cut(Broken("the gateway stops"))
        # Let the loop take them down before it ends itself.
        await asyncio.sleep(0)

    def _take(self) -> HttpConnection | None:
        """The connection that was used last, if the other side still holds it."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            age_s = now_s - connection.idle_since_s
            if age_s <= _TRUSTED_IDLE_REAL_S and connection.is_open:
                return connection
            if age_s <= self._idle_limit_s and connection.is_usable():
                return connection
            connection.cut(Broken("it was idle for too long"))
        return None

    async def _connect(self, limit_s: float) -> HttpConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_s):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(loop, on_free=self._keep, on_lost=self._forget),
                    self._host,
                    self._port,
                )
        except TimeoutError:
            raise Unanswered("connecting took too long") from None
        except OSError as error:
            raise Unreachable(unreachable_reason(error)) from error
        self._open.add(connection)
        return connection

    def _keep(self, connection: HttpConnection) -> None:
        self._idle.append(connection)
        self._idle_limit_s = min(KEEPALIVE_REAL_S, self._idle_limit_s * _IDLE_GROWTH)
        if len(self._idle) > MAX_IDLE:
            self._idle.pop(0).cut(Broken("there are enough idle connections"))
        if self._sweep is None:
            self._sweep = connection.loop.call_later(self._idle_limit_s, self._close_old)

    def _forget(self, connection: HttpConnection) -> None:
        """It is gone. One that LocalAI closed while it was idle says how long it keeps them."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            idle_s = connection.loop.time() - connection.idle_since_s
            self._idle_limit_s = max(_MIN_IDLE_REAL_S, min(self._idle_limit_s, idle_s / 2))

    def _close_old(self) -> None:
        """Close what was idle for too long; look again when the next one is due."""
        self._sweep = None
        if not self._idle:
            return
        loop = self._idle[0].loop
        now_s = loop.time()
        # The one that has been idle longest stands first.
        while self._idle and now_s - self._idle[0].idle_since_s >= self._idle_limit_s:
            self._idle.pop(0).cut(Broken("it was idle for too long"))
        if self._idle:
            due_s = self._idle[0].idle_since_s + self._idle_limit_s
            self._sweep = loop.call_at(due_s, self._close_old)


def _may_repeat(request: OutgoingRequest, connection: HttpConnection) -> bool:
    """Whether a request that a kept connection broke under can be sent once more."""
    if connection.had_answer or not (request.body is None or isinstance(request.body, bytes)):
        return False
    if request.method in _IDEMPOTENT or connection.reached_nobody:
        return True
    return any(name.lower().endswith(b"idempotency-key") for name, _ in request.headers)


def _address(url: str) -> tuple[str, int, bytes]:
    """Host, port and path in front. Raises Invalid."""
    try:
        parts = urlsplit(url.rstrip("/"))
        host, port = parts.hostname, parts.port
        prefix = parts.path.rstrip("/").encode("ascii")
    except ValueError:
        parts, host, port, prefix = urlsplit(""), None, None, b""
    if parts.scheme != "http" or not host:
        raise Invalid(f'"{url}" is no address of a LocalAI: it must begin with http://')
    return host, port or 80, prefix


def _host_header(host: str, port: int) -> bytes:
    shown = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    return (shown if port == 80 else f"{shown}:{port}").encode("ascii")
