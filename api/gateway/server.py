"""uvicorn around the app: a socket of our own, signals of our own, a graceful end."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import socket
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.gateway.app import GatewayApp
from api.gateway.tunnel import TunnelProtocol
from contracts.config import GatewayConfig
from contracts.errors import Invalid

KEEPALIVE_REAL_S = 75
"""Longer than callers' pools keep idle connections, so that none is closed under a request."""

MAX_HEAD_BYTES = 131_072
_BACKLOG = 2048
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def bind(config: GatewayConfig) -> socket.socket:
    """The listening socket; raises Invalid when the port is taken or the address is not ours."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # With its protocol named, asyncio switches Nagle's algorithm off on what it accepts.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    where = f"{config.host}:{config.port}"
    try:
        listening.bind((config.host, config.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise Invalid(
                f"port {config.port} on {config.host} is in use; "
                "set HEADSTART_GATEWAY_PORT to another one, or stop what listens there"
            ) from error
        raise Invalid(f"cannot listen on {where}: {error.strerror}") from error
    listening.settimeout(0.0)
    return listening


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with a bound on a request's head, which it would collect for ever."""

    _head_bytes = 0
    _is_in_head = True

    def data_received(self, data: bytes) -> None:
        """Count while a head arrives."""
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A head begins, somewhere in the present piece, which is not counted then."""
        if not self._is_in_head:
            self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It is whole."""
        self._is_in_head = False
        super().on_headers_complete()


class GatewayServer(uvicorn.Server):
    """uvicorn without its own signal handling; ``stop`` asks it to end."""

    def __init__(self, app: GatewayApp, *, grace_real_s: float) -> None:
        _quieten()
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedHttp,
                ws=TunnelProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEPALIVE_REAL_S,
                timeout_graceful_shutdown=max(1, math.ceil(grace_real_s)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the entry point's: uvicorn would raise them again at the end."""
        yield

    def stop(self) -> None:
        """Take no more connections and end when the running requests have; twice: at once."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


class _NoNoise(logging.Filter):
    """Drops what uvicorn logs for each odd caller, and for connections that we cut."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def _quieten() -> None:
    noisy = logging.getLogger("uvicorn.error")
    noisy.setLevel(logging.ERROR)
    if not any(isinstance(one, _NoNoise) for one in noisy.filters):
        noisy.addFilter(_NoNoise())
    # Odd forms are the callers' business.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
