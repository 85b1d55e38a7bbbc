"""Waiting for what sockets, threads and other processes decide the time of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], object], within_s: float = 20.0) -> None:
    """Let everything run until it is so; TimeoutError after so many real seconds."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - asks about many things, not about one event
            await asyncio.sleep(0.005)
