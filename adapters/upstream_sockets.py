"""What the kernel knows of a connection before, or better than, the event loop does."""

from __future__ import annotations

import select
import socket
import struct
import sys

_TCP_INFO_BYTES = 128
_ACKED_AT = 120
"""Where ``tcpi_bytes_acked`` stands in Linux's ``struct tcp_info``."""


def is_readable(sock: socket.socket | None) -> bool:
    """Whether something can be read, be it an end; so also of a socket that is gone. 1 µs."""
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def acked_bytes(sock: socket.socket | None) -> int | None:
    """How many bytes the other side's kernel has confirmed; None: that cannot be told.

    The handshake counts as one.
    """
    if sock is None or sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < _TCP_INFO_BYTES:
        return None
    acked: int = struct.unpack_from("=Q", info, _ACKED_AT)[0]
    return acked
