"""The way to LocalAI's data path: what a gateway sends and gets. Adapters implement it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from contracts.errors import Transient

RawHeaders = tuple[tuple[bytes, bytes], ...]


class Unreachable(Transient):
    """No connection: nothing of the request was sent."""


class Broken(Transient):
    """The connection broke, or what came over it was no HTTP."""


class Unanswered(Transient):
    """The other side took too long to take the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """One request as it goes out.

    Attributes
    ----------
    target : bytes
        Path with its escapes, and query.
    headers : tuple
        All that is sent, besides the framing of the body.
    body : bytes, iterator or None
        An iterator is read once. None: the request has no body.
    connect_timeout_s : float or None
        Real seconds that connecting may take; None: what the upstream was made with.
    """

    method: str
    target: bytes
    headers: RawHeaders
    body: bytes | AsyncIterator[bytes] | None = field(default=None, repr=False)
    connect_timeout_s: float | None = None


class UpstreamResponse(Protocol):
    """An answer whose head has come."""

    @property
    def status(self) -> int: ...  # noqa: D102

    @property
    def headers(self) -> RawHeaders:
        """As they came; hop-by-hop ones may be among them."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether all of it was read; before that, its end may not have come yet."""
        ...

    async def read(self) -> bytes:
        """The next bytes as soon as there are any, b"" at the end. Raises Broken."""
        ...

    def rest(self) -> bytes | None:
        """All that was not read yet, if its end has come already; else None, and nothing is read.

        What it gives counts as read, so that nobody has to wait, or to set a time limit.
        """
        ...

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Hand each piece on as soon as it comes, until the end or until ``sink`` says False.

        What it says False to is read again. It is called without a task in between, so it must
        be quick; what it raises is raised here. Raises Broken. May be cancelled and called again.
        """
        ...

    def close(self) -> None:
        """Let go of it. Before its end this cuts the connection, which ends the work behind."""
        ...


class Tunnel(Protocol):
    """A connection whose bytes are relayed as they are."""

    @property
    def prefix(self) -> bytes:
        """The path in front of every target over there, "" where there is none."""
        ...

    async def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises Broken."""
        ...

    async def write(self, data: bytes) -> None:
        """Send; returns when there is room for more. Raises Broken."""
        ...

    def close(self) -> None: ...  # noqa: D102


class Upstream(Protocol):
    """One LocalAI. Cancelling a call ends what it began over there."""

    async def send(self, request: OutgoingRequest) -> UpstreamResponse:
        """Send, and wait for the answer's head. Has no time limit but that of connecting.

        Raises Unreachable, Unanswered or Broken.
        """
        ...

    async def open_tunnel(self) -> Tunnel:
        """A fresh connection of its own. Raises Unreachable or Unanswered."""
        ...

    async def close(self) -> None: ...  # noqa: D102
