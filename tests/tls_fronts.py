"""TLS in front of servers that speak none: a private authority, and listeners of a test."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

Serve = Callable[[ssl.SSLSocket], None]


def make_authority(folder: Path) -> None:
    """A private authority that signs itself, for 127.0.0.1: ``cert.pem`` and ``key.pem``."""
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout",
        "key.pem", "-out", "cert.pem", "-subj", "/CN=redis",
        "-addext", "subjectAltName=IP:127.0.0.1",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


class Fronts:
    """TLS listeners of one test, a thread for each connection."""

    def __init__(self, authority: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
        self._listeners: list[socketserver.ThreadingTCPServer] = []

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(int(one.server_address[1]) for one in self._listeners)

    def listen(self, serve: Serve) -> int:
        context = self._context

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    self.request.settimeout(10.0)
                    with context.wrap_socket(self.request, server_side=True) as secured:
                        serve(secured)

        listener = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
        self._listeners.append(listener)
        return int(listener.server_address[1])

    def front_of(self, path: str) -> int:
        """Plain bytes to a unix socket, as a TLS port of the server there would take them."""

        def relay(secured: ssl.SSLSocket) -> None:
            with socket.socket(socket.AF_UNIX) as inner:
                inner.connect(path)
                while True:
                    kept = [secured] if secured.pending() else []
                    for source in kept or select.select([secured, inner], [], [], 10.0)[0]:
                        piece = source.recv(65536)
                        if not piece:
                            return
                        (inner if source is secured else secured).sendall(piece)

        return self.listen(relay)

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown()
            listener.server_close()
