"""A way to LocalAI that can be replaced by another one while requests run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from contracts.upstream import OutgoingRequest, Tunnel, Upstream, UpstreamResponse

MAX_RETIRED = 8
"""Ways of former configurations that are kept open; beyond it the oldest is cut."""

_log = structlog.get_logger("headstart.configuration")


class ReplaceableUpstream:
    """Implements ``contracts.upstream.Upstream`` by whichever was given last.

    What was begun on an earlier one goes on there: it is kept, and its idle connections end by
    themselves. A request costs nothing more than without this.
    """

    __slots__ = ("_cutting", "_now", "_retired", "open_tunnel", "send")

    send: Callable[[OutgoingRequest], Coroutine[Any, Any, UpstreamResponse]]
    open_tunnel: Callable[[], Coroutine[Any, Any, Tunnel]]

    def __init__(self, upstream: Upstream) -> None:
        self._retired: list[Upstream] = []
        self._take(upstream)

    def replace(self, upstream: Upstream) -> None:
        """Requests that come from now on go to ``upstream``."""
        self._retired.append(self._now)
        self._take(upstream)
        if len(self._retired) > MAX_RETIRED:
            _log.warning("former_backend_cut", kept=MAX_RETIRED)
            self._cutting = asyncio.get_running_loop().create_task(self._retired.pop(0).close())

    async def close(self) -> None:
        """Close all of them."""
        for upstream in (*self._retired, self._now):
            await upstream.close()

    def _take(self, upstream: Upstream) -> None:
        self._now = upstream
        self.send = upstream.send
        self.open_tunnel = upstream.open_tunnel
