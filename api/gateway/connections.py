"""How many connections there may be, and which one gives way when there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from api.gateway.heads import HeadLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """What callers may cost before they have said anything that makes sense.

    All times are real seconds: a network's pace, which no fast clock changes.

    Attributes
    ----------
    max_connections : int
        Beyond it the connection that has waited longest without a request is closed for the
        new one; where all have one, the new one gets 503.
    idle_s : float
        How long a connection may stay without a request. Longer than callers' pools keep
        them, so that none is closed under a request.
    head_s : float
        How long the head of a request may take (408).
    body_window_s, body_window_bytes : float, int
        A body of which fewer bytes come in that time is given up (408), unless it is we who
        do not read on.
    linger_s, linger_bytes : float, int
        How long and how much of what still comes is taken after a refusal, so that its
        sender gets to read it.
    max_pipelined : int
        Requests of one connection that may wait for the one before them. The connection
        ends behind them; what follows is for its sender to send again.
    max_dry_bytes : int
        Bytes on the wire that bring nothing of a body (chunk extensions, trailers).
    """

    head: HeadLimits = field(default_factory=HeadLimits)
    max_connections: int = 4_096
    idle_s: float = 75.0
    head_s: float = 30.0
    body_window_s: float = 60.0
    body_window_bytes: int = 30_000
    linger_s: float = 1.0
    linger_bytes: int = 256 * 1024**2
    max_pipelined: int = 32
    max_dry_bytes: int = 65_536


class Yielding(Protocol):
    """A connection that can be closed when it has no request."""

    def give_way(self) -> None: ...  # noqa: D102


class Connections:
    """Those that are open, and those of them without a request, longest first.

    Parameters
    ----------
    on_refusal : callable
        Called with the code of each refusal at the edge.

    Attributes
    ----------
    count : int
        Open connections.
    refusals : Counter
        How often callers were refused before a request was served, by code.
    """

    def __init__(
        self, limits: EdgeLimits, on_refusal: Callable[[str], None] = lambda _code: None
    ) -> None:
        self.limits = limits
        self.count = 0
        self.refusals: Counter[str] = Counter()
        self._on_refusal = on_refusal
        self._waiting: dict[Yielding, None] = {}

    @property
    def waiting(self) -> int:
        """Connections without a request."""
        return len(self._waiting)

    def enter(self, connection: Yielding) -> bool:
        """Take one in; False: there is no place, and none that could give way."""
        if self.count >= self.limits.max_connections:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            oldest.give_way()
            self.refused("gave_way")
        self.count += 1
        self._waiting[connection] = None
        return True

    def busy(self, connection: Yielding) -> None:
        """It has a request."""
        self._waiting.pop(connection, None)

    def waits(self, connection: Yielding) -> None:
        """It has none any more."""
        self._waiting[connection] = None

    def leave(self, connection: Yielding) -> None:
        """It has ended, or handed its place over for the last time; said once."""
        self._waiting.pop(connection, None)
        self.count -= 1

    def refused(self, code: str) -> None:
        """Count a refusal."""
        self.refusals[code] += 1
        self._on_refusal(code)
