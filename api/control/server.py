"""Serves the control API until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from contracts.errors import Invalid

_BACKLOG = 128

GRACE_S = 3
"""Real seconds that open requests have to end in."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Invalid, in one line, when the port cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Invalid(
            f"cannot listen on {host}:{port}: {reason}; set HEADSTART_CONTROL_PORT to a free port"
        ) from error
    return listener


class ControlServer(uvicorn.Server):
    """uvicorn that lets long streams end first, and whose process then exits with 0."""

    def __init__(self, app: FastAPI, *, on_stop: Callable[[], None]) -> None:
        # Odd forms are the callers' business: no line for each of them.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                # The caller's address decides about writes: no header may change it.
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
                lifespan="on",
            )
        )
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def end(self) -> None:
        """As on SIGTERM."""
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """End the streams as soon as a stop is wanted, since uvicorn waits for them."""
        stop = await super().on_tick(counter)
        if stop:
            self._on_stop()
        return stop
