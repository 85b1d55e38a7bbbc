"""uvicorn around the app: a socket of our own, signals of our own, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import socket
from collections.abc import Callable, Iterator

import uvicorn

from api.gateway.app import GatewayApp
from api.gateway.connections import Connections, EdgeLimits
from api.gateway.protocol import EdgeHttp
from api.gateway.tunnel import TunnelProtocol
from contracts.config import GatewayConfig
from contracts.errors import Invalid

_BACKLOG = 2048
_LAST_WORDS_REAL_S = 0.5


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


class GatewayServer(uvicorn.Server):
    """uvicorn without its own signal handling; ``stop`` asks it to end.

    Parameters
    ----------
    on_refusal : callable
        Called with the code of each refusal of the protocol, before a request is anybody's.
    """

    def __init__(
        self,
        app: GatewayApp,
        *,
        grace_real_s: float,
        limits: EdgeLimits | None = None,
        on_refusal: Callable[[str], None] = lambda _code: None,
    ) -> None:
        _quieten()
        self.places = Connections(limits or EdgeLimits(), on_refusal)
        protocol = type("GatewayHttp", (EdgeHttp,), {"places": self.places})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws=TunnelProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=math.ceil(self.places.limits.idle_s),
                timeout_graceful_shutdown=max(1, math.ceil(grace_real_s)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the entry point's: uvicorn would raise them again at the end."""
        yield

    def stop(self, grace_real_s: float | None = None) -> None:
        """Take no more connections and end when the running requests have; twice: at once.

        ``grace_real_s``: how long they have, instead of what was said at the start.
        """
        if self.should_exit:
            self._cut()
        elif grace_real_s is not None:
            self.config.timeout_graceful_shutdown = max(1, math.ceil(grace_real_s))
        self.should_exit = True

    def _cut(self) -> None:
        """End now: who got nothing yet is told so, all else is cut."""
        if self.force_exit:
            return
        self.force_exit = True
        for task in tuple(self.server_state.tasks):
            task.cancel()
        asyncio.get_running_loop().call_later(_LAST_WORDS_REAL_S, self._abort)

    def _abort(self) -> None:
        """Callers that take nothing any more would keep their connections, and us."""
        for connection in tuple(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


class _NoNoise(logging.Filter):
    """Drops what uvicorn logs for each odd caller, and for connections that we cut."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def _quieten() -> None:
    noisy = logging.getLogger("uvicorn.error")
    noisy.setLevel(logging.ERROR)
    if not any(isinstance(one, _NoNoise) for one in noisy.filters):
        noisy.addFilter(_NoNoise())
