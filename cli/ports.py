"""Which TCP ports are free, and who has those that are not."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from contracts.errors import Invalid


@dataclass(frozen=True, slots=True)
class WantedPort:
    """A port that a service is to listen on, and the variable that chooses it."""

    service: str
    host: str
    port: int
    variable: str


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Whether the port can be listened on now."""
    return _refusal(host, port) is None


def require_free(wanted: Iterable[WantedPort]) -> None:
    """Check that all these ports can be had, and that no two services want the same.

    Raises
    ------
    Invalid
        Names the first one that can't, who has it, and which variable to set.
    """
    taken: dict[int, WantedPort] = {}
    for each in wanted:
        other = taken.setdefault(each.port, each)
        if other is not each:
            raise Invalid(
                f"port {each.port} is wanted by {other.service} and {each.service}; "
                f"set {other.variable} or {each.variable}"
            )
        refusal = _refusal(each.host, each.port)
        if refusal is not None:
            raise Invalid(
                f"port {each.port} ({each.service}) {refusal}; set {each.variable} to another port"
            )


def _refusal(host: str, port: int) -> str | None:
    """Why the port cannot be listened on; None: it can."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"is in use by {_owner(port)}"
            return f"cannot be listened on at {host} ({error.strerror})"
    return None


def _owner(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):
        return "another process"
    for connection in connections:
        local = connection.laddr
        if connection.status == psutil.CONN_LISTEN and local and local.port == port:
            return _described(connection.pid)
    return "another process"


def _described(pid: int | None) -> str:
    if pid is None:
        return "another process"
    try:
        process = psutil.Process(pid)
        words = [word for word in process.cmdline() if not word.startswith("-")]
        return f"{' '.join([process.name(), *words[1:2]])} (process {pid})"
    except psutil.Error:
        return f"process {pid}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
